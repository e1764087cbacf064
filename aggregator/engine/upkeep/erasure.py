"""Erases and truncates spaces: hides their events, then deletes them from disk.

A tombstone durably hides a space's events of a partition below a record index. Then, in this order:

1. unsealed events are sealed without the hidden ones;
2. quarantined batches and segments that contain hidden events are rewritten;
3. the log begins a new file, and the earlier files are deleted once everything in them is sealed;
4. old segment files are deleted once no scan reads them;
5. the tombstone is deleted, and what the manifest kept of the key is overwritten.

Until then a crash loses nothing: the tombstone is still there. Truncations of streams take the same steps, but do not
wait for the log and the old files, whose deletion they do not promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aggregator.base.reports import Erasure
from aggregator.engine.seal.sealer import Sealer
from aggregator.engine.upkeep.removal import Removal, UnlessRemoved
from aggregator.engine.upkeep.rewrite import FirstError, Rewriter
from aggregator.errors import StoreUnreachableError
from aggregator.model import LAST, Cut, SegmentInfo, Tombstone
from aggregator.storage.manifest import Edit
from aggregator.storage.parts import Storage
from aggregator.storage.segments.table import Bounds
from aggregator.storage.state.state import Partition, Topic
from aggregator.storage.state.streams import StreamIndex
from aggregator.storage.state.tombstones import Hidden, count_hidden, erased_spaces, hidden_in


@dataclass(frozen=True, slots=True)
class _Clean:
    """No live segment contains the space: it is gone once the log begins at `position` or later, and every segment that
    was retired up to `change` is deleted from disk.
    """

    position: int
    change: int


class Erasures:
    """Hides spaces and then deletes them. Only one thread at a time may call `advance`."""

    def __init__(
        self, storage: Storage, sealer: Sealer, rewriter: Rewriter, removal: Removal, streams: StreamIndex
    ) -> None:
        self._state, self._manifest, self._log, self._sealer = storage.state, storage.manifest, storage.log, sealer
        self._pool, self._clock = storage.pool, storage.clock
        self._rewriter, self._removal, self._streams = rewriter, removal, streams
        self._quarantine = sealer.quarantine
        self._clean: dict[tuple[int, bytes, Cut], _Clean] = {}
        self.rewritten = 0
        """Number of segments rewritten since the catalog was opened."""

    def hide(self, topic: Topic, space: bytes, events: int) -> Erasure:
        """Hide every event of a space that is visible now. `events`: their number, for the report.

        Raises StoreUnreachableError if the catalog's store does not know after a while.
        """
        state = self._state
        with self._quarantine.lock, state.edit_lock:
            topic.check_there()
            quarantined = {batch.partition for batch in self._quarantine.batches(topic)}
            waiting = bool(self._removal.waiting())  # whose files may also contain the space
            with state.view_lock:
                logged = self._log.partitions()
                ends = {
                    p.number: p.visible_end
                    for p in topic.partitions.values()
                    if waiting or p.number in logged or p.number in quarantined or _may_hold(topic, p, space)
                }
            now = self._clock()
            stones = [Tombstone(number, space, end, now) for number, end in ends.items() if end]
            self._put(stones)
        if self._manifest.write_backup() is False:
            raise StoreUnreachableError(
                "the events are hidden here, but not yet in the catalog's store: a takeover would bring them back",
                hint="erase the space again, to wait for the store",
            )
        names = {stone.partition: state.partitions[stone.partition][1].name for stone in stones}
        shown = space if topic.binary_keys else space.decode()
        return Erasure(topic.info.name, shown, {names[s.partition]: s.end_index for s in stones}, events)

    def truncate(self, cuts: Mapping[tuple[int, bytes], Cut]) -> None:
        """Hide the events that cuts cover, by partition and space. Raises ManifestFailedError; then none is hidden."""
        now = self._clock()
        with self._quarantine.lock, self._state.edit_lock:
            self._put(
                [
                    Tombstone(number, space, cut.end_index, now, cut.time_us, cut.tie_index)
                    for (number, space), cut in cuts.items()
                ]
            )
        self._manifest.write_backup()

    def _put(self, stones: Sequence[Tombstone]) -> None:
        """Store tombstones. Called under the edit lock."""
        stones = [stone for stone in stones if not self._state.partitions[stone.partition][0].leaving]
        if stones:
            change = self._manifest.apply(Edit(tombstones=stones))
            with self._state.view_lock:
                self._state.change = max(self._state.change, change)
                self._state.add_tombstones(stones)

    def advance(self, topic: Topic) -> list[bytes]:
        """Do everything possible now to delete a topic's hidden events. Return the erased spaces that are now gone.

        A segment that cannot be read delays only spaces that it may contain.
        Raises OSError, AggregatorError, esformat.EsdbError, Stopped; the next call continues.
        """
        before = erased_spaces(topic.tombstones)
        errors = FirstError()
        for number in sorted({number for number, _ in topic.tombstones}):
            with errors:
                self._advance_partition(topic, self._state.partitions[number][1], errors)
        if any(cut.erases and clean.position > self._log.newest for (_, _, cut), clean in self._clean.items()):
            self._log.roll()
        if topic.tombstones:
            self._sealer.release_log()
            self._removal.sweep()
            with errors:
                self._removal.remove_objects()
            self._fulfil(topic)
        errors.raise_first()
        return sorted(before - erased_spaces(topic.tombstones))

    def _advance_partition(self, topic: Topic, partition: Partition, errors: FirstError) -> None:
        remaining: dict[bytes, tuple[Cut, ...]] = {}
        for space, cuts in hidden_in(topic.tombstones, partition.number).items():
            own_cuts = tuple(cut for cut in cuts if (partition.number, space, cut) not in self._clean)
            if own_cuts:
                remaining[space] = own_cuts
        if not remaining:
            return
        if any(_reaches_unsealed(partition, cut) for cuts in remaining.values() for cut in cuts):
            self._sealer.seal(topic, partition)
        taken_out = False
        with errors:
            self._quarantine.erase(topic, partition, remaining)
            taken_out = True
        holding, _ = self._holding(topic, partition, remaining, errors)
        for segment, counts in holding.items():
            with errors, UnlessRemoved(topic, [segment]):
                made = self._rewritten(topic, partition, segment, {space: remaining[space] for space in counts}, counts)
                added = [] if made is None else [made]
                if self._removal.replace(topic, [segment], added, "erased"):
                    self.rewritten += 1
                else:
                    self._removal.discard(added)  # retention was faster
            self._removal.sweep()
        clean = _Clean(self._log.end, self._state.change)
        holding, unread = self._holding(topic, partition, remaining, errors)
        held = unread.union(*holding.values())
        for space, cuts in remaining.items():
            for cut in cuts:
                if taken_out and space not in held and not _reaches_unsealed(partition, cut):
                    self._clean[partition.number, space, cut] = clean

    def _rewritten(
        self, topic: Topic, partition: Partition, segment: SegmentInfo, hidden: Hidden, counts: Mapping[bytes, int]
    ) -> SegmentInfo | None:
        """The segment without its hidden events, of which it has some. Whole spaces take little encoding to remove."""
        source = self._pool.get(segment)
        whole = {space: found.num_events for space in counts if (found := source.find(space)) is not None}
        if whole == counts:
            return self._rewriter.without(topic, partition, segment, list(counts))
        return self._rewriter.without_hidden(topic, partition, segment, hidden)

    def _holding(
        self, topic: Topic, partition: Partition, hidden: Hidden, errors: FirstError
    ) -> tuple[dict[SegmentInfo, dict[bytes, int]], set[bytes]]:
        """Segments with hidden events, with their number for each space; and the spaces that may be in segments that
        cannot be read.

        A segment may extend beyond a cut and still have hidden events: it was begun before the cut was recorded.
        """
        with self._state.view_lock:
            view = topic.segments.view()
        near: dict[SegmentInfo, dict[bytes, tuple[Cut, ...]]] = {}
        for space, cuts in hidden.items():
            for cut in cuts:
                end = None if cut.time_us == LAST else cut.time_us + 1
                bounds = Bounds(space=space, partition=partition.number, end=end, end_index=cut.end_index)
                for segment in view.select(bounds):
                    near.setdefault(segment, {})[space] = cuts
        found: dict[SegmentInfo, dict[bytes, int]] = {}
        unread: set[bytes] = set()
        for segment, own_cuts in near.items():
            counts = None
            with errors, UnlessRemoved(topic, [segment]):
                counts = count_hidden(self._pool.get(segment), segment, own_cuts)
            if counts is None:
                unread.update(own_cuts)
            elif counts:
                found[segment] = counts
        return found, unread

    def _fulfil(self, topic: Topic) -> None:
        """Delete tombstones whose events are gone from every place that their erasure or truncation promises."""
        waiting = min((change for _, _, change in self._removal.waiting()), default=1 << 62)
        fulfilled = set()
        for (number, space), cuts in topic.tombstones.items():
            for cut in cuts:
                clean = self._clean.get((number, space, cut))
                if clean is None:
                    continue
                passed = self._log.start >= clean.position and waiting > clean.change
                if not cut.erases or (passed and not self._removal.lingers(clean.position)):
                    fulfilled.add((number, space, cut))
        if not fulfilled:
            return
        self._streams.forget_erased(topic)
        with self._state.edit_lock:
            change = self._manifest.apply(Edit(fulfilled=list(fulfilled)))
            self._manifest.write_backup()
            if any(cut.erases for _, _, cut in fulfilled):
                self._manifest.scrub()
            with self._state.view_lock:  # only now are they gone, including their keys
                self._state.change = max(self._state.change, change)
                remaining = {
                    key: [cut for cut in cuts if (*key, cut) not in fulfilled] for key, cuts in topic.tombstones.items()
                }
                topic.tombstones = {key: tuple(cuts) for key, cuts in remaining.items() if cuts}
            for one in fulfilled:
                del self._clean[one]


def _reaches_unsealed(partition: Partition, cut: Cut) -> bool:
    """Whether a cut may hide unsealed events. For an erased space, whether any events below the cut's end are unsealed:
    none may stay in the log.
    """
    if partition.sealed_index >= cut.end_index:
        return False
    if cut.erases:
        return True
    parts = [part for part in (partition.sealing, partition.memtable) if part is not None]
    return any(
        batch.first_index < cut.end_index and batch.min_timestamp <= cut.time_us
        for part in parts
        for batch in list(part.batches)
    )


def _may_hold(topic: Topic, partition: Partition, space: bytes) -> bool:
    """Whether unsealed events or segments of a partition may contain a space. Called under the view lock."""
    if partition.memtable.batches or partition.sealing is not None:
        return True
    return bool(topic.segments.view().select(Bounds(space=space, partition=partition.number)))
