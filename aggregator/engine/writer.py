"""The writer engine: a catalog that is open for writing, with its lock, log, threads and crash recovery."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from aggregator.base.forked import Owner
from aggregator.base.memory_budget import Budget
from aggregator.engine.ingest.append import Ingest
from aggregator.engine.ingest.quota import Quota
from aggregator.engine.ingest.reserve import where_written
from aggregator.engine.recovery.check import ConsistencyCheck
from aggregator.engine.recovery.replay import Replay
from aggregator.engine.seal.poison import Quarantine
from aggregator.engine.seal.process import PREFIX, PROCESSES_SUPPORTED, SealingProcess
from aggregator.engine.seal.sealer import Sealer
from aggregator.engine.upkeep.scheduler import Scheduler
from aggregator.engine.upkeep.upkeep import LOG_SHARE, Upkeep
from aggregator.errors import CatalogLockedError, CorruptManifestError, InvalidRequestError
from aggregator.model import Problem
from aggregator.policy import Durability, Limits, StoreSettings, Tuning
from aggregator.storage.files.disk_reserve import DiskReserve
from aggregator.storage.files.following import read_following
from aggregator.storage.files.layout import Layout, make_directory, segment_files
from aggregator.storage.files.lock import WriterLock
from aggregator.storage.files.modes import change_modes
from aggregator.storage.files.pins import Pin, Pins
from aggregator.storage.files.staging import sweep
from aggregator.storage.files.staging import undo as undo_adding
from aggregator.storage.files.store_note import read_note, refuse_followers
from aggregator.storage.log.file import Marks
from aggregator.storage.log.log import Log
from aggregator.storage.log.recovery import Recovered
from aggregator.storage.manifest import (
    IDENTITY,
    LOST,
    UNSYNCED,
    WRITTEN,
    IncarnationRows,
    Manifest,
    StoredRows,
    refuse_foreign_directory,
)
from aggregator.storage.manifest.backup import ManifestBackup
from aggregator.storage.parts import Storage
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import CatalogState, Snapshot, Topic
from aggregator.storage.state.streams import StreamIndex
from aggregator.storage.store.objects import Objects, open_store
from esformat import ClosedError, EsdbError

if TYPE_CHECKING:
    from aggregator.engine.shipping.shipper import Shipper

MIN_BYTES = 1 << 20
PUT_AT_CLOSE_BYTES = 256 << 20
"""Segments of at most this total size are uploaded before a catalog is closed: a few seconds' worth."""
UNSHIPPED = 1 << 32
"""Number of record indexes that each partition skips after a catalog is restored from a store: a writer may have
assigned them to events that it had not shipped. Its log cannot have had that many unshipped events.
"""
SEALING = ("thread", "process") if PROCESSES_SUPPORTED else ("thread",)
"""Where segments can be written on this system."""


def now_us() -> int:
    """The current time, in µs since the epoch."""
    return time.time_ns() // 1000


def _never_back(clock: Callable[[], int], newest_us: int) -> Callable[[], int]:
    """A strictly increasing clock for the times of seals, so that retention knows which segment came first."""
    lock = Lock()

    def later() -> int:
        nonlocal newest_us
        with lock:
            newest_us = max(newest_us + 1, clock())
            return newest_us

    return later


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _kept_bytes(limits: Limits) -> int | None:
    """Maximum size of the catalog on disk; None if unlimited."""
    return min((each for each in (limits.max_bytes, limits.disk_bytes) if each is not None), default=None)


def _check_limits(limits: Limits) -> None:
    """Raise InvalidRequestError for limits that can never work."""
    for name in ("max_bytes", "disk_bytes"):
        given = getattr(limits, name)
        if given is not None and given < MIN_BYTES:
            raise InvalidRequestError(
                f"{name} of a catalog must be at least {MIN_BYTES:,}, not {given:,}",
                hint="manifest and log alone need more",
            )
    if limits.disk_bytes is not None and limits.disk_bytes <= (limits.max_bytes or 0):
        raise InvalidRequestError(
            f"disk_bytes {limits.disk_bytes:,} must be more than max_bytes {limits.max_bytes:,}",
            hint="appends are refused at disk_bytes: leave room for retention to remove the oldest segments first",
        )


