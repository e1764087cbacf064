"""`Session`: runs statements in DuckDB and finds the tables that they name."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa

from esformat.base.forked import unlock_in_forks
from esformat.errors import UsageError
from esformat.format.retyped import inner_types, retyped
from esformat.sql.errors import translated_errors
from esformat.sql.rewrite import Rewritten, rewritten
from esformat.sql.rows import Bound, Rows
from esformat.sql.summary import NAME
from esformat.sql.table import Find, Table, folded
from esformat.sql.tree import Node, given_names, nodes, parse, root, table_names
from esformat.sql.watch import Guard, Watch, unguarded

Parameters = Sequence[Any] | Mapping[str, Any] | None
MOST_KEPT = 1_000
"""The most statements whose analysis is cached."""
MOST_TEXT = 1_000_000
"""The most characters of a statement to analyse; beyond this, parsing costs more than rewriting saves."""
R = TypeVar("R")
SHOWN_NAMES = 8
"""The most table names in the hint about an unknown table."""
_SHOW_TABLES = re.compile(r"SHOW\s+(ALL\s+)?TABLES\s*;?", re.IGNORECASE)
_EXPLAIN = re.compile(r"\s*EXPLAIN\b(?!\s*(?:\(|ANALYZE\b))", re.IGNORECASE)
_MISSING = (
    re.compile(r"Table with name (.+?) does not exist!"),
    re.compile(r'No extension found that is capable of reading the file "(.+)"$', re.MULTILINE),
)
"""DuckDB's messages about an unknown table, and about a file of unknown format."""
_ASKING = ("SELECT", "EXPLAIN")
_SETTINGS = ("TimeZone = 'UTC'", "python_enable_replacements = false")
"""Times without a zone are UTC, as everywhere here; names are files and tables, never Python variables."""
_LOCKED = (
    *(f"{place}_directory = '/'" for place in ("home", "secret", "extension")),  # shown by settings and errors
    "temp_directory = ''",
    "enable_external_access = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "allow_community_extensions = false",
    "max_temp_directory_size = '0KB'",
    "lock_configuration = true",
)
"""Settings for untrusted statements: no files, network, extensions or disk use, and no way to change this."""


