"""Reports of retention, compaction, erasure and rebuilding. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Removed:
    """A segment that retention removed, or would: times in µs; reason: "age", "segments", "bytes",
    "partition segments", "partition bytes", "catalog bytes", "free disk". quarantined: it is a batch that could not be
    sealed.
    """

    topic: str
    partition: str
    number: int
    rows: int
    size_bytes: int
    first_index: int
    last_index: int
    min_timestamp: int
    max_timestamp: int
    reason: str
    quarantined: bool = False


@dataclass(frozen=True, slots=True)
class ClockReport:
    """What is believed of the machine's clock. wall_us: what it shows. believed_us: the time that ages are counted by.

    believed: whether that is the clock's. Else agreed_s: for how long the clock has gone on evenly; events_for,
    events_against: looks at which the newest events agreed with the clock, or with the time that is believed.
    """

    wall_us: int
    believed_us: int
    believed: bool
    agreed_s: int
    events_for: int
    events_against: int


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What retention removed, oldest first; with `dry_run`, what it would remove.

    disk_bytes: of everything on disk, as it is now. waiting_bytes: the part of it that goes when open scans have ended.
    """

    removed: tuple[Removed, ...]
    disk_bytes: int
    waiting_bytes: int
    dry_run: bool

    @property
    def rows(self) -> int:
        """Events in the removed segments."""
        return sum(segment.rows for segment in self.removed)

    @property
    def size_bytes(self) -> int:
        """Bytes of the removed segments."""
        return sum(segment.size_bytes for segment in self.removed)


@dataclass(frozen=True, slots=True)
class Collected:
    """Objects in a catalog's store that nobody named: `gc` deleted them, or with `dry_run` would."""

    names: tuple[str, ...]
    size_bytes: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Erasure:
    """A space that was erased and is hidden; gone from disk when `Topic.erasures` no longer lists it.

    partitions: for each, the record index below which its events are erased. events: how many were hidden by it.
    """

    topic: str
    space: str | bytes
    partitions: dict[str, int]
    events: int


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What compaction did: segments before and after, bytes written, spaces of which nothing is left on disk.

    rewritten: segments from which events of erased spaces were taken out. still_erasing: spaces that are hidden and of
    which something is left, as a file that an open scan reads.
    """

    merged: int
    made: int
    written_bytes: int
    rewritten: int
    erased: tuple[str | bytes, ...]
    still_erasing: tuple[str | bytes, ...]


@dataclass(frozen=True, slots=True)
class Traces:
    """Where something of a space is left: found by looking, not by what was noted when it was erased.

    visible: events that scans give. segments: numbers of segment files, those that wait for scans included, that hold
    events of it. unsealed: events in memory. logged: events in log files. manifest: how often the bytes of its key
    stand in the manifest's files, not counting longer keys of which they are a part (keys of less than 4 bytes are not
    looked for).
    hidden: whether it is erased and not gone yet. quarantined: files set aside as damaged, which were not searched.
    set_aside: events in quarantined batches, which could not be sealed.
    """

    visible: int
    segments: tuple[int, ...]
    unsealed: int
    logged: int
    manifest: int
    hidden: bool
    quarantined: int
    set_aside: int = 0

    @property
    def gone(self) -> bool:
        """Whether nothing of it is left in what was searched."""
        found = self.visible or self.segments or self.unsealed or self.logged or self.manifest or self.set_aside
        return not (found or self.hidden)


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a manifest was rebuilt from. quarantined: paths, below the root, of files that could not be read.

    pipes: how many were brought back. hidden: spaces of topics that are being erased or truncated. missing: what could
    not be brought back, or nobody knows of, in sentences.
    """

    topics: int
    segments: int
    rows: int
    superseded: int
    quarantined: tuple[str, ...]
    pipes: int = 0
    hidden: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lacking:
    """An object of a store that is damaged or missing: its name there, and what is wrong with it."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What came back from a store. shipped_us: when the last of it had been put there, by the writer's clock.

    segments, size_bytes: that were brought. log_bytes: of the log behind them, with the events that no segment has yet,
    which the next opening reads. lacking: objects that are damaged or missing; what they held is not there.
    complete: whether it is certain that nothing was acknowledged after that; else up to a ship_interval of it may be
    missing, and record indexes that may have been given to it nobody gets.
    """

    shipped_us: int
    segments: int
    size_bytes: int
    log_bytes: int
    lacking: tuple[Lacking, ...]
    complete: bool
