"""The interface of every contender, and code that several of them share.

A `Contender` writes the events and opens what it wrote. A `Reader` answers the questions of the works in the form that
its users would choose (tuples, events, an Arrow table). `rows` and `table` convert such an answer to the one form that
the checks compare; they run outside the timed region. Other modules choose the order of the measurements and verify the
answers.
"""

from __future__ import annotations

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

Row = tuple[int, bytes, str, str]
"""One event of a known space: timestamp in µs, data, type, country."""

Answer = Any
"""A reader's answer: a list of tuples or events, or an Arrow table. Only the same reader interprets it."""

COLUMNS = ("space", "timestamp", "data", "type", "country")
ROW_COLUMNS = COLUMNS[1:]
OBJECT_COLUMNS = COLUMNS[:3]
INDEXES = ("type", "country")

SCHEMA = pa.schema(
    [
        ("space", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("data", pa.binary()),
        ("type", pa.string()),
        ("country", pa.string()),
    ]
)

MAIN = "main"
"""The layout whose size and write rate are reported; some contenders have others that suit single works better."""


class Digest(NamedTuple):
    """The result of a scan over objects: proof that it read every timestamp and every payload."""

    timestamps: int  # all of them, XORed
    data_bytes: int


class Reader(Protocol):
    """An open file or database. A method is never called if the contender lacks its work."""

    def close(self) -> None:
        """Close everything; the reader is not used again."""

    def warm(self) -> None:
        """Read everything once, to fill caches as they would be after some use."""
        self.objects()

    def history(self, space: str) -> Answer:
        """Every event of one space, oldest first."""

    def latest(self, space: str, limit: int) -> Answer:
        """The newest `limit` events of one space, newest first."""

    def indexed(self, space: str, index: str, value: str) -> Answer:
        """The events of one space that have one index value, newest first."""

    def matching(self, index: str, value: str) -> Answer:
        """The events of the whole file that have one index value, every column, in any order."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Every event, every column, in file order, without a Python object per event."""

    def coded_batches(self) -> Iterator[pa.RecordBatch]:
        """Like `batches`, but text columns may be dictionary-coded."""

    def objects(self) -> Digest:
        """Create a Python object per event, with at least space, timestamp and data, and read the last two."""

    def rows(self, answer: Answer) -> list[Row]:
        """Convert the answer to a question about one space to rows."""

    def table(self, answer: Answer) -> pa.Table:
        """Convert the answer of `matching` to a table of `SCHEMA`."""


PLAIN_TEXT = {"R1-coded": "text columns come plain"}
OBJECTS_ONLY = {"R1-batch": "gives Python objects only", "R1-coded": "gives Python objects only"}


@dataclass(frozen=True)
class Contender(ABC):
    """A way to store events."""

    name: str
    distribution: str  # whose version is reported; "" for the standard library
    layouts: Mapping[str, str]  # layout -> what it is; always has MAIN
    best: Mapping[str, str] = field(default_factory=dict)  # work -> the layout that answers it best, if not MAIN
    lacks: Mapping[str, str] = field(default_factory=dict)  # work -> why this contender has no figure for it

    def version(self) -> str:
        """Name and version of what is measured, for the report."""
        return f"{self.distribution} {metadata.version(self.distribution)}"

    def fingerprint(self) -> str:
        """A digest of the version and code that determine the written bytes; a cached file with another is not used."""
        sources = [Path(file) for kind in type(self).__mro__ if (file := source_of(kind)) is not None]
        return fingerprint_of(self.version(), *sources)

    @abstractmethod
    def write(self, table: pa.Table, target: Path, layout: str) -> None:
        """Write the unsorted `table` to the empty directory `target`; it is finished and closed on return."""

    @abstractmethod
    def open(self, target: Path, layout: str) -> Reader:
        """Open what `write` left in `target`."""


def source_of(kind: type) -> str | None:
    """The source file of a class, if it belongs to this package; else None."""
    module = sys.modules[kind.__module__]
    return module.__file__ if module.__name__.startswith(__name__.partition(".")[0]) else None


def fingerprint_of(version: str, *sources: Path) -> str:
    """A short digest of a version and the content of source files."""
    digest = hashlib.sha256(version.encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def in_order(table: pa.Table) -> pa.Table:
    """Sort by space, then time, then arrival, for stores that do not sort their input."""
    order = pc.sort_indices(table, [("space", "ascending"), ("timestamp", "ascending")])
    return table.take(order)


def newest_first(table: pa.Table) -> pa.Table:
    """Reverse the rows of an answer."""
    return table.take(pa.array(range(table.num_rows - 1, -1, -1), pa.int64()))


def digest_of(rows: Iterable[Sequence[Any]]) -> Digest:
    """Consume tuples of space, timestamp and data, and digest the last two."""
    timestamps = data_bytes = 0
    for _, timestamp, data in rows:
        timestamps ^= timestamp
        data_bytes += len(data)
    return Digest(timestamps, data_bytes)


def canonical(table: pa.Table) -> pa.Table:
    """Convert columns of any of Arrow's text and binary types, in any order, to `SCHEMA` or the part present."""
    return table.select([name for name in COLUMNS if name in table.column_names]).cast(
        pa.schema([field for field in SCHEMA if field.name in table.column_names])
    )


class TupleReader(Reader):
    """A reader whose answers are lists of tuples, like those of DB-API cursors."""

    def rows(self, answer: list[Row]) -> list[Row]:
        return answer

    def table(self, answer: list[tuple[Any, ...]]) -> pa.Table:
        columns = list(zip(*answer, strict=True)) or [()] * len(COLUMNS)
        return pa.table(dict(zip(COLUMNS, columns, strict=True)), schema=SCHEMA)


class ArrowReader(Reader):
    """A reader whose answers are Arrow tables, and whose scans over objects convert batches."""

    def rows(self, answer: pa.Table) -> list[Row]:
        table = canonical(answer)
        table = table.set_column(0, "timestamp", table["timestamp"].cast(pa.int64()))
        return list(zip(*(table[name].to_pylist() for name in ROW_COLUMNS), strict=True))

    def table(self, answer: pa.Table) -> pa.Table:
        return canonical(answer)

    def object_batches(self) -> Iterator[pa.RecordBatch]:
        """Every event, with only `OBJECT_COLUMNS`."""

    def objects(self) -> Digest:
        """Convert `object_batches` to one tuple per event: the fastest way from Arrow to Python objects."""
        return digest_of(chain.from_iterable(map(_tuples, self.object_batches())))


def _tuples(batch: pa.RecordBatch) -> Iterator[tuple[str, int, bytes]]:
    spaces, timestamps, payloads = batch.columns
    return zip(spaces.to_pylist(), timestamps.cast(pa.int64()).to_pylist(), payloads.to_pylist(), strict=True)