class Database:
    """An in-memory DuckDB database, opened by the first statement. Thread-safe."""

    def __init__(self, *, locked: bool = False, settings: Sequence[str] = ()) -> None:
        """locked: deny all outside access and changes of settings. settings: DuckDB's, such as `threads = 2`."""
        self._settings = (*_SETTINGS, *settings, *(_LOCKED if locked else ()))
        self._opened: duckdb.DuckDBPyConnection | None = None
        self._process = 0  # DuckDB's threads do not survive a fork
        self._lock = Lock()
        unlock_in_forks(self)
        self.abandoned = 0
        """The number of databases that were abandoned."""

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return a connection for one statement."""
        with self._lock:
            if self._opened is None or self._process != os.getpid():
                _leak(self._opened)
                opened = duckdb.connect()
                for setting in self._settings:
                    opened.execute(f"SET GLOBAL {setting}")
                self._opened, self._process = opened, os.getpid()
            return self._opened.cursor()

    def abandon(self) -> None:
        """Use another database for the next connection, after an error that left this one unusable."""
        with self._lock:
            self._opened = None
            self.abandoned += 1

    def close(self) -> None:
        """Close the database; rows that are being read fail with an error."""
        with self._lock:
            if self._opened is not None and self._process == os.getpid():
                self._opened.close()
            self._opened = None


class Session:
    """Runs statements on tables that are found by name. Thread-safe; statements may run in parallel."""

    def __init__(
        self,
        find: Find,
        *,
        hint: str,
        database: Database | None = None,
        guard: Guard = unguarded,
        immutable: bool = False,
        names: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """find: returns the table of a name. hint: advice for unknown tables.
        database: None to create one.
        guard: returns the context in which DuckDB runs.
        immutable: a name always means the same table, whose events do not change, and there is no guard; then the
        analysis of statements and connections are cached.
        names: returns the names that SHOW TABLES lists, if they are known.
        """
        self._analyses: dict[str, _Analysis] | None = {} if immutable else None
        self._pool: list[_PooledConnection] = []
        self._find = find
        self._hint, self._names = hint, names
        self._database = Database() if database is None else database
        self._guard = guard

    def ask(self, text: str, parameters: Parameters = None) -> Rows:
        """Return the rows of one statement, read on demand.

        parameters: values for `?`, `$1` or `$name`.
        Raises UsageError for an invalid statement, one that changes data, or one that names an unknown table; and
        errors of opening a file.
        """
        text = text.strip()
        analysis = None if self._analyses is None or parameters else self._analyses.get(text)
        if analysis is not None:
            return Rows(lambda: self._bind_cached(analysis), analysis.columns, analysis.rows)
        if _SHOW_TABLES.fullmatch(text):
            return Rows(self._bind_table_list)
        plan = _EXPLAIN.match(text)
        if plan is not None:
            return Rows(lambda: self._bind_explain(text[plan.end() :].strip(), parameters))
        return Rows(lambda: self._bind(text, parameters))

    def close(self) -> None:
        """Close the database; rows that are being read fail with an error."""
        self._pool.clear()
        self._database.close()

    # ------------------------------------------------------------ statements

    def _bind(self, text: str, parameters: Parameters) -> Bound:
        """Bind a query to its tables, rewritten to read less if possible."""
        connection = self._database.connect()
        watch = Watch(connection.interrupt, self._guard, self._database.abandon)
        with translated_errors(watch):
            asked, columns = self._prepare(connection, text, parameters, watch)
        return Bound(connection, asked, parameters, columns, watch, connection.close)

    def _bind_cached(self, analysis: _Analysis) -> Bound:
        """Bind a statement that ran before, reusing an idle connection that may have its tables registered."""
        database = self._database
        pooled = self._pool.pop() if self._pool else None
        if pooled is not None and pooled.process != os.getpid():
            _leak(pooled)
            pooled = None
        if pooled is None or pooled.abandoned != database.abandoned:
            abandoned = database.abandoned
            watch = Watch(broken=database.abandon)
            pooled = _PooledConnection(database.connect(), watch, {}, os.getpid(), abandoned)
        connection, watch = pooled.connection, pooled.watch
        watch.failure = None
        watch.lines.clear()
        with translated_errors(watch):
            for name in analysis.tables:
                if folded(name) not in pooled.tables or pooled.tables[folded(name)] is not None:
                    dataset = self._table(name).dataset(dictionaries=True).watched(watch.of(name))
                    connection.register(name, scanned(dataset))
                    pooled.tables[folded(name)] = None
            text, rewrite = analysis.text, analysis.rewrite
            if rewrite is not None and rewrite.is_fixed and pooled.tables.get(folded(rewrite.of)) is rewrite:
                text = rewrite.text
            elif rewrite is not None:
                pooled.tables[folded(rewrite.of)] = rewrite
                text = _apply_rewrite(connection, rewrite, watch, self._table)
            columns = tuple(connection.sql(text).columns) if analysis.columns is None else analysis.columns
        return Bound(connection, text, None, columns, watch, lambda: self._pool.append(pooled))

    def _table(self, name: str) -> Table:
        table = self._find(name)
        assert table is not None, "names last"
        return table

    def _bind_table_list(self) -> Bound:
        """Bind the result of SHOW TABLES."""
        connection = self._database.connect()
        connection.register("tables", pa.table({"name": pa.array(self._names(), pa.string())}))
        return Bound(connection, 'FROM "tables"', None, ("name",), Watch(), connection.close)

    def _table_hint(self) -> str:
        """The hint about an unknown table."""
        names = self._names()
        some = ", ".join(names[:SHOWN_NAMES]) + (", … (SHOW TABLES lists all)" if len(names) > SHOWN_NAMES else "")
        return f"{self._hint}; here: {some}" if names else self._hint

    def _bind_explain(self, statement: str, parameters: Parameters) -> Bound:
        """Bind the result of EXPLAIN: DuckDB's plan, and the blocks that each scan would read, found in a dry run."""
        connection = self._database.connect()
        watch = Watch(connection.interrupt, self._guard, self._database.abandon)
        with translated_errors(watch):
            text, _ = self._prepare(connection, statement, parameters, watch)
            plan = connection.sql(f"EXPLAIN {text}", params=parameters).fetchall()
            watch.dry = True
            connection.sql(text, params=parameters).fetchall()
        plan += [("blocks", line) for line in watch.lines]
        values = pa.table({"explain_key": [key for key, _ in plan], "explain_value": [value for _, value in plan]})
        connection.register("plan", values)
        return Bound(connection, "FROM plan", None, tuple(values.column_names), watch, connection.close)

    def _prepare(
        self, connection: duckdb.DuckDBPyConnection, text: str, parameters: Parameters, watch: Watch
    ) -> tuple[str, tuple[str, ...]]:
        """Register the tables of a statement; return its text, rewritten if possible, and its columns."""
        analysis = None if self._analyses is None else self._analyses.get(text)
        if analysis is None:
            analysis = self._analyse(connection, text, parameters, watch)
        else:
            for name in analysis.tables:
                register(connection, name, self._table(name), watch)
        asked = analysis.text
        if analysis.rewrite is not None:
            asked = _apply_rewrite(
                connection, analysis.rewrite, watch, lambda name: watch.tables.get(name) or self._table(name)
            )
        if parameters or analysis.columns is None:  # parameters may determine the columns
            return asked, tuple(connection.sql(asked, params=parameters).columns)
        return asked, analysis.columns

    def _analyse(
        self, connection: duckdb.DuckDBPyConnection, text: str, parameters: Parameters, watch: Watch
    ) -> _Analysis:
        """Analyse a statement and register its tables."""
        whole = len(text) <= MOST_TEXT and "\0" not in text  # DuckDB's serialised trees end text at NUL
        tree = parse(connection, text) if whole else None
        if tree is None:
            _check(connection, text)
        else:
            for name in table_names(tree):
                table = self._find(name)
                if table is not None:
                    register(connection, name, table, watch)
        relation = bind(
            connection, lambda: connection.sql(text, params=parameters), self._find, watch, self._table_hint
        )
        columns = tuple(relation.columns)
        if not watch.tables:
            return _Analysis(text, (), None, columns, None)

        def ask(other: str) -> list[tuple[Any, ...]]:
            return connection.execute(other).fetchall()

        only_ours = tree is not None and _is_ours(tree, watch.tables)
        rewrite = None if tree is None else rewritten(connection, tree, watch.tables, columns, ask)
        of = "" if rewrite is None else rewrite.of
        counted = rewrite is not None and rewrite.summary is not None and not rewrite.summary.tallied
        rows: list[list[tuple[Any, ...]]] | None = [] if counted and not parameters else None
        registered = tuple(name for name in watch.tables if name != of)
        analysis = _Analysis(text, registered, rewrite, columns if only_ours else None, rows if only_ours else None)
        if self._analyses is not None and (only_ours or (tree is not None and _is_join(tree))):
            if len(self._analyses) >= MOST_KEPT:
                self._analyses.clear()
            self._analyses[text] = analysis
        return analysis


