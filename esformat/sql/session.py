"""`Session`: statements put to DuckDB, and the tables that they name found for it."""

from __future__ import annotations

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
from esformat.sql.rewrite import Rewritten, rewritten
from esformat.sql.rows import Bound, Rows
from esformat.sql.summary import NAME
from esformat.sql.table import Find, Table
from esformat.sql.tree import parse, table_names
from esformat.sql.watch import Guard, Watch, unguarded

Parameters = Sequence[Any] | Mapping[str, Any] | None
MOST_KEPT = 1_000
"""Statements of which it is kept what was found about them."""
MOST_TEXT = 10_000
"""Characters of a statement; in a longer one nothing is looked for: its tree would take longer than it saves."""
R = TypeVar("R")
_EXPLAIN = re.compile(r"\s*EXPLAIN\b(?!\s*(?:\(|ANALYZE\b))", re.IGNORECASE)
_MISSING = (
    re.compile(r"Table with name (.+?) does not exist!"),
    re.compile(r'No extension found that is capable of reading the file "(.+?)"'),
)
"""What DuckDB says of a name that it does not know, and of a file that it does not know the format of."""
_ASKING = ("SELECT", "EXPLAIN")
_SETTINGS = ("TimeZone = 'UTC'", "python_enable_replacements = false")
"""Times without a zone are UTC, as everywhere here; names are files and tables, never variables of a program."""
_LOCKED = (
    "enable_external_access = false", "autoinstall_known_extensions = false", "autoload_known_extensions = false",
    "allow_community_extensions = false", "max_temp_directory_size = '0KB'", "lock_configuration = true",
)  # fmt: skip
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
    ) -> None:
        """find: gives the tables of names. hint: what to do about a name that is not found. database: None for one of
        its own. guard: in which DuckDB works. lasting: a name is always the same table, whose events do not change;
        then what was found about a statement is kept for the next time.
        """
        self._kept: dict[str, _Known] | None = {} if lasting else None
        self._find = find
        self._hint = hint
        self._database = Database() if database is None else database
        self._guard = guard

    def ask(self, text: str, parameters: Parameters = None) -> Rows:
        """The rows that answer one statement, read when they are asked for.

        parameters: values for `?`, `$1` or `$name` in it.
        Raises UsageError for a statement that is wrong, that changes something, or that names a table which is not
        there; what opening a file raises.
        """
        plan = _EXPLAIN.match(text)
        if plan is not None:
            return Rows(lambda: self._explained(text[plan.end() :].strip(), parameters))
        return Rows(lambda: self._bound(text.strip(), parameters))

    def close(self) -> None:
        """Let go of the database; rows that are being read end with an error."""
        self._database.close()

    # ------------------------------------------------------------ statements

    def _bound(self, text: str, parameters: Parameters) -> Bound:
        """A statement that asks, bound to its tables, as something that reads less where there is such a thing."""
        connection = self._database.connect()
        watch = Watch(connection.interrupt, self._guard)
        with told(watch):
            relation = self._better(connection, text, parameters, watch)[1]
        return Bound(connection, relation, watch)

    def _explained(self, statement: str, parameters: Parameters) -> Bound:
        """DuckDB's plan of a statement, and how many blocks each scan of ours would read: it is run without rows."""
        connection = self._database.connect()
        watch = Watch(connection.interrupt, self._guard)
        with told(watch):
            text, relation = self._better(connection, statement, parameters, watch)
            plan = connection.sql(f"EXPLAIN {text}", params=parameters).fetchall()
            watch.dry = True
            relation.fetchall()
        plan += [("blocks", line) for line in watch.lines]
        values = pa.table({"explain_key": [key for key, _ in plan], "explain_value": [value for _, value in plan]})
        connection.register("plan", values)
        return Bound(connection, connection.sql("FROM plan"), watch)

    def _better(
        self, connection: duckdb.DuckDBPyConnection, text: str, parameters: Parameters, watch: Watch
    ) -> tuple[str, duckdb.DuckDBPyRelation]:
        """A statement, bound, and its text: as it is, or rewritten."""
        known = None if self._kept is None else self._kept.get(text)
        if known is None:
            return self._looked_into(connection, text, parameters, watch)
        for name in known.tables:
            table = self._find(name)
            assert table is not None, "names last"
            register(connection, name, table, watch)
        return _asked(connection, text, known.better, parameters, watch)

    def _looked_into(
        self, connection: duckdb.DuckDBPyConnection, text: str, parameters: Parameters, watch: Watch
    ) -> tuple[str, duckdb.DuckDBPyRelation]:
        """The same for a statement of which nothing is known."""
        tree = parse(connection, text) if len(text) <= MOST_TEXT else None
        if tree is None:
            _check(connection, text)
        else:
            for name in table_names(tree):
                table = self._find(name)
                if table is not None:
                    register(connection, name, table, watch)
        relation = bind(connection, lambda: connection.sql(text, params=parameters), self._find, watch, self._hint)
        if not watch.tables:
            return text, relation

        def ask(other: str) -> list[tuple[Any, ...]]:
            return connection.sql(other).fetchall()

        better = None if tree is None else rewritten(connection, tree, watch.tables, relation.columns, ask)
        if self._kept is not None and (better is None or better.lasts):
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            summed = better is not None and better.summary is not None
            self._kept[text] = _Known(() if summed else tuple(watch.tables), better)
        return (text, relation) if better is None else _asked(connection, text, better, parameters, watch)


