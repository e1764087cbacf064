"""esformat itself: indexes on type and country; opened with a cache that fits all data of the questions, like RocksDB.

Answers about one space are lists of `Event`, which is the stricter form: peers may answer with Arrow tables or tuples.
The answer to a question about the whole file is an Arrow table. Its file depends on the code that wrote it, so a
cached file is reused only by exactly the same package.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import esformat
from benchmarks.contenders.protocol import (
    INDEXES,
    MAIN,
    PLAIN_TEXT,
    Contender,
    Digest,
    Reader,
    Row,
    canonical,
    fingerprint_of,
)

FILE = "events.esdb"
UNCACHED = "uncached"
WHOLE = "whole"  # a file without templates, reported in addition to the main layout
esformat.set_cache_bytes(512 << 20)  # like RocksDB's here: enough for all data of the questions


class EsformatReader(Reader):
    """One segment."""

    def __init__(self, segment: esformat.Segment) -> None:
        self._segment = segment

    def close(self) -> None:
        self._segment.close()

    def history(self, space: str) -> list[esformat.Event]:
        return list(self._segment.find(space).scan())

    def latest(self, space: str, limit: int) -> list[esformat.Event]:
        return list(self._segment.find(space).scan(reverse=True, limit=limit))

    def indexed(self, space: str, index: str, value: str) -> list[esformat.Event]:
        return list(self._segment.find(space).scan_index(index, value, reverse=True))

    def matching(self, index: str, value: str) -> pa.Table:
        return self._segment.scan_index(index, value).to_table()

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._segment.scan().batches())

    def objects(self) -> Digest:
        timestamps = data_bytes = 0
        for event in self._segment.scan():
            timestamps ^= event.timestamp
            data_bytes += len(event.data)
        return Digest(timestamps, data_bytes)

    def untouched_objects(self) -> int:
        """Create an object for every event, and count them. Measured for esformat only."""
        return sum(1 for _ in self._segment.scan())

    def objects_by_field(self) -> tuple[int, Row]:
        """The same, reading every field of each event; also returns the last one. Measured for esformat only."""
        count, fields = 0, None
        for event in self._segment.scan():
            fields = event.space, event.grouping, event.timestamp, event.data, event.indexes
            count += 1
        assert fields is not None
        _, _, timestamp, data, indexes = fields
        return count, (timestamp, data, indexes["type"], indexes["country"])

    def rows(self, answer: list[esformat.Event]) -> list[Row]:
        return [(event.timestamp, event.data, event.indexes["type"], event.indexes["country"]) for event in answer]

    def table(self, answer: pa.Table) -> pa.Table:
        return canonical(answer)


class Esformat(Contender):
    """See the module."""

    def version(self) -> str:
        return f"esformat {esformat.__version__}"

    def fingerprint(self) -> str:
        sources = sorted(Path(esformat.__file__).parent.rglob("*.py"))
        return fingerprint_of(super().fingerprint(), *sources)

    def write(self, table: pa.Table, target: Path, layout: str) -> None:
        templates = False if layout == WHOLE else None
        with esformat.create(target / FILE, indexes=list(INDEXES), templates=templates) as writer:
            writer.add_table(table)

    def open(self, target: Path, layout: str) -> EsformatReader:
        if layout == UNCACHED:
            return EsformatReader(esformat.open(target / FILE, cache_bytes=0))
        return EsformatReader(esformat.open(target / FILE))

    def open_stored(self, filesystem: Any, path: str) -> EsformatReader:
        """Open a file in an object store."""
        return EsformatReader(esformat.open((filesystem, path)))

    def cold_history(self, target: Path, space: str) -> tuple[int, int, list[Row]]:
        """Open the file and answer one history: number of reads, bytes read, and the answer. For esformat only."""
        source = esformat.CountingSource(esformat.FileSource(target / FILE))
        reader = EsformatReader(esformat.open(source))
        rows = reader.rows(reader.history(space))
        return source.reads, source.bytes_read, rows


CONTENDER = Esformat(
    name="esformat",
    distribution="esformat",
    layouts={MAIN: "cache of 512 MiB", UNCACHED: "caches off", WHOLE: "with payloads whole"},
    best={"R2-uncached": UNCACHED},
    lacks=PLAIN_TEXT,
)
