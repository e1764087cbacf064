"""The reader engine: a catalog that another process writes to, brought up to date on each read.

The log is read first and the manifest second. Events that were sealed and deleted from the log between two reads are in
the manifest by then; sealed events that the log still contains are dropped. So none is missed, and none is seen twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from threading import Lock
from typing import Any

from aggregator.base.forked import Owner
from aggregator.engine.recovery.replay import Replay
from aggregator.errors import CatalogNotFoundError, CorruptManifestError, ManifestFailedError
from aggregator.model import Problem, SegmentInfo
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.lock import is_held
from aggregator.storage.files.pins import Pin, Pins
from aggregator.storage.log.file import Frame
from aggregator.storage.log.follow import LogTail
from aggregator.storage.manifest import (
    REBUILD,
    RECOVER,
    Contents,
    IncarnationRows,
    Manifest,
    StoredRows,
    refuse_foreign_directory,
)
from aggregator.storage.manifest.lineage import Lineage
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import CatalogState, Snapshot, Topic
from aggregator.storage.state.streams import StreamIndex
from aggregator.storage.store.objects import Objects

_TRIES, _PAUSE_S = 50, 0.02  # until a manifest that is being rebuilt has its name: a moment


class ReaderEngine:
    """The engine of a catalog that is open for reading. Thread-safe."""

    look_s = 0.05
    """Pause between looks for new events, in seconds: the writer does not notify readers."""

    def __init__(self, layout: Layout, clock: Callable[[], int]) -> None:
        """Raises CatalogNotFoundError, CorruptManifestError, UnknownVersionError."""
        self.layout, self._clock = layout, clock
        self.owner = Owner(layout.root)
        self.manifest = self._open_manifest()
        with ExitStack() as undoing:  # closes everything if anything fails
            undoing.callback(self.manifest.close)
            self.pins = Pins(layout.reader_locks, read_only=True)
            undoing.callback(self.pins.close)
            self.objects = self._make_objects()
            self.pool = SegmentPool(layout, self.objects)
            undoing.callback(self.pool.close)
            self._lock = Lock()
            self._start()
            undoing.pop_all()

    @property
    def address(self) -> str:
        """The path or store address that opens the catalog."""
        return str(self.layout.root)

    def _make_objects(self) -> Objects:
        return Objects(StoredRows(self.manifest).settings, self.layout.cache, read_only=True)

    def _open_manifest(self) -> Manifest:
        refuse_foreign_directory(self.layout)
        for left in reversed(range(_TRIES)):
            try:
                return Manifest(self.layout.manifest, read_only=True)
            except (FileNotFoundError, ManifestFailedError) as error:
                if left and is_held(self.layout.writer_lock):  # it is being created, or rebuilt
                    time.sleep(_PAUSE_S)
                elif isinstance(error, ManifestFailedError):
                    raise
                else:
                    break
        if self.layout.following.exists():
            raise CatalogNotFoundError(
                "the copy of a server's catalog is not complete yet",
                path=str(self.layout.root),
                hint="wait until `aggregator follow` has copied everything that existed when it started",
            )
        if any(self.layout.segments.glob("*/*")) or any(self.layout.log.glob("*")):
            raise CatalogNotFoundError("its manifest is missing", path=str(self.layout.manifest), hint=REBUILD)
        raise CatalogNotFoundError(
            "no catalog found", path=str(self.layout.root), hint="open it for writing to create one"
        )

    def _start(self) -> None:
        self._tail = LogTail(self.layout.log)
        frames = self._new_frames()
        self.state = CatalogState(self._load())
        self._incarnations = IncarnationRows(self.manifest)
        self.state.lineage = self._lineage()
        self.streams = StreamIndex(self.state, self.manifest, self.pool, self.refresh, self.snapshot)
        self._take(frames)

    def refresh(self) -> None:
        """Apply what the writer did since the last call."""
        self.owner.check()
        with self._lock:
            frames = self._new_frames()
            if max(self.manifest.change(), self._tail.change) != self.state.change:
                contents = self._load(self.state.change)
                if self.state.reopen(contents.partitions):
                    self._tail.position = 0
                    frames, contents = self._new_frames(), self._load()
                self._apply(contents)
                self.state.arrivals.notify()  # new segments may never have been in the log
            if self._incarnations.newest() not in self.state.lineage.names[-1:]:
                self.state.lineage = self._lineage()
            self._take(frames)

    def _lineage(self) -> Lineage:
        return replace(self._incarnations.lineage(), is_copy=self._is_copy())

    def _is_copy(self) -> bool:
        return self.layout.following.exists()

    def _load(self, since: int = -1) -> Contents:
        """Load the manifest. Raises CorruptManifestError if it is older than its writer's."""
        contents = self.manifest.load(since)
        if contents.change < self._tail.change and self.manifest.follow():  # it was rebuilt
            contents = self.manifest.load()
        if contents.change < self._tail.change:
            raise CorruptManifestError(
                f"the readable part of the manifest ends with change {contents.change}, before its last one, "
                f"{self._tail.change}",
                path=str(self.layout.manifest),
                hint=RECOVER,
            )
        return contents

    def shipping(self) -> dict[str, Any] | None:
        """What is known of the writer's store, as JSON values; None if nothing is."""
        return None

    def problems(self) -> list[Problem]:
        """Problems that the writer found, oldest first, and damage in a log that nobody writes to."""
        self.refresh()
        problems = self.manifest.problems()
        known = {(problem.subject, problem.message) for problem in problems}
        for path, message in list(self._tail.damages.items()):
            subject = str(path.relative_to(self.layout.root))
            if (subject, message) not in known:
                problems.append(Problem(subject, message, "reported", self._clock()))
        return problems

    def _new_frames(self) -> list[Frame]:
        with suppress(FileNotFoundError):  # the catalog was just created
            return self._tail.read(whole=not is_held(self.layout.writer_lock))
        return []

    def _apply(self, contents: Contents) -> None:
        state = self.state
        with state.view_lock:
            for topic in contents.topics:
                state.add_topic(topic)
            for schema in contents.schemas:
                state.add_schema(schema)
            for partition in contents.partitions:
                state.add_partition(partition)
            state.add_tombstones(contents.tombstones)
        added: dict[int, list[SegmentInfo]] = {}
        retired = list(contents.retired)
        for segment in contents.segments:
            owner, _ = state.partitions[segment.partition]
            known = owner.segments.get(segment.number)
            if known == segment:  # the whole manifest was replaced
                continue
            added.setdefault(owner.info.number, []).append(segment)
            if known is not None:  # another file has replaced it
                retired.append(segment.number)
        state.take_over(added, retired, {p.number: p.sealed_index for p in contents.partitions}, contents.change)
        with state.view_lock:
            state.keep_tombstones(contents.tombstones)
        came = (segment.number for segments in added.values() for segment in segments)
        for number in (*retired, *came):  # a deleted topic may have had a file of the same number
            self.pool.forget(number)
        if sum(len(topic.segments) for topic in state.topics.values()) != contents.count:  # retired rows long gone
            whole = self.manifest.load()
            keep = {segment.number for segment in whole.segments}
            gone = [
                info.number
                for topic in state.topics.values()
                for info in topic.segments.view()
                if info.number not in keep
            ]
            missed: dict[int, list[SegmentInfo]] = {}
            for segment in whole.segments:
                owner = state.partitions[segment.partition][0]
                if segment.number not in owner.segments:
                    missed.setdefault(owner.info.number, []).append(segment)
            state.take_over(missed, gone, {p.number: p.sealed_index for p in whole.partitions}, whole.change)
            for number in gone:
                self.pool.forget(number)

    def _take(self, frames: list[Frame]) -> None:
        replay = Replay(self.state, None, self._clock)
        for frame in frames:
            replay.take(frame)
            self._tail.position = frame.end  # only now: an error or an interrupt must not lose the frame

    def snapshot(self, topic: Topic, partition: str | None) -> tuple[Snapshot, Pin]:
        """A snapshot of a topic as it is now. The pin is taken before the refresh: no file is deleted in between."""
        self.owner.check()
        pin = self.pins.take(self.state.change)
        try:
            self.refresh()
            return self.state.snapshot(topic, self.pins, partition)
        finally:
            pin.release()

    def close(self) -> None:
        """Release everything."""
        self.state.arrivals.end()
        self.pool.close()
        self.pins.close()
        self.manifest.close()
