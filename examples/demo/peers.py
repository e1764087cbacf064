"""The formats people use today, with the same events: JSON lines, Parquet, DuckDB.

Each is set up as its users would for point reads. Parquet: sorted, small row groups, packed timestamps, row groups
chosen by their statistics, a parsed footer in memory. DuckDB: its own file, sorted. `benchmarks/` compares more.
"""

from __future__ import annotations

import bisect
import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# Fastest median point read of sizes from 2,000 to 32,000 rows on the click stream, at 3 % more bytes than the largest.
PARQUET_GROUP_ROWS = 2_000
GZIP_LEVEL = 6  # the default of the gzip command
_COPY_CHUNK_BYTES = 1 << 20


def sort_events(table: pa.Table) -> pa.Table:
    """Sort by space, then time: the order in which point reads touch the smallest part of a file."""
    return table.sort_by([("space", "ascending"), ("timestamp", "ascending")])


def connect(database: Path | None = None) -> duckdb.DuckDBPyConnection:
    """Connect to a database file, or to one in memory. Never downloads an extension."""
    options: dict[str, str | bool | int | float | list[str]] = {"autoinstall_known_extensions": False}
    return duckdb.connect(str(database) if database else ":memory:", config=options)


class ParquetFile:
    """A sorted Parquet file; reads only the row groups whose statistics include the key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = pq.ParquetFile(path)
        groups = [self._file.metadata.row_group(at) for at in range(self._file.metadata.num_row_groups)]
        column = self._file.schema_arrow.get_field_index("space")
        self._lowest = [group.column(column).statistics.min for group in groups]
        self._highest = [group.column(column).statistics.max for group in groups]

    @staticmethod
    def write(table: pa.Table, path: Path, dictionary: Sequence[str]) -> None:
        """Sort `table` and write it, with dictionaries for columns with few values."""
        pq.write_table(
            sort_events(table),
            path,
            compression="zstd",
            row_group_size=PARQUET_GROUP_ROWS,
            use_dictionary=["space", *dictionary],
            column_encoding={"timestamp": "DELTA_BINARY_PACKED"},
        )

    def history(self, key: str) -> list[tuple[Any, ...]]:
        first, end = bisect.bisect_left(self._highest, key), bisect.bisect_right(self._lowest, key)
        rows = self._file.read_row_groups(list(range(first, end)), use_threads=False)
        rows = rows.filter(pc.equal(rows["space"], key))
        return list(zip(*(_plain(column).to_pylist() for column in rows.columns), strict=True))

    def with_value(self, index: str, value: object) -> pa.Table:
        return pq.read_table(self._path, filters=[(index, "=", value)])

    def read(self) -> pa.Table:
        return pq.read_table(self._path)

    def close(self) -> None:
        self._file.close()


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert timestamps to integers, like the other contestants: zoned datetimes cost more than the read itself."""
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


class DuckDBFile:
    """A DuckDB database file with the events in one sorted table."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        names = [row[0] for row in self._connection.execute("DESCRIBE events").fetchall()]
        columns = ", ".join(f"epoch_us({quoted(n)})" if n == "timestamp" else quoted(n) for n in names)
        self._history = f"SELECT {columns} FROM events WHERE space = ? ORDER BY timestamp"  # noqa: S608 - quoted names

    @staticmethod
    def write(table: pa.Table, path: Path) -> None:
        path.unlink(missing_ok=True)
        with connect(path) as connection:
            connection.register("arriving", table)
            connection.execute("CREATE TABLE events AS SELECT * FROM arriving ORDER BY space, timestamp")

    def history(self, key: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._history, [key]).fetchall()

    def with_value(self, index: str, value: object) -> pa.Table:
        query = f"SELECT * FROM events WHERE {quoted(index)} = ?"  # noqa: S608 - quoted name
        return self._connection.sql(query, params=[value]).to_arrow_table()

    def read(self) -> pa.Table:
        return self._connection.sql("SELECT * FROM events").to_arrow_table()

    def close(self) -> None:
        self._connection.close()


def write_json_lines(table: pa.Table, path: Path) -> None:
    """Write one JSON object per line; payloads that are JSON stay JSON, other bytes become base64."""
    with connect() as connection:
        connection.register("events", table)
        columns = ", ".join(_json_column(connection, field) for field in table.schema)
        connection.execute(f"COPY (SELECT {columns} FROM events) TO {_literal(path)} (FORMAT json)")  # noqa: S608 - quoted names


def _json_column(connection: duckdb.DuckDBPyConnection, field: pa.Field) -> str:
    name = quoted(field.name)
    if not (pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)):
        return name
    text = f"TRY(decode({name}))"
    odd = f"SELECT count(*) FROM events WHERE {name} IS NOT NULL AND NOT coalesce(json_valid({text}), false)"  # noqa: S608
    found = connection.execute(odd).fetchone()
    return f"{text}::JSON AS {name}" if found == (0,) else f"base64({name}) AS {name}"


def gzip_file(path: Path, packed: Path) -> None:
    """Compress the file at `path` like `gzip`."""
    with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=GZIP_LEVEL) as sink:
        while chunk := source.read(_COPY_CHUNK_BYTES):
            sink.write(chunk)


def quoted(name: str) -> str:
    """Quote a column name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _literal(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
