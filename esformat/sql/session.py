"""`Session`: statements put to DuckDB, and the tables that they name found for it."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from esformat.base.forked import unlock_in_forks
from esformat.errors import UsageError
from esformat.sql.errors import told
from esformat.sql.readable import readable
from esformat.sql.rewrite import Rewritten, rewritten
from esformat.sql.rows import Bound, Rows
from esformat.sql.summary import NAME
from esformat.sql.table import Find, Table, folded
from esformat.sql.tree import Node, given_names, nodes, parse, table_names
from esformat.sql.watch import Guard, Watch, unguarded

Parameters = Sequence[Any] | Mapping[str, Any] | None
MOST_KEPT = 1_000
"""Statements of which it is kept what was found about them."""
MOST_TEXT = 1_000_000
"""Characters of a statement; in a longer one nothing is looked for: its tree would take longer than it saves."""
R = TypeVar("R")
SHOWN_NAMES = 8
"""Of tables, in the hint about one that is not there."""
_SHOW_TABLES = re.compile(r"SHOW\s+(ALL\s+)?TABLES\s*;?", re.IGNORECASE)
_EXPLAIN = re.compile(r"\s*EXPLAIN\b(?!\s*(?:\(|ANALYZE\b))", re.IGNORECASE)
_MISSING = (
    re.compile(r"Table with name (.+?) does not exist!"),
    re.compile(r'No extension found that is capable of reading the file "(.+)"$', re.MULTILINE),
)
"""What DuckDB says of a name that it does not know, and of a file that it does not know the format of."""
_ASKING = ("SELECT", "EXPLAIN")
_SETTINGS = ("TimeZone = 'UTC'", "python_enable_replacements = false")
"""Times without a zone are UTC, as everywhere here; names are files and tables, never variables of a program."""
_LOCKED = (
    *(f"{place}_directory = '/'" for place in ("home", "secret", "extension")),  # settings and errors show these
    "temp_directory = ''",
    "enable_external_access = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "allow_community_extensions = false",
    "max_temp_directory_size = '0KB'",
    "lock_configuration = true",
)
"""For statements of strangers: no files, no network, no extensions, nothing on the disk, and it stays so."""


class Database:
    """A DuckDB in memory, opened by the first statement. Safe to share between threads."""

    def __init__(self, *, locked: bool = False, settings: Sequence[str] = ()) -> None:
        """locked: nothing outside can be reached, and no setting changed. settings: of DuckDB, as `threads = 2`."""
        self._settings = (*_SETTINGS, *settings, *(_LOCKED if locked else ()))
        self._opened: duckdb.DuckDBPyConnection | None = None
        self._process = 0  # DuckDB's threads do not survive a fork
        self._lock = Lock()
        unlock_in_forks(self)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A connection for one statement."""
        with self._lock:
            if self._opened is None or self._process != os.getpid():
                _leave(self._opened)
                self._opened, self._process = duckdb.connect(), os.getpid()
                for setting in self._settings:
                    self._opened.execute(f"SET GLOBAL {setting}")
            return self._opened.cursor()

    def close(self) -> None:
        """Let go of it; rows that are being read end with an error."""
        with self._lock:
            if self._opened is not None and self._process == os.getpid():
                self._opened.close()
            self._opened = None


