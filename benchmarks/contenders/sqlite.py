"""SQLite through the standard library.

A rowid table, filled in order of space and time, with indexes on (space, timestamp), (type, space, timestamp) and
(country, space, timestamp), created after the rows, when sorting is cheapest. Pages of 16 KiB are faster than 4 KiB. A
WITHOUT ROWID table with the key (space, timestamp, sequence) was tried: histories are 15 % faster, index questions and
writing 10-20 % slower. It is written in one transaction without journal or syncing (the harness syncs the finished
file), and read memory-mapped, read-only and immutable; the module caches prepared statements.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.contenders.protocol import (
    COLUMNS,
    INDEXES,
    MAIN,
    OBJECTS_ONLY,
    SCHEMA,
    Contender,
    Digest,
    Row,
    TupleReader,
    digest_of,
    in_order,
)

FILE = "events.sqlite"
WRITING = (
    "page_size = 16384",
    "journal_mode = OFF",
    "synchronous = OFF",
    "locking_mode = EXCLUSIVE",
    "cache_size = -524288",
    "temp_store = MEMORY",
    "threads = 2",
)
READING = ("mmap_size = 17179869184", "cache_size = -262144")
ROWS = "SELECT timestamp, data, type, country FROM events WHERE space = ?"
CHUNK_ROWS = 65_536


class SQLiteReader(TupleReader):
    """One connection."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        for pragma in READING:
            self._connection.execute(f"PRAGMA {pragma}").fetchall()

    def close(self) -> None:
        self._connection.close()

    def history(self, space: str) -> list[Row]:
        return self._connection.execute(f"{ROWS} ORDER BY timestamp", (space,)).fetchall()

    def latest(self, space: str, limit: int) -> list[Row]:
        return self._connection.execute(f"{ROWS} ORDER BY timestamp DESC LIMIT ?", (space, limit)).fetchall()

    def indexed(self, space: str, index: str, value: str) -> list[Row]:
        query = f"{ROWS} AND {index} = ? ORDER BY timestamp DESC"
        return self._connection.execute(query, (space, value)).fetchall()

    def matching(self, index: str, value: str) -> list[tuple[Any, ...]]:
        query = f"SELECT {', '.join(COLUMNS)} FROM events WHERE {index} = ?"
        return self._connection.execute(query, (value,)).fetchall()

    def objects(self) -> Digest:
        return digest_of(self._connection.execute("SELECT space, timestamp, data FROM events"))


class SQLite(Contender):
    """See the module."""

    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"

    def write(self, table: pa.Table, target: Path, layout: str) -> None:
        connection = sqlite3.connect(target / FILE, isolation_level=None)
        for pragma in WRITING:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute("BEGIN")
        connection.execute(
            "CREATE TABLE events (space TEXT, timestamp INTEGER, data BLOB, type TEXT, country TEXT) STRICT"
        )
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", tuples(in_order(table)))
        connection.execute("CREATE INDEX by_space ON events (space, timestamp)")
        for index in INDEXES:
            connection.execute(f"CREATE INDEX by_{index} ON events ({index}, space, timestamp)")
        connection.execute("COMMIT")
        connection.close()

    def open(self, target: Path, layout: str) -> SQLiteReader:
        return SQLiteReader(target / FILE)


def tuples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    timestamps = table["timestamp"].cast(pa.int64())
    table = table.set_column(SCHEMA.get_field_index("timestamp"), "timestamp", timestamps).select(COLUMNS)
    for batch in table.to_batches(CHUNK_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


CONTENDER = SQLite(
    name="sqlite",
    distribution="",
    layouts={MAIN: "rowid table, three indexes, pages of 16 KiB"},
    lacks=OBJECTS_ONLY,
)
