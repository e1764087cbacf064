"""The works of a query engine: one and the same SQL, put to DuckDB over each file.

Each is named as its users name it: `FROM 'x.esdb'`, once `esformat.duckdb.register` was called; `FROM 'x.parquet'`,
with DuckDB's cache of metadata on; and the table in DuckDB's own database, to compare with. One connection each,
statements parsed once; answers are fetched as tuples. What is measured is what a user waits for, DuckDB's own work
included.
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
    """A connection that knows a file."""

    def __init__(self, connect: Callable[[Path, duckdb.DuckDBPyConnection], tuple[str, Any]], target: Path) -> None:
        """connect: gives what FROM takes, and what is to be closed at the end or None."""
        self._connection = duckdb.connect()
        self._name, self._kept = connect(target, self._connection)
        self._statements: dict[str, Any] = {}

    def ask(self, sql: str, *parameters: Any) -> Rows:
        """The rows that answer a question about `events`."""
        if (statement := self._statements.get(sql)) is None:
            text = sql.replace("FROM events", f"FROM {self._name}")
            statement = self._statements[sql] = self._connection.extract_statements(text)[0]
        return self._connection.execute(statement, parameters).fetchall()

    def close(self) -> None:
        """Let go of the file."""
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
"""The same question put to esformat's own door to DuckDB, told beside its figure, in the same unit."""


class Door:
    """An open segment, asked by its `sql`."""

    def __init__(self, target: Path) -> None:
        self._segment = esformat.open(target / esformat_file.FILE)

    def ask(self, sql: str, *parameters: Any) -> Rows:
        """The rows that answer a question."""
        return self._segment.sql(sql, parameters).fetchall()

    def close(self) -> None:
        """Let go of the file."""
        self._segment.close()


@dataclass(frozen=True)
class EngineWork:
    """One question, put to DuckDB over every file that it reads."""

    id: str
    sql: str
    expected: Callable[[pa.Table, Any], Rows]
    argument: str | None = None  # of the question, the same each time; None: a space, another each time

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
    """Rows of a key, ascending, and what its events come to."""
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