class _Known(NamedTuple):
    """What is known of a statement that was asked before."""

    tables: tuple[str, ...]
    """Names that it needs."""
    better: Rewritten | None


def _asked(
    connection: duckdb.DuckDBPyConnection, text: str, better: Rewritten | None, parameters: Parameters, watch: Watch
) -> tuple[str, duckdb.DuckDBPyRelation]:
    """A statement, bound, or what is asked instead; and its text."""
    if better is not None and better.summary is not None:
        connection.register(NAME, better.summary.table)
        watch.counted(better.of, better.summary.table.num_rows, tallied=better.summary.tallied)
    if better is not None and better.spaces is not None:
        wanted = pc.field("space").isin(pa.array(better.spaces, pa.string()))
        dataset = watch.tables[better.of].dataset().filter(wanted)
        connection.register(better.of, dataset.watched(watch.of(better.of)))
    if better is not None and better.text is not None:
        text = better.text
    return text, connection.sql(text, params=parameters)


def bind(connection: duckdb.DuckDBPyConnection, ask: Callable[[], R], find: Find, watch: Watch, hint: str | None) -> R:
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
            raise UsageError(f"no table {name!r}", hint=hint)
        register(connection, name, table, watch)


def _missing(error: duckdb.Error) -> str | None:
    """The name of the table that a statement lacks."""
    found = (pattern.search(str(error)) for pattern in _MISSING)
    return next((match[1] for match in found if match), None)


def register(connection: duckdb.DuckDBPyConnection, name: str, table: Table, watch: Watch) -> None:
    """Make a table known to a connection by a name. Raises UsageError for two that capitals tell apart."""
    known = next((each for other, each in watch.tables.items() if other.casefold() == name.casefold()), None)
    if known is not None and known != table:
        raise UsageError(
            f"the statement names two tables that are {name!r} but for capitals", hint="ask for one at a time"
        )
    watch.tables[name] = table if known is None else known
    if known is None:
        connection.register(name, table.dataset().watched(watch.of(name)))


def _check(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Raises UsageError for anything but one statement that asks."""
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise UsageError(f"expected one statement, not {len(statements)}")
    kind = statements[0].type.name
    if kind not in _ASKING:
        raise UsageError(f"expected a statement that asks, as SELECT does, not {kind}")