class Session:
    """Statements over tables that are found by name. Safe to share between threads; they may run side by side."""

    def __init__(
        self,
        find: Find,
        *,
        hint: str,
        database: Database | None = None,
        guard: Guard = unguarded,
        lasting: bool = False,
        names: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """find: gives the tables of names. hint: what to do about a name that is not found. names: those that SHOW
        TABLES tells, where they can be told. database: None for one of
        its own. guard: in which DuckDB works. lasting: a name is always the same table, whose events do not change, and
        nobody guards; then what was found about a statement is kept for the next time, and so are connections.
        """
        self._kept: dict[str, _Known] | None = {} if lasting else None
        self._idle: list[_Desk] = []
        self._find = find
        self._hint, self._names = hint, names
        self._database = Database() if database is None else database
        self._guard = guard

    def ask(self, text: str, parameters: Parameters = None) -> Rows:
        """The rows that answer one statement, read when they are asked for.

        parameters: values for `?`, `$1` or `$name` in it.
        Raises UsageError for a statement that is wrong, that changes something, or that names a table which is not
        there; what opening a file raises.
        """
        text = text.strip()
        known = None if self._kept is None or parameters else self._kept.get(text)
        if known is not None:
            return Rows(lambda: self._again(known), known.columns, known.rows)
        if _SHOW_TABLES.fullmatch(text):
            return Rows(self._listed)
        plan = _EXPLAIN.match(text)
        if plan is not None:
            return Rows(lambda: self._explained(text[plan.end() :].strip(), parameters))
        return Rows(lambda: self._bound(text, parameters))

    def close(self) -> None:
        """Let go of the database; rows that are being read end with an error."""
        self._idle.clear()
        self._database.close()

    # ------------------------------------------------------------ statements

    def _bound(self, text: str, parameters: Parameters) -> Bound:
        """A statement that asks, bound to its tables, as something that reads less where there is such a thing."""
        connection = self._database.connect()
        watch = Watch(connection.interrupt, self._guard)
        with told(watch):
            asked, columns = self._better(connection, text, parameters, watch)
        return Bound(connection, asked, parameters, columns, watch, connection.close)

    def _again(self, known: _Known) -> Bound:
        """A statement that was asked before, put to a connection that may know its tables from then."""
        desk = self._idle.pop() if self._idle else None
        if desk is None or desk.process != os.getpid():
            _leave(desk)
            desk = _Desk(self._database.connect(), Watch(), set(), os.getpid())
        connection, watch = desk.connection, desk.watch
        watch.failure = None
        watch.lines.clear()
        with told(watch):
            for name in known.tables:
                if folded(name) not in desk.tables:
                    dataset = self._table(name).dataset(dictionaries=True).watched(watch.of(name))
                    connection.register(name, scanned(dataset))
                    desk.tables.add(folded(name))
            text = known.text
            if known.better is not None:
                desk.tables.discard(folded(known.better.of))
                text = _asked(connection, known.better, watch, self._table)
        return Bound(connection, text, None, known.columns, watch, lambda: self._idle.append(desk))

    def _table(self, name: str) -> Table:
        table = self._find(name)
        assert table is not None, "names last"
        return table

    def _listed(self) -> Bound:
        """The names of the tables."""
        connection = self._database.connect()
        connection.register("tables", pa.table({"name": pa.array(self._names(), pa.string())}))
        return Bound(connection, 'FROM "tables"', None, ("name",), Watch(), connection.close)

    def _what_to_do(self) -> str:
        """About a name that is not found."""
        names = self._names()
        some = ", ".join(names[:SHOWN_NAMES]) + (", … (SHOW TABLES tells all)" if len(names) > SHOWN_NAMES else "")
        return f"{self._hint}; here: {some}" if names else self._hint

    def _explained(self, statement: str, parameters: Parameters) -> Bound:
        """DuckDB's plan of a statement, and how many blocks each scan of ours would read: it is run without rows."""
        connection = self._database.connect()
        watch = Watch(connection.interrupt, self._guard)
        with told(watch):
            text, _ = self._better(connection, statement, parameters, watch)
            plan = connection.sql(f"EXPLAIN {text}", params=parameters).fetchall()
            watch.dry = True
            connection.sql(text, params=parameters).fetchall()
        plan += [("blocks", line) for line in watch.lines]
        values = pa.table({"explain_key": [key for key, _ in plan], "explain_value": [value for _, value in plan]})
        connection.register("plan", values)
        return Bound(connection, "FROM plan", None, tuple(values.column_names), watch, connection.close)

    def _better(
        self, connection: duckdb.DuckDBPyConnection, text: str, parameters: Parameters, watch: Watch
    ) -> tuple[str, tuple[str, ...]]:
        """What is asked for a statement, as it is or rewritten, its tables registered; and its columns."""
        known = None if self._kept is None else self._kept.get(text)
        if known is None:
            known = self._looked_into(connection, text, parameters, watch)
        else:
            for name in known.tables:
                register(connection, name, self._table(name), watch)
        asked = known.text
        if known.better is not None:
            asked = _asked(connection, known.better, watch, lambda name: watch.tables.get(name) or self._table(name))
        columns = tuple(connection.sql(asked, params=parameters).columns) if parameters else known.columns
        return asked, columns  # a parameter may say which columns

    def _looked_into(
        self, connection: duckdb.DuckDBPyConnection, text: str, parameters: Parameters, watch: Watch
    ) -> _Known:
        """What there is to know of a statement; its tables are registered."""
        whole = len(text) <= MOST_TEXT and "\0" not in text  # DuckDB's trees end texts there
        tree = parse(connection, text) if whole else None
        if tree is None:
            _check(connection, text)
        else:
            for name in table_names(tree):
                table = self._find(name)
                if table is not None:
                    register(connection, name, table, watch)
        relation = bind(
            connection, lambda: connection.sql(text, params=parameters), self._find, watch, self._what_to_do
        )
        columns = tuple(relation.columns)
        if not watch.tables:
            return _Known(text, (), None, columns, None)

        def ask(other: str) -> list[tuple[Any, ...]]:
            return connection.sql(other).fetchall()

        lasting = tree is not None and _is_ours(tree, watch.tables)
        better = None if tree is None else rewritten(connection, tree, watch.tables, columns, ask)
        of = "" if better is None else better.of
        counted = better is not None and better.summary is not None and not better.summary.tallied
        rows: list[list[tuple[Any, ...]]] | None = [] if counted and not parameters else None
        known = _Known(text, tuple(name for name in watch.tables if name != of), better, columns, rows)
        if self._kept is not None and lasting:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[text] = known
        return known


def _is_ours(tree: Node, tables: Mapping[str, Table]) -> bool:
    """Whether a statement asks our tables alone: files beside them may have other columns the next time."""
    known = given_names(tree) | set(map(folded, tables))
    sources = [node for node in nodes(tree) if node.get("type") in ("BASE_TABLE", "TABLE_FUNCTION")]
    return all(folded(node.get("table_name", "")) in known for node in sources)


class _Known(NamedTuple):
    """What is known of a statement."""

    text: str
    tables: tuple[str, ...]
    """Names that it needs."""
    better: Rewritten | None
    columns: tuple[str, ...]
    rows: list[list[tuple[Any, ...]]] | None
    """Room for the answer, where counts alone give it."""


class _Desk(NamedTuple):
    """A connection for one statement after another."""

    connection: duckdb.DuckDBPyConnection
    watch: Watch
    """Without the tables and the way to interrupt: what a connection refers to must not refer to it."""
    tables: set[str]
    """Names that it knows, in small letters."""
    process: int


def _asked(
    connection: duckdb.DuckDBPyConnection, better: Rewritten, watch: Watch, table_of: Callable[[str], Table]
) -> str:
    """What is asked instead of a statement, once what that needs is registered."""
    if better.summary is not None:
        summary = better.summary.make()
        connection.register(NAME, summary)
        watch.counted(better.of, summary.num_rows, tallied=better.summary.tallied)
    if better.spaces is not None or better.held:
        spaces = better.spaces(lambda other: connection.sql(other).fetchall()) if better.spaces else None
        dataset = table_of(better.of).dataset(dictionaries=True)
        if better.held:
            dataset = dataset.holding(better.held)
        if spaces is not None:
            dataset = dataset.filter(pc.field("space").isin(pa.array(spaces, pa.string())))
        connection.register(better.of, scanned(dataset.watched(watch.of(better.of))))
    return better.text


def _leave(one: object) -> None:
    """Keep for good what a process was forked with: to let go of it, DuckDB would wait for threads that only the parent
    has.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def bind(
    connection: duckdb.DuckDBPyConnection,
    ask: Callable[[], R],
    find: Find,
    watch: Watch,
    hint: Callable[[], str] | None,
) -> R:
    """What `ask` gives once every table that it lacks is found and registered.

    Raises UsageError for a table that is not found, where there is a hint what to do, else DuckDB's own error.
    """
    while True:
        try:
            return ask()
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            name = _missing(error)
            if name is None or name in watch.tables:
                raise
            table = find(name)
            if table is None and hint is None:
                raise
        if table is None:
            assert hint is not None, "raised above"
            raise UsageError(f"no table {name!r}", hint=hint())
        register(connection, name, table, watch)


def _missing(error: duckdb.Error) -> str | None:
    """The name of the table that a statement lacks."""
    found = (pattern.search(str(error)) for pattern in _MISSING)
    return next((match[1] for match in found if match), None)


def register(connection: duckdb.DuckDBPyConnection, name: str, table: Table, watch: Watch) -> None:
    """Make a table known to a connection by a name. Raises UsageError for two that capitals tell apart."""
    known = next((each for other, each in watch.tables.items() if folded(other) == folded(name)), None)
    if known is not None and known != table:
        raise UsageError(
            f"the statement names two tables that are {name!r} but for capitals", hint="ask for one at a time"
        )
    watch.tables[name] = table if known is None else known
    if known is None:
        connection.register(name, scanned(table.dataset(dictionaries=True).watched(watch.of(name))))


def scanned(dataset: Any) -> Any:
    """What DuckDB is given to scan for an `EventDataset`. Its sources are its own affair, and known of one version."""
    dataset = readable(dataset)
    if not duckdb.__version__.startswith("2.0."):
        return dataset
    try:
        from esformat.sql.source import EventSource
    except ImportError:  # of a patch release that has them elsewhere
        return dataset
    return EventSource(dataset)


def _check(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Raises UsageError for anything but one statement that asks."""
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise UsageError(f"expected one statement, not {len(statements)}")
    kind = statements[0].type.name
    if kind == "MULTI":  # as PIVOT without its values, for which DuckDB makes a type first
        raise UsageError(
            "DuckDB makes several statements of this one",
            hint="list the values of a PIVOT, as in FROM (PIVOT clicks ON type IN ('buy', 'view') USING count(*))",
        )
    if kind not in _ASKING:
        raise UsageError(f"expected a statement that asks, as SELECT does, not {kind}")
