"""Reports of retention, compaction, erasure and rebuilding. Immutable values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Removed:
    """A segment that retention removed, or would remove. Times are in µs.

    reason: "age", "segments", "bytes", "partition segments", "partition bytes", "catalog bytes", "free disk".
    quarantined: whether it is a batch that could not be sealed.
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
    """Whether the machine's clock is believed. wall_us: what it shows. believed_us: the time for computing ages.

    believed: whether the clock's time is used. If not, agreed_s: for how long the clock has advanced evenly;
    events_for, events_against: number of event times that agreed with the clock, or with the believed time.
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

    disk_bytes: of everything on disk now. waiting_bytes: the part of it that is freed when open scans end.
    """

    removed: tuple[Removed, ...]
    disk_bytes: int
    waiting_bytes: int
    dry_run: bool

    @property
    def rows(self) -> int:
        """Number of events in the removed segments."""
        return sum(segment.rows for segment in self.removed)

    @property
    def size_bytes(self) -> int:
        """Bytes of the removed segments."""
        return sum(segment.size_bytes for segment in self.removed)


@dataclass(frozen=True, slots=True)
class Collected:
    """Unreferenced objects in a catalog's store that `gc` deleted, or would delete with `dry_run`."""

    names: tuple[str, ...]
    size_bytes: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Erasure:
    """A space that was erased and is hidden; it is gone from disk when `Topic.erasures` no longer lists it.

    partitions: for each, the record index below which its events are erased. events: how many events were hidden.
    """

    topic: str
    space: str | bytes
    partitions: dict[str, int]
    events: int


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What compaction did: segments before and after, bytes written, spaces completely removed from disk.

    rewritten: segments from which events of erased spaces were removed. still_erasing: spaces that are hidden but not
    yet completely removed, for example because an open scan reads a file.
    """

    merged: int
    made: int
    written_bytes: int
    rewritten: int
    erased: tuple[str | bytes, ...]
    still_erasing: tuple[str | bytes, ...]


@dataclass(frozen=True, slots=True)
class Traces:
    """What remains of a space. Found by searching, independently of the records of its erasure.

    visible: events that scans return. segments: numbers of segment files with its events, including retired files that
    scans still read. unsealed: events in memory. logged: events in log files. manifest: how often the bytes of its key
    occur in the manifest's files, not counting longer keys that contain them (keys of less than 4 bytes are not
    searched for).
    hidden: whether it is erased and not gone yet. quarantined: number of files set aside as damaged, which were not
    searched. set_aside: events in quarantined batches, which could not be sealed.
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
        """Whether the search found nothing of it."""
        found = self.visible or self.segments or self.unsealed or self.logged or self.manifest or self.set_aside
        return not (found or self.hidden)


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What a manifest was rebuilt from. quarantined: paths, below the root, of files that could not be read.

    pipes: number restored. hidden: spaces of topics that are being erased or truncated. missing: sentences about what
    could not be restored or is unknown. logged: events that are not in segments: the next opening recovers them from
    the log.
    """

    topics: int
    segments: int
    rows: int
    superseded: int
    quarantined: tuple[str, ...]
    pipes: int = 0
    hidden: int = 0
    missing: tuple[str, ...] = ()
    logged: int = 0


@dataclass(frozen=True, slots=True)
class Lacking:
    """A damaged or missing object of a store: its name there, and what is wrong with it."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was restored from a store. shipped_us: when the last of it had been uploaded, by the writer's clock.

    segments, size_bytes: of the restored segments. log_bytes: of the log after them, with events that are in no segment
    yet; the next opening reads it. lacking: objects that are damaged or missing; their contents were not restored.
    complete: whether it is certain that nothing was acknowledged later. If not, up to a ship_interval may be missing,
    and record indexes that may have been assigned to the missing events are never reused.
    """

    shipped_us: int
    segments: int
    size_bytes: int
    log_bytes: int
    lacking: tuple[Lacking, ...]
    complete: bool
