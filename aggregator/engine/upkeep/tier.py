"""The tier: moves sealed segments between the disk and the store of a catalog, each move in a fixed order.

Upload: the file is read and compared with its checksum; it is uploaded whole; the object's size is checked; the
manifest records it. A crash on the way leaves an unnamed object, which the next attempt finds or uploads again.

Eviction: the object is read back and compared with the checksum; the manifest records the eviction; the file is
deleted. Its readers continue with the object. A crash on the way leaves a file, which the next opening counts again.

Deletion: once a segment is retired, its file is deleted, no scan reads it and no snapshot in the store names it, its
object is deleted; then the manifest forgets it. Objects are deleted in the order in which segments were retired. So an
erasure is complete when nothing is left in the store, and a rebuilt manifest that finds a segment also finds its
successor.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

from aggregator.base.reports import Collected
from aggregator.engine.upkeep.ages import Ages
from aggregator.engine.upkeep.removal import Removal
from aggregator.engine.upkeep.rewrite import FirstError, Stopped
from aggregator.engine.upkeep.tiering import GRACE_US, strays, to_evict
from aggregator.errors import StoreError
from aggregator.model import Problem, SegmentInfo
from aggregator.policy import KeepLocal
from aggregator.storage.files.checksum import hasher64
from aggregator.storage.files.layout import make_directory, replaced
from aggregator.storage.files.usage import free_bytes
from aggregator.storage.manifest import StoredRows
from aggregator.storage.parts import Storage
from aggregator.storage.segments.file import file_checksum
from aggregator.storage.store.objects import FOLDER, REPAIR, Objects, object_name
from esformat import CorruptSegmentError

if TYPE_CHECKING:
    from aggregator.storage.store.client import Stored

logger = logging.getLogger("aggregator")

UPLOADS = 4
"""Number of segments uploaded in parallel, each in several parts if it is large."""
BACK_OFF_S = (1.0, 60.0)
"""First and longest pause after the store failed, in seconds. The pause doubles each time."""
DELETED_AT_ONCE = 100
"""Number of objects that are deleted in their order and forgotten at a time."""
STRAYS_AT_ONCE = 8
"""Number of stale objects deleted in parallel."""
LOOK_S = 30.0
"""Seconds between searches for segments too old to stay on the disk, while no segment is added or removed."""
_PROBE = "probe"


def lost_objects(
    objects: Objects, segments: Iterable[SegmentInfo], *, read: bool, look: Callable[[], None] = lambda: None
) -> list[SegmentInfo]:
    """The segments, of those that the store should have, that it lacks or that are damaged. read: read every object.

    look: called now and then. Raises StoreError.
    """
    wanted = list(segments)
    lost = objects.lacking(wanted)
    missing = {info.number for info in lost}
    for info in wanted if read else ():
        look()
        if info.number not in missing and not objects.is_whole(info, look):
            lost.append(info)
    return lost


class Tier:
    """Moves segments between disk and store, for a catalog that is open for writing. Thread-safe."""

    def __init__(self, storage: Storage, removal: Removal, ages: Ages) -> None:
        self._storage, self._state, self._layout = storage, storage.state, storage.layout
        self._objects, self._pool, self._manifest = storage.objects, storage.pool, storage.manifest
        self._removal, self._ages = removal, ages
        self._rows = StoredRows(storage.manifest)
        self._arrived = {each.number for each in self._rows.all()}
        self._damaged: set[int] = set()  # segments whose files are damaged or missing
        self._moving = Lock()  # held while files or objects are moved
        self._pushing = Lock()
        self._one_by_one = False  # uploads failed: perhaps in parallel each is too slow
        self._after = 0.0  # no request is sent before this time
        self._pause_s = BACK_OFF_S[0]
        self._looked = (-1, 0.0)  # the change at which everything was last done, and until when that suffices
        removal.remove_objects = lambda: self._with_store(self.remove)
        self.stopping = False
        self.kept: Callable[[], Container[str]] = tuple
        """The names of objects that manifests in the store still name. Set from the shipper, which publishes these."""
        self.check_ownership: Callable[[], None] = lambda: None
        """Raises FencedError if another writer took over the catalog in the store."""
        self.announce: Callable[[], None] = lambda: None
        """Publishes a manifest that no longer names retired segments."""
        self.clean_store: Callable[[bool], list[Stored]] = lambda dry_run: []
        """Deletes everything else that the store no longer needs, and returns it; with `dry_run` only returns it."""
        self.pushed = self.pushed_bytes = self.failures = 0
        """Since the catalog was opened: segments uploaded, their bytes, and attempts that failed."""
        self.problem: str | None = None
        """Why the last use of the store failed; None if it did not."""

    @property
    def has_store(self) -> bool:
        """Whether the catalog has a store."""
        return self._objects.settings is not None

    def work(self) -> None:
        """Upload new segments, evict those that need not be local, and delete retired ones. Called regularly. Raises as
        `_with_store`.
        """
        change = self._state.change
        if self._looked[0] == change and time.monotonic() < self._looked[1]:
            return
        if self._with_store(self.push, self._evict_by_policy, self.remove):
            self._looked = change, time.monotonic() + LOOK_S

    def _with_store(self, *steps: Callable[[], object]) -> bool:
        """Run steps that need the store, unless there is none or it has just failed. Return whether all were done.

        A store that fails is left alone for a while. The first error is raised after the other steps.
        """
        if not self.has_store or time.monotonic() < self._after:
            return False
        errors = FirstError()
        for step in steps:
            with errors:
                step()
        try:
            errors.raise_first()
        except Exception as error:
            self.failures += 1
            self.problem = str(error)
            self._after = time.monotonic() + self._pause_s
            self._pause_s = min(BACK_OFF_S[1], 2 * self._pause_s)
            raise
        self.problem, self._after, self._pause_s = None, 0.0, BACK_OFF_S[0]
        return True

    def _check_going_on(self) -> None:
        if self.stopping:
            raise Stopped("the catalog is being closed", path=str(self._layout.root))

    # ------------------------------------------------------------ contents

    def live(self) -> list[SegmentInfo]:
        """Every segment of every topic."""
        with self._state.view_lock:
            views = [topic.segments.view() for topic in self._state.topics.values()]
        return [info for view in views for info in view]

    def waiting(self) -> list[SegmentInfo]:
        """Segments that the store lacks, the oldest first."""
        missing = [info for info in self.live() if info.number not in self._arrived]
        return sorted(missing, key=lambda info: info.number)

    def _is_live(self, info: SegmentInfo) -> bool:
        topic, _ = self._state.partitions[info.partition]
        return info.number in topic.segments

    # ------------------------------------------------------------ upload

    def push(self, segments: Iterable[SegmentInfo] | None = None) -> int:
        """Upload the segments that the store lacks, of those given or of all. Return how many were uploaded.

        Raises StoreError, CorruptSegmentError for a damaged file, OSError, after the others are uploaded.
        """
        taken = 0
        errors = FirstError()
        self.check_ownership()
        with self._pushing:
            wanted = self.waiting() if segments is None else [s for s in segments if s.number not in self._arrived]
            if not wanted:
                return 0
            failed = Event()
            at_once = 1 if self._one_by_one else min(UPLOADS, len(wanted))
            with ThreadPoolExecutor(at_once, "aggregator-push") as threads:
                for info, done in [(info, threads.submit(self._put, info, failed)) for info in wanted]:
                    with errors:
                        if done.result():
                            taken += self._note([info])
            self._one_by_one = failed.is_set()
        errors.raise_first()
        return taken

    def bring(self, segments: Iterable[SegmentInfo]) -> None:
        """Upload segments that a copy of the manifest names. Damaged or missing files, which the next consistency check
        also finds, do not block the copy. Raises as `push` if the store still lacks any other segment.
        """
        wanted = list(segments)
        failed: Exception | None = None
        try:
            self.push(wanted)
        except (CorruptSegmentError, OSError, StoreError) as error:
            failed = error
        settled = self._arrived | self._damaged
        missing = [info for info in wanted if info.number not in settled]
        if missing:
            raise failed or StoreError(
                "a segment was removed before its upload ended",
                path=self._objects.store.path_of(object_name(missing[0])),
            )

    def _put(self, info: SegmentInfo, failed: Event) -> bool:
        """Upload one segment. Return whether the store has it: not if it was removed meanwhile.

        failed: set if the store failed for another segment; then nothing more is tried.
        """
        if failed.is_set():
            return False
        self._check_going_on()
        name, store = object_name(info), self._objects.store
        path = self._layout.segment(info.number)
        try:
            self._check_file(info, path)
            self._check_going_on()
            store.put_file(name, path, at_once=1 if self._one_by_one else 4)
            found = store.head(name).size_bytes
        except (FileNotFoundError, StoreError) as error:
            if not self._is_live(info):
                return False
            if isinstance(error, StoreError):
                failed.set()
            raise
        if found != info.size_bytes:
            raise StoreError(f"the object has {found:,} bytes, not {info.size_bytes:,}", path=store.path_of(name))
        return True

    def _check_file(self, info: SegmentInfo, path: Path) -> None:
        try:
            found = file_checksum(path)
        except FileNotFoundError:
            self._damaged.add(info.number)
            raise
        if found != info.checksum:
            self._damaged.add(info.number)
            raise CorruptSegmentError(
                "the segment is damaged and was not uploaded to the store",
                path=str(path),
                hint="run `aggregator verify`, which sets it aside",
            )
        self._damaged.discard(info.number)

    def _note(self, segments: list[SegmentInfo]) -> int:
        """Record uploaded segments. Delete the objects of those that the manifest has forgotten meanwhile."""
        noted = self._rows.add(segments)
        unrecorded = [info for info in segments if info.number not in noted]
        if unrecorded:
            self._objects.store.delete(map(object_name, unrecorded))
        recorded = [info for info in segments if info.number in noted]
        self._arrived.update(info.number for info in recorded)
        self.pushed += len(recorded)
        self.pushed_bytes += sum(info.size_bytes for info in recorded)
        return len(recorded)

    # ------------------------------------------------------------ eviction

    def _evict_by_policy(self) -> None:
        settings = self._objects.settings
        if settings is not None:
            self.evict(self.to_evict(settings.keep_local))

    def to_evict(self, keep: KeepLocal) -> list[SegmentInfo]:
        """The segments whose files to evict, by a policy or for the limits of the catalog."""
        state = self._state
        local = [
            (state.partitions[info.partition][0].info.name, info)
            for info in self.live()
            if info.number not in state.evicted
        ]
        return to_evict(local, self._arrived, keep, self._ages.now(), self._over_bytes())

    def _over_bytes(self) -> int:
        """Bytes to free for the limits of the catalog as a whole."""
        limits, over = self._storage.limits, 0
        if limits.max_bytes is not None:
            other = self._storage.log.size_bytes + self._manifest.size_bytes + self._objects.cached_bytes
            over = self._state.segment_bytes + other - limits.max_bytes
        if limits.min_free_bytes is not None:
            over = max(over, limits.min_free_bytes - free_bytes(self._layout.root))
        return max(0, over)

    def evict(self, segments: Iterable[SegmentInfo]) -> list[SegmentInfo]:
        """Delete the files of segments that the store has. Return the segments whose files were deleted. Raises as
        `push`, after everything possible is done.
        """
        evicted: list[SegmentInfo] = []
        errors = FirstError()
        for info in segments:
            self._check_going_on()
            with errors:
                if info.number not in self._arrived or info.number in self._state.evicted or not self._is_live(info):
                    continue
                if not self._objects.is_whole(info, self._check_going_on):
                    self._lost(info, "the object is damaged or missing: the segment will be uploaded again")
                    continue
                with self._moving:
                    self._evict(info)
                evicted.append(info)
        errors.raise_first()
        return evicted

    def _evict(self, info: SegmentInfo) -> None:
        path: Path = self._layout.segment(info.number)
        self._rows.set_local([info.number], local=False)
        self._state.set_evicted(info, evicted=True)
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            self._objects.keep_end(info, path)
        path.unlink(missing_ok=True)
        self._pool.forget(info.number)

    def _lost(self, info: SegmentInfo, action: str) -> Problem:
        """Count a segment as missing in the store, and report it."""
        self._rows.remove([info.number])
        self._arrived.discard(info.number)
        return self._report(info, action)

    def _report(self, info: SegmentInfo, action: str) -> Problem:
        subject = self._objects.store.path_of(object_name(info))
        span = f"{info.rows} events, record indexes {info.first_index} to {info.last_index}"
        what = f"the object is damaged or missing ({span})"
        problem = Problem(subject, what, action, self._storage.clock())
        logger.warning("%s: %s; %s", subject, what, action)
        self._manifest.add_problem(problem)
        return problem

    # ------------------------------------------------------------ download

    def fetch(self, segments: Iterable[SegmentInfo]) -> list[SegmentInfo]:
        """Download the files of evicted segments to the disk. Return those downloaded. Raises SegmentMissingError,
        CorruptSegmentError, StoreError, OSError, after everything possible is done.
        """
        back: list[SegmentInfo] = []
        errors = FirstError()
        for info in segments:
            self._check_going_on()
            with errors:
                if info.number in self._state.evicted and self._is_live(info):
                    self._fetch(info)
                    back.append(info)
        errors.raise_first()
        return back

    def _fetch(self, info: SegmentInfo) -> None:
        path = self._layout.segment(info.number)
        name, store = object_name(info), self._objects.store
        make_directory(path.parent)
        with self._moving, replaced(path) as file:
            hasher = hasher64()
            for part in store.stream(name):
                self._check_going_on()
                hasher.update(part)
                file.write(part)
            if hasher.intdigest() != info.checksum:
                raise CorruptSegmentError("the object is damaged", path=store.path_of(name), hint=REPAIR)
        self._rows.set_local([info.number], local=True)
        self._state.set_evicted(info, evicted=False)
        self._objects.forget(info)
        self._pool.forget(info.number)
        if not self._is_live(info) and info.number not in {number for number, _, _ in self._manifest.retired()}:
            path.unlink(missing_ok=True)  # it was removed meanwhile; nothing else deletes the file

    # ------------------------------------------------------------ deletion

    def remove(self) -> int:
        """Delete objects of retired segments that no scan reads. Return their number. Raises StoreError."""
        count = 0
        if self._rows.leaving(1):
            self.announce()
        while batch := list(self._removable()):
            self._check_going_on()
            self.check_ownership()
            self._objects.store.delete([name for _, name in batch])
            numbers = [number for number, _ in batch]
            self._manifest.write_backup()
            self._manifest.forget_objects(numbers)
            self._arrived.difference_update(numbers)
            count += len(batch)
        return count

    def _removable(self) -> Iterator[tuple[int, str]]:
        """The first retired segments whose objects may be deleted: number and name."""
        kept = self.kept()
        for stored, change in self._rows.leaving(DELETED_AT_ONCE):
            name = object_name(stored)
            if stored.local or name in kept or self._removal.is_read(change):
                return
            self._objects.forget(stored)
            yield stored.number, name

    # ------------------------------------------------------------ checks

    def verify(self, *, read: bool = False) -> list[Problem]:
        """Check that the store has what the manifest says. Return the problems. read: also read every object.

        A segment with a local file is uploaded again automatically. Raises StoreError.
        """
        found: list[Problem] = []
        arrived = [info for info in self.live() if info.number in self._arrived]
        for info in lost_objects(self._objects, arrived, read=read, look=self._check_going_on):
            if not self._is_live(info):
                continue
            if info.number in self._state.evicted:
                self._objects.forget(info)
                found.append(self._report(info, "reported"))
            else:
                found.append(self._lost(info, "uploaded again from the disk"))
        subjects = {problem.subject for problem in found}
        address = self._objects.store.address
        known = [p for p in self._manifest.problems() if p.subject.startswith(address) and p.subject not in subjects]
        if read:
            self._manifest.forget_problems(known)
        return found

    def missing(self) -> list[SegmentInfo]:
        """Segments with neither a file nor an object. Raises StoreError."""
        if not self.has_store or not self._state.evicted:
            return []
        return self._objects.lacking(info for info in self.live() if info.number in self._state.evicted)

    def collect(self, *, grace_us: int = GRACE_US, dry_run: bool = False) -> Collected:
        """Delete stale objects of segments that are at least `grace_us` old by the store's clock, and everything else
        that the store no longer needs. Raises StoreError.
        """
        store = self._objects.store
        store.put(_PROBE, b"")
        now_us = store.head(_PROBE).modified_us
        store.delete([_PROBE])
        with self._pushing:
            present = {found.name: found for found in store.list(FOLDER)}
            kept = self.kept()
            named = {object_name(each) for each in self._rows.all()} | {object_name(info) for info in self.live()}
            stale = strays({n: f.modified_us for n, f in present.items()}, named, now_us, grace_us)
            stale = [name for name in stale if name not in kept]
            if not dry_run:
                self.check_ownership()  # else another writer may have uploaded or named them since
                store.delete(stale, at_once=STRAYS_AT_ONCE)
        deleted = [present[name] for name in stale] + self.clean_store(dry_run)
        return Collected(tuple(each.name for each in deleted), sum(each.size_bytes for each in deleted), dry_run)
