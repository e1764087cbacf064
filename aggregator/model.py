"""Topics, partitions, segments and receipts as frozen values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from aggregator.policy import Retention, Roll
from esformat.parts import EventSchema, html_facts

RECORD_INDEX = "record_index"
"""The column of a segment that holds each event's record index."""
PARTITION = "partition"
"""An extra column that a scan can return: the name of an event's partition."""
DEFAULT_PARTITION = "0"
STREAMS_TOPIC = "logs"
"""The topic that streams are written to by default."""
RESERVED_COLUMNS = (RECORD_INDEX, PARTITION)
UNPACKED = 4
"""Estimated size of events in memory, as a multiple of their size in a segment."""
LAST = 2**63 - 1
"""The largest possible timestamp and record index."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as stored in the manifest. `keys`: "text" or "binary".

    deleted: only its number and those of its partitions are kept, so that they are never reused; it has no name.
    """

    number: int
    name: str
    keys: str
    indexes: tuple[str, ...]
    roll: Roll
    retention: Retention
    created_us: int
    deleted: bool = False

    def as_deleted(self) -> TopicInfo:
        """The entry that remains after the topic is deleted."""
        return TopicInfo(self.number, "", self.keys, (), Roll(), Retention(), self.created_us, deleted=True)


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema of a topic. Events whose schemas have the same `family` are stored in the same segments.

    magnitudes: those of columns, by name, that are not 0: see `common_type`.
    """

    number: int
    topic: int
    family: int
    schema: EventSchema
    magnitudes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition of a topic. Events below `sealed_index` are in segments, unless retention has removed them.

    reserved_index: the end of the record indexes that may be assigned before the log is synced; 0: none may.
    holes: record indexes [first, end) that were skipped after crashes, in order: no event has them, or ever will.
    """

    number: int
    topic: int
    name: str
    sealed_index: int
    reserved_index: int = 0
    holes: tuple[tuple[int, int], ...] = ()


class SegmentInfo(NamedTuple):
    """A sealed segment. Spans include both ends; keys are bytes; times are µs; `checksum`: xxh3-64 of the file.

    signature: of its spaces, see `segments.signature`; empty: it may contain any space within its span.
    min_ahead, max_ahead: minimum and maximum of an event's record index minus its row number in the file.
    """

    number: int
    partition: int
    schema: int
    first_index: int
    last_index: int
    min_timestamp: int
    max_timestamp: int
    min_space: bytes
    max_space: bytes
    rows: int
    size_bytes: int
    checksum: int
    level: int
    created_us: int
    signature: bytes = b""
    min_ahead: int | None = None
    max_ahead: int | None = None

    @property
    def row_bytes(self) -> int:
        """Estimated size of an event in memory."""
        return max(1, UNPACKED * self.size_bytes // max(1, self.rows))


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment that the catalog's store has. local: whether its file is on the disk as well."""

    number: int
    checksum: int
    size_bytes: int
    local: bool


@dataclass(frozen=True, slots=True)
class QuarantinedBatch:
    """Events that could not be sealed, stored in a separate file in `quarantine/`; no scan returns them.

    Spans include both ends; times are µs; `checksum`: xxh3-64 of the file. reason: the error that sealing them raised.
    """

    number: int
    partition: int
    schema: int
    first_index: int
    last_index: int
    min_timestamp: int
    max_timestamp: int
    rows: int
    size_bytes: int
    checksum: int
    created_us: int
    reason: str


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """A batch that a producer appended: what is needed to recognise a retry.

    note: text that the producer stored with the batch, as durable as its events.
    """

    partition: int
    producer: str
    sequence: int
    fingerprint: int
    first_index: int
    count: int
    note: str = ""


def newest_notes(entries: Iterable[ProducerEntry]) -> list[ProducerEntry]:
    """The same batches, without notes except on the newest of each producer: no other note is ever read."""
    kept = list(entries)
    newest: dict[tuple[int, str], int] = {}
    for entry in kept:
        key = (entry.partition, entry.producer)
        newest[key] = max(entry.sequence, newest.get(key, entry.sequence))
    return [e if e.sequence == newest[e.partition, e.producer] or not e.note else replace(e, note="") for e in kept]


@dataclass(frozen=True, slots=True)
class Cut:
    """Which events of a space are hidden in a partition: those below the record index `end_index` that are older than
    `time_us`, or of exactly that time and below the record index `tie_index`.
    """

    end_index: int
    time_us: int = LAST
    tie_index: int = LAST

    @property
    def erases(self) -> bool:
        """Whether it hides events regardless of their time."""
        return (self.time_us, self.tie_index) == (LAST, LAST)

    def covers(self, other: Cut) -> bool:
        """Whether this cut hides every event that the other hides."""
        later = (self.time_us, self.tie_index) >= (other.time_us, other.tie_index)
        return later and self.end_index >= other.end_index


def with_cut(cuts: tuple[Cut, ...], cut: Cut) -> tuple[Cut, ...]:
    """Add a cut to others, leaving out cuts that others cover."""
    if any(known.covers(cut) for known in cuts):
        return cuts
    return (*(known for known in cuts if not cut.covers(known)), cut)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """An erased or truncated space: some of its events in a partition are hidden, until compaction deletes them."""

    partition: int
    space: bytes
    end_index: int
    created_us: int
    time_us: int = LAST
    tie_index: int = LAST

    @property
    def cut(self) -> Cut:
        """Which events it hides."""
        return Cut(self.end_index, self.time_us, self.tie_index)


@dataclass(frozen=True, slots=True)
class PipeInfo:
    """A pipe as stored in the manifest. identity: its name as a producer, never reused. source, condition: LQL.

    sequence, progress: the sequence of its last batch, and its progress, when they were last stored in the manifest.
    """

    name: str
    identity: str
    source: str
    condition: str
    backfill: bool
    created_us: int
    sequence: int
    progress: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong that a consistency check or a read found: what it concerns, and what was done about it."""

    subject: str
    message: str
    action: str
    found_us: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of `append`: record indexes `first` to `last`, both included.

    duplicate: the batch was a retry of one that is already stored, and these are that batch's record indexes.
    """

    topic: str
    partition: str
    first: int
    last: int
    duplicate: bool = False

    def __len__(self) -> int:
        return self.last - self.first + 1

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return html_facts(f"{len(self):,} events in {self.topic}", {name: str(v) for name, v in asdict(self).items()})
