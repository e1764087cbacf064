"""A catalog that is open for writing: the lock, the log, the threads, and what a crash left brought back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from aggregator.budget import Budget
from aggregator.errors import CorruptManifestError
from aggregator.files import Layout, make_directory, segment_files
from aggregator.ingest import Ingest
from aggregator.lock import WriterLock
from aggregator.log import FILE_BYTES, Log
from aggregator.maintenance import Maintenance
from aggregator.manifest import Manifest
from aggregator.model import Problem
from aggregator.pins import Pin, Pins
from aggregator.policy import Durability, Limits
from aggregator.replay import Replay
from aggregator.sealing import Sealer
from aggregator.segment_pool import SegmentPool
from aggregator.state import CatalogState, Snapshot, Topic

LOST_INDEXES = 1 << 32
"""Record indexes passed over after a crash where the kernel may have lost acknowledged events: none is given twice."""
_RUN = "run"


def now_us() -> int:
    """The time: µs since the epoch."""
    return time.time_ns() // 1000


class Writing:
    """What a catalog has that is open for writing: the lock, the log, the threads."""

    def __init__(self, layout: Layout, durability: Durability, limits: Limits, clock: Callable[[], int]) -> None:
        """Open, and bring back what a crash left. Raises CatalogLockedError, CorruptManifestError, OSError …"""
        self.layout, self.limits, self.durability, self._clock = layout, limits, durability, clock
        self.lock = WriterLock(layout.writer_lock)
        try:
            if not layout.manifest.exists() and segment_files(layout):
                raise CorruptManifestError(
                    "the manifest is missing, and there are segments",
                    path=str(layout.manifest),
                    hint="restore it, or run `aggregator rebuild-manifest` on the catalog",
                )
            self.manifest = Manifest(layout.manifest)
            try:
                self._open()
            except BaseException:
                self.manifest.close()
                raise
        except BaseException:
            self.lock.release()
            raise

    def _open(self) -> None:
        layout, manifest, clock = self.layout, self.manifest, self._clock
        for directory in (layout.log, layout.segments):
            make_directory(directory)
        contents = manifest.load()
        self.state = CatalogState(contents)
        for entry in manifest.producers():
            self.state.partitions[entry.partition][1].keep_producer(entry)
        replay = Replay(self.state, manifest, clock)
        recovered = replay.run(layout.log)
        for damage in recovered.damages:
            manifest.add_problem(
                Problem(f"log/{damage.path.name}", f"{damage.message} (at byte {damage.offset})", "reported", clock())
            )
        self._pass_over_lost_indexes()
        self.pins = Pins(layout.reader_locks, read_only=False)
        self.pool = SegmentPool(layout)
        file_bytes = min(FILE_BYTES, self.limits.log_bytes // 8)  # the last file takes no large part of the budget
        self.log = Log(
            layout.log, self.durability, files=recovered.files, position=recovered.position, file_bytes=file_bytes
        )
        self.budget = Budget(self.limits.memory_bytes)
        self.budget.take(replay.size_bytes)
        taken = [segment.number for segment in contents.segments] + [number for number, _, _ in manifest.retired()]
        taken += segment_files(layout)
        self.sealer = Sealer(
            self.state, manifest, self.log, layout, self.budget, next_segment=max(taken, default=0) + 1, clock=clock
        )
        self.maintenance = Maintenance(
            self.state, self.sealer, self.log, limits=self.limits, durability=self.durability, clock=clock
        )
        self.ingest = Ingest(
            self.state, manifest, self.log, self.budget, log_bytes=self.limits.log_bytes, clock=clock,
            wake=self.maintenance.wake,
        )  # fmt: skip
        manifest.put(_RUN, json.dumps({"durability": self.durability.mode, "closed": False}))

    def _pass_over_lost_indexes(self) -> None:
        """Where the last run ended without closing and did not sync, what it acknowledged may be gone."""
        run = json.loads(self.manifest.get(_RUN) or "{}")
        if not run.get("closed", True) and run.get("durability") != "fsync":
            for _, partition in self.state.partitions.values():
                if partition.next_index:
                    partition.next_index += LOST_INDEXES

    def close(self) -> None:
        """Stop the threads, sync the log, let go of everything."""
        try:
            self.maintenance.stop()
            self.log.close()
            if self.log.failure is None:
                self.manifest.put(_RUN, json.dumps({"durability": self.durability.mode, "closed": True}))
        finally:
            try:
                self.pool.close()
                self.pins.close()
                self.manifest.close()
            finally:
                self.lock.release()

    def refresh(self) -> None:
        """A writer is up to date."""

    def snapshot(self, topic: Topic, partition: str | None) -> tuple[Snapshot, Pin]:
        """What of a topic is there now."""
        return self.state.snapshot(topic, self.pins, partition)