def _is_ours(tree: Node, tables: Mapping[str, Table]) -> bool:
    """Whether a statement reads only event tables: other files may have different columns next time."""
    known = given_names(tree) | set(map(folded, tables))
    sources = [node for node in nodes(tree) if node.get("type") in ("BASE_TABLE", "TABLE_FUNCTION")]
    return all(folded(node.get("table_name", "")) in known for node in sources)


def _is_join(tree: Node) -> bool:
    """Whether a statement selects from a join: no content of the tables is part of its rewritten text then."""
    return bool(root(tree).get("from_table", {}).get("type") == "JOIN")


class _Analysis(NamedTuple):
    """The cached analysis of a statement."""

    text: str
    tables: tuple[str, ...]
    """The names of the tables to register."""
    rewrite: Rewritten | None
    columns: tuple[str, ...] | None
    """The columns of the result; None if they may differ each time, because it reads other files."""
    rows: list[list[tuple[Any, ...]]] | None
    """A cache for the result, if counts alone give it."""


class _PooledConnection(NamedTuple):
    """A connection that is reused for one statement after another."""

    connection: duckdb.DuckDBPyConnection
    watch: Watch
    """Has no tables and no interrupt function: objects that a connection refers to must not refer back to it."""
    tables: dict[str, Rewritten | None]
    """The names registered, in lower case, each with the rewriting that restricted its table, None for whole tables."""
    process: int
    abandoned: int
    """The number of databases that had been abandoned when it was opened."""


