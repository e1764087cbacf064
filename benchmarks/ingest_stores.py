"""The stores of `benchmarks.ingest`: in each, a batch survives a power cut once `append` has returned.

Each is used as its users would use it, and gets batches in the form that suits it best, prepared before the clock
starts. Stores with a single writer, which are all but the aggregator, get waiting batches in one transaction (`Group`):
without this group commit they would sync once per batch.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

PARTITIONS = 4

_TIMES = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema([("space", pa.string()), ("timestamp", _TIMES), ("data", pa.binary())])


@dataclass(frozen=True)
class Batch:
    """A batch of events in every form that a store accepts."""

    spaces: tuple[str, ...]
    timestamps: tuple[int, ...]
    data: tuple[bytes, ...]
    arrow: pa.RecordBatch
    made: Iterator[pa.RecordBatch] = field(default_factory=lambda: iter(()))

    def stamped(self) -> pa.RecordBatch:
        """Return the batch with new timestamps, a microsecond apart: a copy prepared before the clock started, like the
        keys of other stores; when these are used up, one that starts at the current time.
        """
        found = next(self.made, None)
        return self.stamped_from(time.time_ns() // 1000) if found is None else found

    def stamped_from(self, first: int) -> pa.RecordBatch:
        """Return the batch with consecutive timestamps from `first` on."""
        rows = len(self.timestamps)
        times = pa.Array.from_buffers(_TIMES, rows, [None, pa.py_buffer(np.arange(first, first + rows))])
        spaces, data = self.arrow.column(0), self.arrow.column(2)
        return pa.RecordBatch.from_arrays([spaces, times, data], schema=_SCHEMA)

    @property
    def rows(self) -> list[tuple[str, int, bytes]]:
        """The events as tuples."""
        return list(zip(self.spaces, self.timestamps, self.data, strict=True))


class Store(Protocol):
    """A store under test."""

    def prepare(self, batch: Batch) -> Any:
        """Convert a batch to the form that the store accepts. Not timed."""

    def append(self, prepared: Any, appender: int) -> None:
        """Store a batch durably."""

    def finish(self) -> None:
        """Bring everything into the store's final form. Timed."""

    def close(self) -> None:
        """Close all files."""

    def check(self, sent: Counter[str], partitions: Counter[int]) -> None:
        """Raise AssertionError if events are missing; the store was reopened before. Not timed.

        sent: number of events by space. partitions: number of events by partition.
        """


class Group:
    """A thread that writes all waiting items in one transaction."""

    def __init__(self, write: Callable[[list[Any]], None]) -> None:
        self._write = write
        self._queue: SimpleQueue[tuple[Any, Event] | None] = SimpleQueue()
        self._thread = Thread(target=self._run)
        self._failure: BaseException | None = None
        self._thread.start()

    def append(self, item: Any) -> None:
        """Queue an item, and return when it is written."""
        done = Event()
        self._queue.put((item, done))
        done.wait()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            waiting = [first]
            while not self._queue.empty() and len(waiting) < 64:
                item = self._queue.get()
                if item is None:
                    self._queue.put(None)
                    break
                waiting.append(item)
            try:
                if self._failure is None:
                    self._write([item for item, _ in waiting])
            except BaseException as error:  # noqa: BLE001 - raised in `append`
                self._failure = error
            for _, done in waiting:
                done.set()

    def close(self) -> None:
        """Stop the thread after everything is written."""
        self._queue.put(None)
        self._thread.join()


class Aggregator:
    """The aggregator, including concurrent sealing and retention."""

    SEALING = "thread"

    def __init__(self, path: Path, retention_bytes: int | None) -> None:
        import aggregator

        self._limit = retention_bytes
        self._overloaded = aggregator.OverloadedError
        self.catalog = aggregator.open(path, sealing=self.SEALING)
        if "events" in self.catalog.topics():
            self.topic = self.catalog.topic("events")
        else:
            schema = pa.schema([pa.field("data", pa.binary(), nullable=False)])
            self.topic = self.catalog.create_topic("events", schema, retention={"bytes": retention_bytes})
        self.refused = 0

    def prepare(self, batch: Batch) -> Any:
        return batch

    def append(self, prepared: Any, appender: int) -> None:
        while True:
            try:
                self.topic.append(prepared.stamped(), partition=str(appender % PARTITIONS))
                return
            except self._overloaded as error:
                self.refused += 1
                time.sleep(error.retry_after_s)

    def finish(self) -> None:
        self.catalog.seal()

    def close(self) -> None:
        self.catalog.close()

    def check(self, sent: Counter[str], partitions: Counter[int]) -> None:
        for number, count in partitions.items():
            indexes = []
            for batch in self.topic.scan(partition=str(number), columns=["record_index"]).batches():
                found = batch.column(0).to_numpy()
                indexes.append((int(found.min()), int(found.max()), len(found)))
            first, last = min(low for low, _, _ in indexes), max(high for _, high, _ in indexes)
            assert last == count - 1, (number, last, count)
            assert sum(rows for _, _, rows in indexes) == last - first + 1  # all but those that retention removed
            assert first == 0 or self._limit is not None
        if self._limit is None:
            for space in list(sent)[:20]:
                assert self.topic.scan(space=space).count() == sent[space]


class AggregatorWithProcess(Aggregator):
    """The same, with a separate process that writes segments."""

    SEALING = "process"


