"""The works of a query engine: the same SQL, run by DuckDB on each kind of file.

Each file is named as users name it: `FROM 'x.esdb'`, after `esformat.duckdb.register`; `FROM 'x.parquet'`, with
DuckDB's metadata cache on; and for comparison, the table in DuckDB's own database. Each has one connection, statements
are parsed once, and answers are fetched as tuples. The figures are the whole time that a user waits, including DuckDB's
own work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import esformat
import esformat.duckdb
from benchmarks.contenders import duckdb as duckdb_file
from benchmarks.contenders import esformat as esformat_file
from benchmarks.contenders import parquet as parquet_file
from benchmarks.dataset import FILE_INDEX, Dataset
from benchmarks.measure import Figure, WrongAnswerError, measure_bulk, measure_points
from benchmarks.session import Session

WARMUP_QUESTIONS = 200
Rows = list[tuple[Any, ...]]

POINT = "SELECT type, count(*) FROM events WHERE space = $1 GROUP BY 1 ORDER BY 1"
INDEX = "SELECT country, count(*), max(octet_length(data)) FROM events WHERE type = $1 GROUP BY 1 ORDER BY 1"
FULL = "SELECT type, count(*), epoch_us(max(timestamp)) FROM events GROUP BY 1 ORDER BY 1"


class Engine:
    """A DuckDB connection that reads one file."""

    def __init__(self, connect: Callable[[Path, duckdb.DuckDBPyConnection], tuple[str, Any]], target: Path) -> None:
        """connect: returns the name for FROM, and an object to close at the end or None."""
        self._connection = duckdb.connect()
        self._name, self._kept = connect(target, self._connection)
        self._statements: dict[str, Any] = {}

    def ask(self, sql: str, *parameters: Any) -> Rows:
        """Run SQL over `events`, and return its rows."""
        if (statement := self._statements.get(sql)) is None:
            text = sql.replace("FROM events", f"FROM {self._name}")
            statement = self._statements[sql] = self._connection.extract_statements(text)[0]
        return self._connection.execute(statement, parameters).fetchall()

    def close(self) -> None:
        """Close the connection and the file."""
        self._connection.close()
        if self._kept is not None:
            self._kept.close()


def _over_esformat(target: Path, connection: duckdb.DuckDBPyConnection) -> tuple[str, esformat.duckdb.Files]:
    name = str(target / esformat_file.FILE)
    return f"'{name}'", esformat.duckdb.register(connection, name)


def _over_parquet(target: Path, connection: duckdb.DuckDBPyConnection) -> tuple[str, None]:
    connection.execute("SET parquet_metadata_cache = true")
    return f"'{target / parquet_file.FILE}'", None


def _over_duckdb(target: Path, connection: duckdb.DuckDBPyConnection) -> tuple[str, None]:
    connection.execute(f"ATTACH '{target / duckdb_file.FILE}' AS file (READ_ONLY)")
    return "file.events", None


ENGINES = {"esformat": _over_esformat, "parquet": _over_parquet, "duckdb": _over_duckdb}
BY_SQL = "by segment.sql"
"""Name of the detail of esformat's figure, in the same unit, for the same SQL through `Segment.sql`."""


class Door:
    """An open segment, queried with its method `sql`."""

    def __init__(self, target: Path) -> None:
        self._segment = esformat.open(target / esformat_file.FILE)

    def ask(self, sql: str, *parameters: Any) -> Rows:
        """Run SQL, and return its rows."""
        return self._segment.sql(sql, parameters).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._segment.close()


@dataclass(frozen=True)
class EngineWork:
    """One question that DuckDB answers from each kind of file."""

    id: str
    sql: str
    expected: Callable[[pa.Table, Any], Rows]
    argument: str | None = None  # the same for each run; None: a different space each time

    def __call__(self, session: Session) -> dict[str, Figure]:
        able, figures = session.willing(self.id, tuple(ENGINES))
        places = {
            name: session.built(contender, session.layout(contender, self.id)) for name, contender in able.items()
        }
        engines: dict[str, Engine | Door] = {name: Engine(ENGINES[name], place) for name, place in places.items()}
        if "esformat" in places:
            engines[BY_SQL] = Door(places["esformat"])
        try:
            measured = self._spaces(session, engines) if self.id == "Q-point" else self._whole(session, engines)
        finally:
            for engine in engines.values():
                engine.close()
        if BY_SQL in measured and not (own := measured.pop(BY_SQL)).missing:
            measured["esformat"].detail = {BY_SQL: round(own.median, 3)}
        return figures | measured

    def _spaces(self, session: Session, engines: Mapping[str, Engine | Door]) -> dict[str, Figure]:
        dataset = session.dataset
        questions = dataset.uniform(WARMUP_QUESTIONS, session.questions)

        def check(_: str, space: str, rows: Rows) -> None:
            _demand(rows, self.expected(_history(dataset, space), space), space)

        asked = {name: partial(engine.ask, self.sql) for name, engine in engines.items()}
        measure_points(asked, questions.warmup, check)
        return measure_points(asked, questions.counted, check)

    def _whole(self, session: Session, engines: Mapping[str, Engine | Door]) -> dict[str, Figure]:
        expected = self.expected(session.dataset.table, self.argument)
        arguments = () if self.argument is None else (self.argument,)

        def check(_: str, rows: Rows) -> None:
            _demand(rows, expected, self.id)

        tasks = {name: partial(engine.ask, self.sql, *arguments) for name, engine in engines.items()}
        measure_bulk(tasks, check, 1)  # warm-up
        figures = measure_bulk(tasks, check, session.repeats)
        for figure in figures.values():
            figure.samples = [seconds * 1000 for seconds in figure.samples]
        return figures


def _demand(found: Rows, expected: Rows, what: str) -> None:
    if found != expected:
        raise WrongAnswerError(f"{what}: {found[:2]} instead of {expected[:2]}")


def _history(dataset: Dataset, space: str) -> pa.Table:
    return pa.table({"type": [row[2] for row in dataset.history(space)]})


def _grouped(table: pa.Table, key: str, *aggregates: tuple[Any, ...]) -> Rows:
    """Group by a key, and return its values in ascending order with the aggregates of their events."""
    found = table.group_by(key).aggregate([([], "count_all"), *aggregates]).sort_by(key)
    names = [key, "count_all", *(f"{column}_{how}" for column, how in aggregates)]
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def _types(table: pa.Table, _: Any) -> Rows:
    return _grouped(table, "type")


def _countries(table: pa.Table, kind: str) -> Rows:
    matching = table.filter(pc.equal(table["type"], kind))
    return _grouped(matching.append_column("length", pc.binary_length(matching["data"])), "country", ("length", "max"))


def _latest(table: pa.Table, _: Any) -> Rows:
    return _grouped(table.set_column(1, "timestamp", table["timestamp"].cast(pa.int64())), "type", ("timestamp", "max"))


point = EngineWork("Q-point", POINT, _types)
index = EngineWork("Q-index", INDEX, _countries, FILE_INDEX[1])
full = EngineWork("Q-full", FULL, _latest)