def _apply_rewrite(
    connection: duckdb.DuckDBPyConnection, rewrite: Rewritten, watch: Watch, table_of: Callable[[str], Table]
) -> str:
    """Register what a rewritten statement needs, and return its text."""
    if rewrite.summary is not None:
        summary = rewrite.summary.make()
        connection.register(NAME, summary)
        watch.counted(rewrite.of, summary.num_rows, tallied=rewrite.summary.tallied)
    if rewrite.spaces is not None or rewrite.required_texts:
        spaces = rewrite.spaces(lambda other: connection.execute(other).fetchall()) if rewrite.spaces else None
        dataset = table_of(rewrite.of).dataset(dictionaries=True)
        if rewrite.required_texts:
            dataset = dataset.requiring(rewrite.required_texts)
        if spaces is not None:
            dataset = dataset.of_spaces(spaces)
        connection.register(rewrite.of, scanned(dataset.watched(watch.of(rewrite.of))))
    return rewrite.text


def _leak(one: object) -> None:
    """Leak an object inherited through a fork: freeing it would wait for threads that exist only in the parent."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def bind(
    connection: duckdb.DuckDBPyConnection,
    ask: Callable[[], R],
    find: Find,
    watch: Watch,
    hint: Callable[[], str] | None,
) -> R:
    """Return the result of `ask` after finding and registering every table that it lacks.

    Raises UsageError for an unknown table if there is a hint, else DuckDB's own error.
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
    """The name of the table that a statement lacks, from DuckDB's error; None for other errors."""
    found = (pattern.search(str(error)) for pattern in _MISSING)
    return next((match[1] for match in found if match), None)


def register(connection: duckdb.DuckDBPyConnection, name: str, table: Table, watch: Watch) -> None:
    """Register a table with a connection. Raises UsageError for two tables whose names differ only in case."""
    known = next((each for other, each in watch.tables.items() if folded(other) == folded(name)), None)
    if known is not None and known != table:
        raise UsageError(
            f"the statement names two tables {name!r} that differ only in case", hint="query one at a time"
        )
    watch.tables[name] = table if known is None else known
    if known is None:
        connection.register(name, scanned(table.dataset(dictionaries=True).watched(watch.of(name))))


def scanned(dataset: Any) -> Any:
    """Return the object that DuckDB scans for a dataset, with types that DuckDB has.

    It rejects every statement on a table with another type, even if the column is not used, and crashes on lists of
    fixed size 0. DuckDB's source API is internal and known for 2.0 only.
    """
    dataset = dataset.reading(retyped(dataset.events, _duckdb_type))
    if not duckdb.__version__.startswith("2.0."):
        return dataset
    try:
        from esformat.sql.source import EventSource
    except ImportError:  # a patch release may have moved them
        return dataset
    return EventSource(dataset)


def _duckdb_type(kind: pa.DataType) -> pa.DataType:
    return inner_types(kind, lambda leaf: pa.float32() if pa.types.is_float16(leaf) else leaf)


def _check(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Raise UsageError for anything but a single query."""
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise UsageError(f"expected one statement, not {len(statements)}")
    kind = statements[0].type.name
    if kind == "MULTI":  # such as PIVOT without values, for which DuckDB first creates a type
        raise UsageError(
            "DuckDB splits this into several statements",
            hint="list the values of a PIVOT, as in FROM (PIVOT clicks ON type IN ('buy', 'view') USING count(*))",
        )
    if kind not in _ASKING:
        raise UsageError(f"expected a query such as SELECT, not {kind}")