def _sealing_limits(limits: Limits) -> Limits:
    """The limits that decide when to seal: the log must leave room for segments, but no append is refused for that."""
    kept = _kept_bytes(limits)
    return limits if kept is None else replace(limits, log_bytes=min(limits.log_bytes, kept // LOG_SHARE))


def _refuse_follower(layout: Layout) -> None:
    """Raise CatalogLockedError if the directory is a copy that follows a server."""
    note = read_following(layout.following)
    if note is not None:
        raise CatalogLockedError(
            f"the directory follows {note.url or 'a server'} and cannot be written otherwise",
            path=str(layout.root),
            hint="open it for reading, or make it independent with `aggregator promote DIR`",
            holder={},
        )


class WriterEngine:
    """The engine of a catalog that is open for writing: lock, log and threads."""

    def __init__(
        self,
        layout: Layout,
        durability: Durability,
        limits: Limits,
        clock: Callable[[], int],
        *,
        sealing: str = "thread",
        file_mode: int | None = None,
        tuning: Tuning | None = None,
        store: Callable[[StoreSettings | None], StoreSettings | None] = lambda before: before,
    ) -> None:
        """Open the catalog and recover from a crash. sealing: write segments in a "thread" or a separate "process".
        file_mode: mode of all files; None: unchanged. store: maps the previous store settings to the new ones.

        Raises CatalogLockedError, CorruptManifestError, InvalidRequestError (a limit), OSError …
        """
        if sealing not in SEALING:
            raise InvalidRequestError(f"sealing must be {' or '.join(SEALING)}, not {sealing!r}")
        _check_limits(limits)
        self.layout, self.limits, self.durability, self._clock = layout, limits, durability, clock
        self._sealing, self._file_mode, self.tuning, self._choose_store = sealing, file_mode, tuning or Tuning(), store
        self._closed = False
        self.owner = Owner(layout.root)
        self.reserve = DiskReserve(layout.reserve)
        self.reserve.help(self._open)

    def _open(self) -> None:
        layout = self.layout
        refuse_foreign_directory(layout)
        refuse_followers(layout)
        _refuse_follower(layout)
        with ExitStack() as undoing:  # closes everything if anything fails
            self.lock = WriterLock(layout.writer_lock, lambda: self.manifest.is_mine())
            undoing.callback(self.lock.release)
            if not _has_content(layout.manifest) and (segment_files(layout) or _has_content(layout.facts)):
                raise CorruptManifestError(
                    "the manifest is missing or empty, but segments or facts exist",
                    path=str(layout.manifest),
                    hint="restore it, or run `aggregator rebuild-manifest` on the catalog",
                )
            self.manifest = Manifest(layout.manifest, help=self.reserve.help)
            undoing.callback(self.manifest.close)
            self.manifest.claim()
            if self._file_mode is not None:
                change_modes(layout.root, self._file_mode)
            self.sealing_process: SealingProcess | None = None
            self.merging_process: SealingProcess | None = None
            sweep(layout, PREFIX)
            if self._sealing == "process":
                self.sealing_process = SealingProcess(layout)
                self.merging_process = SealingProcess(layout, begin=False, called="merging")
                undoing.callback(self._end_processes)
            self._begin(undoing)
            undoing.pop_all()

    def _begin(self, undoing: ExitStack) -> None:
        """Create the parts of the catalog, each from those before it."""
        before = self._settle_store()
        try:
            self.shipper = self._attach()
        except EsdbError:
            self._forget_new_store(before)
            raise
        if self.shipper is not None:
            undoing.callback(self.shipper.stop)
            self.shipper.keep_lease()
        recovered, unsealed_bytes = self._recover()
        self._open_files(undoing, recovered)
        self._make_storage(unsealed_bytes)
        self._make_sealing()
        self.sealer.pass_unreadable()
        self._note_opening()
        self.backup.write_all()
        with suppress(OSError):  # upkeep tries again
            self.sealer.release_log()  # log files that a crash left undeleted
        self._make_intake()
        if self.shipper is not None:
            self._begin_shipping(self.shipper)

    def _attach(self) -> Shipper | None:
        """Take the catalog in its store for this process to write to. Return its shipper; None without a store."""
        in_store, settings = self.durability.mode == "store", self.store
        if settings is None:
            if in_store:
                raise InvalidRequestError('durability="store" needs a store', hint="pass its address as store=…")
            return None
        from aggregator.engine.shipping.attach import attach  # imported here: most catalogs have no store
        from aggregator.engine.shipping.shipper import Shipper

        if self.manifest.get(IDENTITY) is None:
            self.manifest.put(IDENTITY, secrets.token_hex(8))
        make_directory(self.layout.log)
        lease_s = settings.shipping.lease_us / 1e6
        store = open_store(settings.address, lease_s)
        attached = attach(self.layout, store, lease_s, self.manifest.get(IDENTITY) or "", in_store=in_store)
        return Shipper(attached, settings.shipping, in_store=in_store)

    def _begin_shipping(self, shipper: Shipper) -> None:
        noted, write_backup = self.manifest.note_change, self.manifest.write_backup
        tier, lease_s = self.upkeep.tier, shipper.lease.terms.length_s

        def note(change: int) -> None:
            noted(change)
            shipper.note_change(facts=self.manifest.has_changed)

        def write_and_publish() -> bool:
            write_backup()
            return shipper.publish_backup(lease_s)

        self.manifest.note_change, self.manifest.write_backup = note, write_and_publish
        shipper.push = tier.bring
        tier.kept, tier.check_ownership, tier.announce = shipper.kept, shipper.check_ownership, shipper.announce
        self.upkeep.removal.lingers = shipper.lingers
        tier.clean_store = lambda dry_run: shipper.clean_up(dry_run=dry_run)
        shipper.start(self)
        if not self.state.segment_bytes:  # else readers find the catalog once all its segments are uploaded
            shipper.note_change(facts=True)
            shipper.publish_backup(lease_s)

    def _settle_store(self) -> StoreSettings | None:
        """Save the store settings and return the previous ones. Raises InvalidRequestError if a new store lacks
        segments of the previous one.
        """
        rows = StoredRows(self.manifest)
        before = rows.settings()
        self.store = self._choose_store(before)
        self.objects = Objects(lambda: self.store, self.layout.cache, read_only=False)
        if self.store is None or self.store == before:
            return before
        self.objects.store  # noqa: B018  raises for an invalid address
        if before is not None and before.address != self.store.address and self.objects.lacking(rows.all()):
            raise InvalidRequestError(
                f"segments of the catalog are in {before.address}, but not all of them in {self.store.address}",
                path=str(self.layout.root),
                hint="copy the objects there first, with the store's own tools",
            )
        rows.set_settings(self.store)
        return before

    def _forget_new_store(self, before: StoreSettings | None) -> None:
        """Restore the previous store settings if the new store could not be attached and nothing was begun there."""
        note, given = read_note(self.layout), None if self.store is None else self.store.address
        if given != (None if before is None else before.address) and (note is None or note.address != given):
            StoredRows(self.manifest).set_settings(before)

    def _recover(self) -> tuple[Recovered, int]:
        """Load and check the state from manifest and log. Return what was recovered from the log, and the bytes of
        unsealed events.
        """
        layout, manifest, clock = self.layout, self.manifest, self._clock
        for directory in (layout.log, layout.segments):
            make_directory(directory)
        change, noted = manifest.change(), Marks.read(layout.log).change or 0
        if change < noted:
            manifest.count_from(noted + 1)  # else readers mistake two changes for one, or miss a new file
        self.state = CatalogState(manifest.load())
        sealed = self.state.sealed()
        for entry in manifest.producers():
            self.state.partitions[entry.partition][1].keep_producer(entry)
        undo_adding(layout, {info.number for topic in self.state.topics.values() for info in topic.segments.view()})
        self.startup = ConsistencyCheck(layout, self.state, manifest, clock, change, self.objects)
        self.startup.check_manifest(noted)
        self.startup.check_segments()
        replay = Replay(self.state, manifest, clock)
        recovered = replay.run(layout.log)
        self.startup.report_log(recovered, replay)
        for file in recovered.files:  # unknown partitions are never sealed
            file.ends = {number: end for number, end in file.ends.items() if number in self.state.partitions}
        self.backup = ManifestBackup(layout, manifest, clock)
        self.startup.check_backup(self.backup.change)
        self.startup.report_missing()
        self.quarantine = Quarantine(layout, self.state, manifest, clock)
        self.quarantine.check(sealed, self.startup.is_in_log)
        self._skip_reserved_indexes(recovered)
        return recovered, replay.size_bytes

    def _open_files(self, undoing: ExitStack, recovered: Recovered) -> None:
        layout = self.layout
        self.pins = Pins(layout.reader_locks, read_only=False)
        undoing.callback(self.pins.close)
        self.pool = SegmentPool(layout, self.objects)
        undoing.callback(self.pool.close)
        file_bytes = min(
            self.tuning.log_file_bytes, _sealing_limits(self.limits).log_bytes // 8
        )  # so that the last file is a small part of the budget
        self.log = Log(
            layout.log,
            self.durability,
            files=recovered.files,
            position=recovered.position,
            file_bytes=file_bytes,
            guard=self.lock,
            shipping=self.shipper,
        )
        undoing.callback(self.log.close)
        self.manifest.note_change = self.log.note_change
        self.log.note_change(self.manifest.change())

    def _make_storage(self, unsealed_bytes: int) -> None:
        """Create the storage that the later parts share, and the memory budget and quota."""
        self.budget = Budget(self.limits.memory_bytes, lambda: self.scheduler.sealing_problem())
        self.budget.add_existing(unsealed_bytes)
        self._storage = Storage(
            self.layout, self.state, self.manifest, self.log, self.pins, self.pool, self.objects, self.reserve,
            self.budget, self.limits, self.durability, self.tuning, self._clock,
        )  # fmt: skip
        self.quota = Quota(self._storage, lambda: self.scheduler.wake())

    def _make_sealing(self) -> None:
        """Create the sealer, the index of streams, and upkeep."""
        manifest = self.manifest
        segments = [segment for topic in self.state.topics.values() for segment in topic.segments.view()]
        taken = [self.startup.last_number, *(number for number, _, _ in manifest.retired())]
        taken += [segment.number for segment in segments]
        newest_us = max((segment.created_us for segment in segments), default=0)
        self.sealer = Sealer(
            self._storage,
            self.quarantine,
            kept_bytes=_kept_bytes(self.limits),
            next_segment=max(taken) + 1,
            clock=_never_back(self._clock, newest_us),
            write=None if self.sealing_process is None else self.sealing_process.write_segment,
        )
        self.streams = StreamIndex(self.state, manifest, self.pool, self.refresh, self.snapshot)
        self.upkeep = Upkeep(self._storage, self.quota, self.sealer, self.streams, self.merging_process)

    def _note_opening(self) -> None:
        """Record in the manifest how the catalog is written, and begin its next incarnation."""
        manifest, layout = self.manifest, self.layout
        manifest.put(UNSYNCED, str(int(not self.durability.is_synced)))
        manifest.put(WRITTEN, where_written(layout.log))
        if manifest.get(IDENTITY) is None:
            manifest.put(IDENTITY, secrets.token_hex(8))
        incarnations = IncarnationRows(manifest)
        next_indexes = {number: partition.next_index for number, (_, partition) in self.state.partitions.items()}
        incarnations.begin(next_indexes, known=not self.startup.is_old_copy)
        self.state.lineage = incarnations.lineage()

    def _make_intake(self) -> None:
        """Create the scheduler, which seals in time, and what appends events."""
        chores = (*self.upkeep.chores(), self.streams.keep, self.backup.try_to_write)
        self.scheduler = Scheduler(self._storage, self.sealer, limits=_sealing_limits(self.limits), chores=chores)
        self.ingest = Ingest(
            self._storage, self.quota, roll_bytes=self.sealer.roll_bytes, wake=self.scheduler.wake, shipper=self.shipper
        )

    def _skip_reserved_indexes(self, recovered: Recovered) -> None:
        """Skip the record indexes that the last run reserved if it did not sync and did not close: events that it
        acknowledged may be lost, and their record indexes must not be reused.
        """
        if self.manifest.get(LOST):  # restored from a store that may lack events
            for _, partition in self.state.partitions.values():
                partition.reserved_index = max(partition.reserved_index, partition.next_index + UNSHIPPED)
        partitions = [partition for _, partition in self.state.partitions.values() if partition.reserved_index]
        holes = {p.number: (p.next_index, p.reserved_index) for p in partitions if p.next_index < p.reserved_index}
        if self._has_all(recovered):
            holes = {}
        if partitions:
            self.manifest.skip_indexes(holes)
        for partition in partitions:
            partition.reserved_index = 0
            if partition.number in holes:
                partition.skip_indexes((*partition.holes, holes[partition.number]))
        if self.manifest.get(LOST):
            self.manifest.put(LOST, "")

    def _has_all(self, recovered: Recovered) -> bool:
        """Whether the log has everything that was acknowledged: the kernel that was written to still runs, and the log
        is undamaged.
        """
        written = where_written(self.layout.log)
        return (
            self.manifest.get(WRITTEN) == written != ""
            and recovered.marked
            and not (recovered.damages or recovered.gaps or self.startup.is_old_copy)
        )

    def stop_background(self) -> None:
        """Stop the background threads. Appends are still accepted while there is room."""
        if self.shipper is not None:
            self.shipper.stop_waiting_for_store()
        self.upkeep.stop()
        self.scheduler.stop()

    def close(self) -> None:
        """Stop the threads, sync the log and release everything, even if some steps fail."""
        with ExitStack() as closing:  # callbacks run in reverse order
            closing.callback(self.lock.release)
            closing.callback(self.manifest.close)
            closing.callback(self.pins.close)
            closing.callback(self.pool.close)
            closing.callback(self._end_processes)
            closing.callback(self._close_shipper)
            closing.callback(self._close_log)
            self.state.arrivals.end()
            if self.shipper is not None:
                self.shipper.stop()
            self.stop_background()
            with suppress(EsdbError, OSError):  # the next opening looks up what the manifest lacks
                self.streams.keep(closing=True)
            with suppress(EsdbError, OSError):  # then the note of a minute ago stays
                self.upkeep.ages.note()
            self.backup.write()
            with suppress(OSError):  # the next opening tries again
                self.upkeep.keep_reserve()

    def _close_log(self) -> None:
        try:
            self.log.close()
            if self.log.failure is None and not self.durability.is_synced:
                with suppress(CatalogLockedError):  # another process has it by now: this run counts as interrupted
                    self.manifest.skip_indexes({})
                    self.manifest.put(UNSYNCED, "0")
                    self.backup.write()
        finally:
            self._closed = True

    def _close_shipper(self) -> None:
        """Upload what the store lacks. If the segments would take long, leave them to the next opening."""
        if self.shipper is not None:
            tier = self.upkeep.tier
            few = sum(info.size_bytes for info in tier.waiting()) <= PUT_AT_CLOSE_BYTES
            tier.stopping = False
            self.shipper.close(publish=few)

    def _end_processes(self) -> None:
        for each in (self.sealing_process, self.merging_process):
            if each is not None:
                each.close()

    @property
    def address(self) -> str:
        """The path that opens the catalog in other processes."""
        return str(self.layout.root)

    def refresh(self) -> None:
        """Only check that the catalog is open: a writer is always up to date. Raises ClosedError."""
        self.owner.check()
        if self._closed:
            raise ClosedError("the catalog is closed", path=str(self.layout.root), hint="open it again")

    def shipping(self) -> dict[str, Any] | None:
        """How far the store is behind, as JSON values; None without a store."""
        return None if self.shipper is None else self.shipper.facts()

    def problems(self) -> list[Problem]:
        """Problems found in the catalog, oldest first."""
        return self.manifest.problems()

    def snapshot(self, topic: Topic, partition: str | None) -> tuple[Snapshot, Pin]:
        """A snapshot of a topic, or of one of its partitions. Raises ClosedError."""
        self.refresh()
        return self.state.snapshot(topic, self.pins, partition)
