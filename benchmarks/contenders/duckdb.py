"""DuckDB on its own database file.

The events are inserted with `ORDER BY space, timestamp`, so that zone maps prune questions about one space and rows
come back in order without sorting. `main` has DuckDB's default row groups of 122,880 rows and its own choice of
compression; questions about one space go to a database with row groups of 16,384 rows, opened with one thread (both
are faster there, at 1.2 × the bytes). It uses one connection; statements are parsed once. Tuples come from `fetchall`,
which is faster than Arrow for small answers; scans go to Arrow through the relational API, which does not copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.contenders.protocol import COLUMNS, MAIN, PLAIN_TEXT, ArrowReader, Contender, Row, TupleReader

FILE = "events.duckdb"
ATTACH_OPTIONS = {MAIN: "", "points": "(ROW_GROUP_SIZE 16384)", "smallest": ""}
DDL = (
    "CREATE TABLE file.events (space VARCHAR, timestamp TIMESTAMPTZ, data BLOB {compression}, type VARCHAR,"
    " country VARCHAR)"
)
ROWS = "SELECT epoch_us(timestamp), data, type, country FROM events WHERE space = $1"
BATCH_ROWS = 122_880


class DuckDBReader(ArrowReader):
    """One connection. Small answers are tuples; that of `matching` is an Arrow table."""

    def __init__(self, path: Path, threads: int | None) -> None:
        self._connection = duckdb.connect(path, read_only=True, config={"threads": threads} if threads else {})
        self._statements: dict[str, duckdb.Statement] = {}

    def close(self) -> None:
        self._connection.close()

    def _fetch(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        if (statement := self._statements.get(sql)) is None:
            statement = self._statements[sql] = self._connection.extract_statements(sql)[0]
        return self._connection.execute(statement, parameters).fetchall()

    def history(self, space: str) -> list[Row]:
        return self._fetch(ROWS, space)

    def latest(self, space: str, limit: int) -> list[Row]:
        return self._fetch(f"{ROWS} ORDER BY timestamp DESC LIMIT $2", space, limit)

    def indexed(self, space: str, index: str, value: str) -> list[Row]:
        return self._fetch(f"{ROWS} AND {index} = $2", space, value)[::-1]

    def matching(self, index: str, value: str) -> pa.Table:
        query = f"SELECT {', '.join(COLUMNS)} FROM events WHERE {index} = $1"
        return self._connection.sql(query, params=[value]).to_arrow_table()

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._connection.sql(f"SELECT {', '.join(COLUMNS)} FROM events").to_arrow_reader(BATCH_ROWS))

    def object_batches(self) -> Iterator[pa.RecordBatch]:
        query = "SELECT space, epoch_us(timestamp), data FROM events"
        return iter(self._connection.sql(query).to_arrow_reader(65_536))

    rows = TupleReader.rows


class DuckDB(Contender):
    """See the module."""

    def write(self, table: pa.Table, target: Path, layout: str) -> None:
        connection = duckdb.connect()
        connection.execute(f"ATTACH '{target / FILE}' AS file {ATTACH_OPTIONS[layout]}")
        connection.execute(DDL.format(compression="USING COMPRESSION zstd" if layout == "smallest" else ""))
        connection.register("arrivals", table)
        columns = ", ".join(COLUMNS)
        connection.execute(f"INSERT INTO file.events SELECT {columns} FROM arrivals ORDER BY space, timestamp")
        connection.execute("DETACH file")
        connection.close()

    def open(self, target: Path, layout: str) -> DuckDBReader:
        return DuckDBReader(target / FILE, threads=1 if layout == "points" else None)


CONTENDER = DuckDB(
    name="duckdb",
    distribution="duckdb",
    layouts={
        MAIN: "row groups of 122,880",
        "points": "row groups of 16,384, one thread",
        "smallest": "main, with payloads USING COMPRESSION zstd",
    },
    best={"R2": "points", "R3": "points", "R3w": "points", "R4": "points", "open": "points"},
    lacks=PLAIN_TEXT,
)