class SQLite:
    """A table with an index by space and time; WAL, synchronous=FULL."""

    def __init__(self, path: Path, retention_bytes: int | None) -> None:
        path.mkdir(exist_ok=True)
        self._db = sqlite3.connect(path / "events.sqlite", check_same_thread=False, isolation_level=None)
        for line in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-262144", "wal_autocheckpoint=16000"):
            self._db.execute(f"PRAGMA {line}")
        self._db.execute("CREATE TABLE IF NOT EXISTS events (space TEXT, timestamp INTEGER, data BLOB)")
        self._db.execute("CREATE INDEX IF NOT EXISTS by_space ON events (space, timestamp)")
        self._group = Group(self._write)

    def prepare(self, batch: Batch) -> Any:
        return batch

    def _write(self, batches: list[Any]) -> None:
        self._db.execute("BEGIN")
        for batch in batches:
            now = time.time_ns() // 1000
            rows = zip(batch.spaces, range(now, now + len(batch.spaces)), batch.data, strict=True)
            self._db.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def append(self, prepared: Any, appender: int) -> None:
        self._group.append(prepared)

    def finish(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self._group.close()
        self._db.close()

    def check(self, sent: Counter[str], partitions: Counter[int]) -> None:
        assert dict(self._db.execute("SELECT space, count(*) FROM events GROUP BY 1")) == dict(sent)


def _suffixes(prepared: tuple[list[bytes], list[bytes]], number: int) -> list[tuple[bytes, bytes]]:
    """Return the items of a batch; the batch number makes keys unique and, within a space, ordered by arrival."""
    keys, values = prepared
    head = struct.pack(">Q", number)
    return [(key[:16] + head + key[16:], value) for key, value in zip(keys, values, strict=True)]


class _KeyValue(ABC):
    """A store of keys (16 bytes of space, batch number, position in the batch, timestamp) and payloads as values."""

    def __init__(self) -> None:
        self._number = time.time_ns()
        self._group = Group(self._write)

    def prepare(self, batch: Batch) -> Any:
        keys = [
            space.encode().ljust(16, b"\0")[:16] + struct.pack(">Iq", place, timestamp)
            for place, (space, timestamp, _) in enumerate(batch.rows)
        ]
        return keys, list(batch.data)

    def append(self, prepared: Any, appender: int) -> None:
        self._group.append(prepared)

    def _write(self, batches: list[Any]) -> None:
        items = []
        for prepared in batches:
            self._number += 1
            items += _suffixes(prepared, self._number)
        self._put(items)

    @abstractmethod
    def _put(self, items: list[tuple[bytes, bytes]]) -> None: ...


class LMDB(_KeyValue):
    """Default flags: every commit is synced."""

    def __init__(self, path: Path, retention_bytes: int | None) -> None:
        import lmdb

        self._env = lmdb.open(str(path), map_size=64 << 30)
        super().__init__()

    def _put(self, items: list[tuple[bytes, bytes]]) -> None:
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(sorted(items), dupdata=False)

    def finish(self) -> None:
        self._env.sync(True)

    def close(self) -> None:
        self._group.close()
        self._env.close()

    def check(self, sent: Counter[str], partitions: Counter[int]) -> None:
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            assert Counter(key[:16].rstrip(b"\0").decode() for key in cursor.iternext(values=False)) == sent


class RocksDB(_KeyValue):
    """Synced write batches; zstd, 64 MiB memtables, two background threads."""

    def __init__(self, path: Path, retention_bytes: int | None) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(rocksdict.DBCompressionType.zstd())
        options.increase_parallelism(2)
        options.set_write_buffer_size(64 << 20)
        options.set_max_write_buffer_number(4)
        self._rocksdict = rocksdict
        self._db = rocksdict.Rdict(str(path), options)
        self._sync = rocksdict.WriteOptions()
        self._sync.sync = True
        super().__init__()

    def _put(self, items: list[tuple[bytes, bytes]]) -> None:
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        for key, value in items:
            batch.put(key, value)
        self._db.write(batch, self._sync)

    def finish(self) -> None:
        self._db.flush()

    def close(self) -> None:
        self._group.close()
        self._db.close()

    def check(self, sent: Counter[str], partitions: Counter[int]) -> None:
        found = Counter(key[:16].rstrip(b"\0").decode() for key in self._db.keys())  # noqa: SIM118 - not a dictionary
        assert found == sent


class DuckDB:
    """A table without an index, which would make it several times slower; batches are inserted as Arrow tables."""

    def __init__(self, path: Path, retention_bytes: int | None) -> None:
        import duckdb

        path.mkdir(exist_ok=True)
        self._db = duckdb.connect(str(path / "events.duckdb"))
        self._db.execute("SET checkpoint_threshold = '256MB'")
        self._db.execute("CREATE TABLE IF NOT EXISTS events (space VARCHAR, timestamp TIMESTAMPTZ, data BLOB)")
        self._group = Group(self._write)

    def prepare(self, batch: Batch) -> Any:
        return batch

    def _write(self, batches: list[Any]) -> None:
        self._db.register("waiting", pa.Table.from_batches([batch.stamped() for batch in batches]))
        self._db.execute("INSERT INTO events SELECT space, timestamp, data FROM waiting")
        self._db.unregister("waiting")

    def append(self, prepared: Any, appender: int) -> None:
        self._group.append(prepared)

    def finish(self) -> None:
        self._db.execute("CHECKPOINT")

    def close(self) -> None:
        self._group.close()
        self._db.close()

    def check(self, sent: Counter[str], partitions: Counter[int]) -> None:
        assert dict(self._db.execute("SELECT space, count(*) FROM events GROUP BY 1").fetchall()) == dict(sent)


STORES: dict[str, Callable[[Path, int | None], Store]] = {
    "aggregator": Aggregator, "aggregator-process": AggregatorWithProcess, "sqlite": SQLite, "lmdb": LMDB,
    "rocksdb": RocksDB, "duckdb": DuckDB,
}  # fmt: skip
