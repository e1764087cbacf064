"""Erased spaces, from the moment that they are hidden until nothing of them is left on disk.

A tombstone hides a space's events of a partition below a record index, durably. Then, in one order: unsealed events are
sealed without them; segments that hold them are rewritten; the log begins a new file, and the files before it go when
all in them is sealed; old segment files go when no scan reads them; the tombstone goes, and what the manifest kept of
the key is overwritten. Until then a crash costs nothing: the tombstone is still there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aggregator.footprint import Footprint
from aggregator.log import Log
from aggregator.manifest import Edit, Manifest
from aggregator.model import SegmentInfo, Tombstone
from aggregator.removal import Removal
from aggregator.reports import Erasure
from aggregator.rewriting import Rewriter
from aggregator.sealing import Sealer
from aggregator.segment_pool import SegmentPool
from aggregator.segment_table import Bounds
from aggregator.state import CatalogState, Partition, Topic


@dataclass(frozen=True, slots=True)
class _Clean:
    """No live segment holds the space: it is gone when the log begins at `position` or later, and every segment that
    was retired up to `change` has left the disk.
    """

    position: int
    change: int


class Erasures:
    """Hides spaces and sees to it that they go. `advance` is called by one thread at a time."""

    def __init__(
        self,
        state: CatalogState,
        manifest: Manifest,
        log: Log,
        sealer: Sealer,
        rewriter: Rewriter,
        removal: Removal,
        pool: SegmentPool,
        footprint: Footprint,
        clock: Callable[[], int],
    ) -> None:
        self._state, self._manifest, self._log, self._sealer = state, manifest, log, sealer
        self._rewriter, self._removal, self._pool, self._clock = rewriter, removal, pool, clock
        self._footprint = footprint
        self._clean: dict[tuple[int, bytes, int], _Clean] = {}
        self.rewritten = 0
        """Segments rewritten since the catalog was opened."""

    def hide(self, topic: Topic, space: bytes, events: int) -> Erasure:
        """Hide every event of a space that is visible now. `events`: how many, for the report."""
        state = self._state
        with state.edit_lock:
            with state.view_lock:
                ends = {p.number: p.visible_end for p in topic.partitions.values() if _may_hold(topic, p, space)}
            now = self._clock()
            stones = [Tombstone(number, space, end, now) for number, end in ends.items() if end]
            if stones:
                change = self._manifest.apply(Edit(tombstones=stones))
                with state.view_lock:
                    state.change = max(state.change, change)
                    for stone in stones:
                        state.add_tombstone(stone)
        names = {stone.partition: state.partitions[stone.partition][1].name for stone in stones}
        shown = space if topic.binary_keys else space.decode()
        return Erasure(topic.info.name, shown, {names[s.partition]: s.end_index for s in stones}, events)

    def advance(self, topic: Topic) -> list[bytes]:
        """Do what can be done now for the erased spaces of a topic; gives those that are gone now.

        Raises OSError, AggregatorError, esformat.EsdbError, Stopped; the next call goes on.
        """
        before = {space for _, space in topic.tombstones}
        for number in sorted({number for number, _ in topic.tombstones}):
            self._advance_partition(topic, self._state.partitions[number][1])
        if topic.tombstones:
            self._sealer.release_log()
            self._removal.sweep()
            self._fulfil(topic)
        return sorted(before - {space for _, space in topic.tombstones})

    def _advance_partition(self, topic: Topic, partition: Partition) -> None:
        stones = {space: end for (number, space), end in topic.tombstones.items() if number == partition.number}
        left = {space: end for space, end in stones.items() if (partition.number, space, end) not in self._clean}
        if not left:
            return
        if partition.sealed_index < max(left.values()):
            self._sealer.seal(topic, partition)
        for segment, spaces in self._holding(topic, partition, left).items():
            with self._footprint.making(topic, segment.size_bytes, urgent=True) as fits:
                if not fits:  # retention makes room; the next call goes on
                    return
                made = self._rewriter.without(topic, partition, segment, spaces)
                added = [] if made is None else [made]
                if self._removal.replace(topic, [segment], added, "erased"):
                    self.rewritten += 1
                else:
                    self._removal.discard(added)  # retention was quicker
            self._removal.sweep()
        clean = _Clean(self._log.end, self._state.change)
        held = {space for spaces in self._holding(topic, partition, left).values() for space in spaces}
        for space, end in left.items():
            if space not in held and partition.sealed_index >= end:
                self._clean[partition.number, space, end] = clean
        self._log.roll()

    def _holding(self, topic: Topic, partition: Partition, stones: dict[bytes, int]) -> dict[SegmentInfo, list[bytes]]:
        """Segments that hold erased events. Those that were sealed after a space was erased never do."""
        with self._state.view_lock:
            view = topic.segments.view()
        found: dict[SegmentInfo, list[bytes]] = {}
        for space, end in stones.items():
            for segment in view.select(Bounds(space=space, partition=partition.number, end_index=end)):
                if segment.last_index < end and self._pool.get(segment).find(space) is not None:
                    found.setdefault(segment, []).append(space)
        return found

    def _fulfil(self, topic: Topic) -> None:
        """Forget tombstones of which nothing is left on disk."""
        waiting = min((change for _, _, change in self._removal.waiting()), default=1 << 62)
        gone = []
        for (number, space), end in topic.tombstones.items():
            clean = self._clean.get((number, space, end))
            if clean is not None and self._log.start >= clean.position and waiting > clean.change:
                gone.append((number, space))
        if not gone:
            return
        with self._state.edit_lock:
            still = [key for key in gone if (*key, topic.tombstones[key]) in self._clean]
            change = self._manifest.apply(Edit(fulfilled=still))
            with self._state.view_lock:
                self._state.change = max(self._state.change, change)
                for key in still:
                    self._clean.pop((*key, topic.tombstones[key]))
                topic.tombstones = {key: end for key, end in topic.tombstones.items() if key not in still}
        self._manifest.scrub()


def _may_hold(topic: Topic, partition: Partition, space: bytes) -> bool:
    """Whether a partition can hold events of a space, by what is in memory. Under the view lock."""
    if partition.unsealed.pieces or partition.sealing is not None:
        return True
    return bool(topic.segments.view().select(Bounds(space=space, partition=partition.number)))
