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
"""The column that a scan can give besides: the name of an event's partition."""
DEFAULT_PARTITION = "0"
STREAMS_TOPIC = "logs"
"""The topic that streams are written to where none is named."""
RESERVED_COLUMNS = (RECORD_INDEX, PARTITION)
UNPACKED = 4
"""Events take about so many times as much memory as in a segment: a guess."""
LAST = 2**63 - 1
"""No timestamp and no record index is larger."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the manifest keeps it. `keys`: "text" or "binary".

    deleted: only its number is left, and those of its partitions, so that nobody gets them again; it has no name.
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
        """What is left of it once it was deleted."""
        return TopicInfo(self.number, "", self.keys, (), Roll(), Retention(), self.created_us, deleted=True)


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema of a topic. Events of schemas of one `family` lie in the same segments.

    magnitudes: of columns, by name, where they are not 0: see `common_type`.
    """

    number: int
    topic: int
    family: int
    schema: EventSchema
    magnitudes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition of a topic. Events below `sealed_index` lie in segments, if retention still keeps them.

    reserved_index: the record index after those that may be given out before the log is synced; 0: none may.
    holes: record indexes [first, end) that crashes passed over, in order: no event has them, or ever will.
    """

    number: int
    topic: int
    name: str
    sealed_index: int
    reserved_index: int = 0
    holes: tuple[tuple[int, int], ...] = ()


class SegmentInfo(NamedTuple):
    """A sealed segment. Spans include both ends; keys are bytes; times are µs; `checksum`: xxh3-64 of the file.

    signature: of its spaces, as `segments.signature` has it; empty: it can hold any within its span.
    min_ahead, max_ahead: the least and the most by which a record index exceeds the number of its row in the file.
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
        """About how much memory an event takes: a guess."""
        return max(1, UNPACKED * self.size_bytes // max(1, self.rows))


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment that lies in the catalog's store. local: its file is on the disk as well."""

    number: int
    checksum: int
    size_bytes: int
    local: bool


@dataclass(frozen=True, slots=True)
class QuarantinedBatch:
    """Events that could not be sealed, kept in a file of their own in `quarantine/`; no scan gives them.

    Spans include both ends; times are µs; `checksum`: xxh3-64 of the file. reason: the error that sealing them raises.
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
    """A batch that a producer appended: what is needed to recognise it when it comes again.

    note: what the producer wanted to be kept with the batch, as durable as its events.
    """

    partition: int
    producer: str
    sequence: int
    fingerprint: int
    first_index: int
    count: int
    note: str = ""


def newest_notes(entries: Iterable[ProducerEntry]) -> list[ProducerEntry]:
    """The same batches; of each producer only the newest one keeps its note, as only that one is asked for."""
    kept = list(entries)
    newest: dict[tuple[int, str], int] = {}
    for entry in kept:
        key = (entry.partition, entry.producer)
        newest[key] = max(entry.sequence, newest.get(key, entry.sequence))
    return [e if e.sequence == newest[e.partition, e.producer] or not e.note else replace(e, note="") for e in kept]


@dataclass(frozen=True, slots=True)
class Cut:
    """Which events of a space are hidden in a partition: those below the record index `end_index` that are older than
    `time_us`, or of just that time and below the record index `tie_index`.
    """

    end_index: int
    time_us: int = LAST
    tie_index: int = LAST

    @property
    def erases(self) -> bool:
        """Whether it hides events of every time."""
        return (self.time_us, self.tie_index) == (LAST, LAST)

    def covers(self, other: Cut) -> bool:
        """Whether all that another hides is hidden by this."""
        later = (self.time_us, self.tie_index) >= (other.time_us, other.tie_index)
        return later and self.end_index >= other.end_index


def with_cut(cuts: tuple[Cut, ...], cut: Cut) -> tuple[Cut, ...]:
    """Cuts and one more, without those that others cover."""
    if any(known.covers(cut) for known in cuts):
        return cuts
    return (*(known for known in cuts if not cut.covers(known)), cut)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A space that was erased or truncated: some of its events in a partition are hidden, gone after compaction."""

    partition: int
    space: bytes
    end_index: int
    created_us: int
    time_us: int = LAST
    tie_index: int = LAST

    @property
    def cut(self) -> Cut:
        """Which events."""
        return Cut(self.end_index, self.time_us, self.tie_index)


@dataclass(frozen=True, slots=True)
class PipeInfo:
    """A pipe as the manifest keeps it. identity: its name as a producer, never used again. source, condition: LQL.

    sequence, progress: of its last batch when the manifest was told, and how far it was then.
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
    """Something that start-up checks or reads found wrong: what it concerns, and what was done about it."""

    subject: str
    message: str
    action: str
    found_us: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What `append` gives back: record indexes `first` to `last`, both included.

    duplicate: the batch was a retry of one that is stored already, and these are its record indexes.
    """

    topic: str
    partition: str
    first: int
    last: int
    duplicate: bool = False

    def __len__(self) -> int:
        return self.last - self.first + 1

    def _repr_html_(self) -> str:
        """The receipt, as notebooks show it."""
        return html_facts(f"{len(self):,} events in {self.topic}", {name: str(v) for name, v in asdict(self).items()})
