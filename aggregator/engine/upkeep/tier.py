"""The store of a catalog: sealed segments go there, and files go from the disk, each in one order.

Up: the file is read and held against its checksum; it is put, whole; its size is looked at; the manifest notes it. A
crash on the way leaves an object that nobody names, which the next attempt finds or puts again.

Down: the object is read back and held against the checksum; the manifest notes that the file goes; it goes. Whoever
reads it goes on with the object. A crash on the way leaves a file, which the next opening counts again.

Away: a segment was retired, its file is gone, no scan reads it and no snapshot in the store names it: its object goes,
then the manifest forgets it, in the order in which they were retired. So an erasure is done when the store is rid of
it, and a manifest that is rebuilt meets nothing whose successor it does not meet as well.
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
from aggregator.engine.upkeep.tiering import GRACE_US, strays, to_let_go
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
"""Segments that are put at once, each in several parts if it is large."""
BACK_OFF_S = (1.0, 60.0)
"""How long nothing is asked of a store that failed: the first time, twice as long each time, and at most."""
DELETED_AT_ONCE = 100
"""Objects that go in their order are forgotten so many at once."""
STRAYS_AT_ONCE = 8
"""So many objects that nobody names are deleted at once."""
LOOK_S = 30.0
"""How often it is looked what has grown too old to stay here, while no segment comes or goes."""
_PROBE = "probe"


def lost_objects(
    objects: Objects, segments: Iterable[SegmentInfo], *, read: bool, look: Callable[[], None] = lambda: None
) -> list[SegmentInfo]:
    """Of segments that the store should have, those that it does not have, or not whole. read: read every object.

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
    """Segments between disk and store, of a catalog that is open for writing. Safe to share between threads."""

    def __init__(self, storage: Storage, removal: Removal, ages: Ages) -> None:
        self._storage, self._state, self._layout = storage, storage.state, storage.layout
        self._objects, self._pool, self._manifest = storage.objects, storage.pool, storage.manifest
        self._removal, self._ages = removal, ages
        self._rows = StoredRows(storage.manifest)
        self._arrived = {each.number for each in self._rows.all()}
        self._damaged: set[int] = set()  # segments whose files are damaged or missing
        self._moving = Lock()  # held by whoever changes where files or objects are
        self._pushing = Lock()
        self._one_by_one = False  # puts failed: perhaps many at once are too slow for each of them
        self._after = 0.0  # nothing is asked of the store before
        self._pause_s = BACK_OFF_S[0]
        self._looked = (-1, 0.0)  # the change that was seen when all was last done, and until when that is enough
        removal.remove_objects = lambda: self._asking(self.remove)
        self.stopping = False
        self.kept: Callable[[], Container[str]] = tuple
        """Names of objects that manifests in the store still name; whoever publishes these has its own."""
        self.check_mine: Callable[[], None] = lambda: None
        """Raises FencedError where another writer has taken the catalog over in the store."""
        self.announce: Callable[[], None] = lambda: None
        """Publishes a manifest that names retired segments no more."""
        self.tidy: Callable[[bool], list[Stored]] = lambda dry_run: []
        """Deletes what else the store need not keep; with `dry_run` only tells."""
        self.pushed = self.pushed_bytes = self.failures = 0
        """Since the catalog was opened: segments that arrived, their bytes, and attempts that failed."""
        self.problem: str | None = None
        """Why the store was of no use when it was last asked."""

    @property
    def has_store(self) -> bool:
        """Whether the catalog has a store."""
        return self._objects.settings is not None

    def work(self) -> None:
        """What upkeep calls again and again: put what is new, let go what need not be here, remove what was retired.
        Raises what `_asking` does.
        """
        change = self._state.change
        if self._looked[0] == change and time.monotonic() < self._looked[1]:
            return
        if self._asking(self.push, self._let_go_by_itself, self.remove):
            self._looked = change, time.monotonic() + LOOK_S

    def _asking(self, *steps: Callable[[], object]) -> bool:
        """Do what needs the store, unless there is none or it failed just now; whether all was done.

        A store that fails is left alone for a while. Raises what it failed with, when the other steps are done.
        """
        if not self.has_store or time.monotonic() < self._after:
            return False
        errors = FirstError()
        for step in steps:
            with errors:
                step()
        try:
            errors.tell()
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

    # ------------------------------------------------------------ what is where

    def live(self) -> list[SegmentInfo]:
        """Every segment of every topic."""
        with self._state.view_lock:
            views = [topic.segments.view() for topic in self._state.topics.values()]
        return [info for view in views for info in view]

    def waiting(self) -> list[SegmentInfo]:
        """Segments that the store does not have yet, the oldest first."""
        missing = [info for info in self.live() if info.number not in self._arrived]
        return sorted(missing, key=lambda info: info.number)

    def _is_live(self, info: SegmentInfo) -> bool:
        topic, _ = self._state.partitions[info.partition]
        return info.number in topic.segments

    # ------------------------------------------------------------ up

    def push(self, segments: Iterable[SegmentInfo] | None = None) -> int:
        """Put segments into the store that it does not have yet, of those given or of all; gives how many it took.

        Raises StoreError, CorruptSegmentError for a file that is damaged, OSError, when the others have arrived.
        """
        taken = 0
        errors = FirstError()
        self.check_mine()
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
        errors.tell()
        return taken

    def bring(self, segments: Iterable[SegmentInfo]) -> None:
        """Put segments there that a copy of the manifest names. Those whose files are damaged or missing, which the
        next look at the catalog finds as well, keep back nothing else. Raises as `push`, where one is not there.
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
                "a segment was removed before it arrived", path=self._objects.store.path_of(object_name(missing[0]))
            )

    def _put(self, info: SegmentInfo, failed: Event) -> bool:
        """Put one segment; whether it is there. One that was removed meanwhile is not.

        failed: the store was of no use to others; nothing more is tried then.
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
            raise StoreError(f"{found:,} bytes arrived, not {info.size_bytes:,}", path=store.path_of(name))
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
                "the segment is damaged, and is not put into the store",
                path=str(path),
                hint="`aggregator verify` sets it aside",
            )
        self._damaged.discard(info.number)

    def _note(self, segments: list[SegmentInfo]) -> int:
        """Note what has arrived; objects of segments that the manifest has forgotten meanwhile go again."""
        noted = self._rows.add(segments)
        gone = [info for info in segments if info.number not in noted]
        if gone:
            self._objects.store.delete(map(object_name, gone))
        there = [info for info in segments if info.number in noted]
        self._arrived.update(info.number for info in there)
        self.pushed += len(there)
        self.pushed_bytes += sum(info.size_bytes for info in there)
        return len(there)

    # ------------------------------------------------------------ down

    def _let_go_by_itself(self) -> None:
        settings = self._objects.settings
        if settings is not None:
            self.let_go(self.to_let_go(settings.keep_local))

    def to_let_go(self, keep: KeepLocal) -> list[SegmentInfo]:
        """Segments whose files go by a policy, or for the limits of the catalog."""
        state = self._state
        local = [
            (state.partitions[info.partition][0].info.name, info)
            for info in self.live()
            if info.number not in state.let_go
        ]
        return to_let_go(local, self._arrived, keep, self._ages.now(), self._over_bytes())

    def _over_bytes(self) -> int:
        """So much must come free for the limits of the catalog as a whole."""
        limits, over = self._storage.limits, 0
        if limits.max_bytes is not None:
            other = self._storage.log.size_bytes + self._manifest.size_bytes + self._objects.cached_bytes
            over = self._state.segment_bytes + other - limits.max_bytes
        if limits.min_free_bytes is not None:
            over = max(over, limits.min_free_bytes - free_bytes(self._layout.root))
        return max(0, over)

    def let_go(self, segments: Iterable[SegmentInfo]) -> list[SegmentInfo]:
        """Delete the files of segments that the store has; gives those that are gone. Raises as `push`, when all that
        could go are gone.
        """
        gone: list[SegmentInfo] = []
        errors = FirstError()
        for info in segments:
            self._check_going_on()
            with errors:
                if info.number not in self._arrived or info.number in self._state.let_go or not self._is_live(info):
                    continue
                if not self._objects.is_whole(info, self._check_going_on):
                    self._lost(info, "the object is damaged or missing: the segment is put there again")
                    continue
                with self._moving:
                    self._let_go(info)
                gone.append(info)
        errors.tell()
        return gone

    def _let_go(self, info: SegmentInfo) -> None:
        path: Path = self._layout.segment(info.number)
        self._rows.set_local([info.number], local=False)
        self._state.set_let_go(info, gone=True)
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            self._objects.keep_end(info, path)
        path.unlink(missing_ok=True)
        self._pool.forget(info.number)

    def _lost(self, info: SegmentInfo, action: str) -> Problem:
        """Count a segment as not there, and say so."""
        self._rows.remove([info.number])
        self._arrived.discard(info.number)
        return self._report(info, "the object is damaged or missing", action)

    def _report(self, info: SegmentInfo, message: str, action: str) -> Problem:
        subject = self._objects.store.path_of(object_name(info))
        what = f"{message} ({info.rows} events, record indexes {info.first_index} to {info.last_index})"
        problem = Problem(subject, what, action, self._storage.clock())
        logger.warning("%s: %s; %s", subject, what, action)
        self._manifest.add_problem(problem)
        return problem

    # ------------------------------------------------------------ back

    def fetch(self, segments: Iterable[SegmentInfo]) -> list[SegmentInfo]:
        """Bring the files of segments back to the disk; gives those that came. Raises SegmentMissingError,
        CorruptSegmentError, StoreError, OSError, when all that could come are there.
        """
        back: list[SegmentInfo] = []
        errors = FirstError()
        for info in segments:
            self._check_going_on()
            with errors:
                if info.number in self._state.let_go and self._is_live(info):
                    self._fetch(info)
                    back.append(info)
        errors.tell()
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
        self._state.set_let_go(info, gone=False)
        self._objects.forget(info)
        self._pool.forget(info.number)
        if not self._is_live(info) and info.number not in {number for number, _, _ in self._manifest.retired()}:
            path.unlink(missing_ok=True)  # it was removed meanwhile, and nobody else would

    # ------------------------------------------------------------ away

    def remove(self) -> int:
        """Delete objects of retired segments that nobody reads; gives how many. Raises StoreError."""
        count = 0
        if self._rows.leaving(1):
            self.announce()
        while batch := list(self._removable()):
            self._check_going_on()
            self.check_mine()
            self._objects.store.delete([name for _, name in batch])
            numbers = [number for number, _ in batch]
            self._manifest.keep_facts()
            self._manifest.forget_objects(numbers)
            self._arrived.difference_update(numbers)
            count += len(batch)
        return count

    def _removable(self) -> Iterator[tuple[int, str]]:
        """Retired segments whose objects may go, the first of them: number and name."""
        kept = self.kept()
        for stored, change in self._rows.leaving(DELETED_AT_ONCE):
            name = object_name(stored)
            if stored.local or name in kept or self._removal.is_read(change):
                return
            self._objects.forget(stored)
            yield stored.number, name

    # ------------------------------------------------------------ looking after it

    def verify(self, *, read: bool = False) -> list[Problem]:
        """Look whether the store has what the manifest says; gives what is wrong. read: read every object, too.

        A segment whose file is here is put there again by itself. Raises StoreError.
        """
        found: list[Problem] = []
        arrived = [info for info in self.live() if info.number in self._arrived]
        for info in lost_objects(self._objects, arrived, read=read, look=self._check_going_on):
            if not self._is_live(info):
                continue
            if info.number in self._state.let_go:
                self._objects.forget(info)
                found.append(self._report(info, "the object is damaged or missing", "reported"))
            else:
                found.append(self._lost(info, "put there again from the disk"))
        subjects = {problem.subject for problem in found}
        address = self._objects.store.address
        known = [p for p in self._manifest.problems() if p.subject.startswith(address) and p.subject not in subjects]
        if read:
            self._manifest.forget_problems(known)
        return found

    def missing(self) -> list[SegmentInfo]:
        """Segments that have no file, and no object either. Raises StoreError."""
        if not self.has_store or not self._state.let_go:
            return []
        return self._objects.lacking(info for info in self.live() if info.number in self._state.let_go)

    def collect(self, *, grace_us: int = GRACE_US, dry_run: bool = False) -> Collected:
        """Delete objects of segments that nobody names and that are as old as a grace, by the store's own clock; and
        what has grown too old of the rest. Raises StoreError.
        """
        store = self._objects.store
        store.put(_PROBE, b"")
        now_us = store.head(_PROBE).modified_us
        store.delete([_PROBE])
        with self._pushing:
            there = {found.name: found for found in store.list(FOLDER)}
            kept = self.kept()
            named = {object_name(each) for each in self._rows.all()} | {object_name(info) for info in self.live()}
            doomed = strays({n: f.modified_us for n, f in there.items()}, named, now_us, grace_us)
            doomed = [name for name in doomed if name not in kept]
            if not dry_run:
                self.check_mine()  # else another may have put what was not there, or not named, when it was looked
                store.delete(doomed, at_once=STRAYS_AT_ONCE)
        gone = [there[name] for name in doomed] + self.tidy(dry_run)
        return Collected(tuple(each.name for each in gone), sum(each.size_bytes for each in gone), dry_run)
