"""Runs retention, compaction and erasure: as chores of the scheduler, and on demand."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from aggregator.base.reports import CompactionReport, Removed, RetentionReport
from aggregator.engine.ingest.quota import Quota
from aggregator.engine.seal.compaction import MergeLimits, merge_limits, merges_due, merges_possible
from aggregator.engine.seal.process import SealingProcess
from aggregator.engine.seal.sealer import SYSTEM_ERRORS, Sealer
from aggregator.engine.upkeep.ages import Ages
from aggregator.engine.upkeep.erasure import Erasures
from aggregator.engine.upkeep.removal import Removal, UnlessRemoved
from aggregator.engine.upkeep.retention import Expired, Retained, Space, expired, over_limit
from aggregator.engine.upkeep.rewrite import FirstError, Rewriter, Stopped
from aggregator.engine.upkeep.tier import Tier
from aggregator.engine.upkeep.topics import Topics
from aggregator.errors import SegmentMissingError
from aggregator.model import Problem, QuarantinedBatch, SegmentInfo
from aggregator.policy import Retention
from aggregator.storage.files.disk_reserve import wanted_bytes
from aggregator.storage.files.layout import segment_name
from aggregator.storage.files.usage import Usage, measure
from aggregator.storage.parts import Storage
from aggregator.storage.segments.file import file_checksum
from aggregator.storage.state.state import Topic
from aggregator.storage.state.streams import StreamIndex
from aggregator.storage.state.tombstones import erased_spaces

logger = logging.getLogger("aggregator")

SHARE_OF_TIME = 20
"""Searching for segments to merge takes at most 1/SHARE_OF_TIME of a thread's time."""
WAITING_SHARE = 5
"""Files that wait for scans cause no removal of others, which would not free space. If they exceed 1/WAITING_SHARE of a
limit, nothing is merged that would make more of them wait, and a warning is logged."""
LOG_SHARE = 4
"""The log counts for at most 1/LOG_SHARE of the catalog's limit, so that a backlog of sealing does not cause more old
events to be removed."""
_UNLIMITED = Retention()


class Upkeep:
    """Keeps a catalog within its limits and its segments few. Thread-safe."""

    def __init__(
        self,
        storage: Storage,
        quota: Quota,
        sealer: Sealer,
        streams: StreamIndex,
        merging: SealingProcess | None = None,
    ) -> None:
        """merging: the process that merges segments; None: threads of this process do."""
        self._state, self._manifest, self._log, self._sealer = storage.state, storage.manifest, storage.log, sealer
        self._layout, self._budget, self._limits = storage.layout, storage.budget, storage.limits
        self._clock, self._quota, self._reserve = storage.clock, quota, storage.reserve
        self._fan_in = storage.tuning.fan_in
        self.removal = Removal(storage, quota, streams)
        self._rewriter = Rewriter(storage.layout, storage.pool, sealer.take_number, merging)
        self.erasures = Erasures(storage, sealer, self._rewriter, self.removal, streams)
        self.topics = Topics(storage, sealer, self.removal, quota)
        self._retaining = Lock()
        self._compacting = Lock()
        self._looked: dict[int, tuple[object, ...]] = {}  # topic -> the state in which no merge was due
        self._look_after = 0.0
        self._unmergeable: set[int] = set()  # segments that could not be merged through their own fault
        self._ended: frozenset[int] = frozenset()  # the last segments whose merging ended the process
        self._merging = FirstError()  # of the last round of merges
        self.ages = Ages(storage.state, storage.manifest, storage.clock)
        self.tier = Tier(storage, self.removal, self.ages)
        self._warned_waiting = False

    def chores(self) -> tuple[Callable[[], None], ...]:
        """The functions that the scheduler calls regularly."""
        return self._retain_by_itself, self._compact_by_itself, self.tier.work

    def stop(self) -> None:
        """Abort long work soon: rewriting segments, isolating events that cannot be sealed, transfers to the store."""
        self._sealer.stopping = self.tier.stopping = True
        self._rewriter.stop()

    # ------------------------------------------------------------ retention

    def usage(self) -> Usage:
        """The catalog's disk usage."""
        return self._usage(self.tier.live())

    def _usage(self, segments: Iterable[SegmentInfo]) -> Usage:
        usage = measure(
            self._layout,
            segments=sum(s.size_bytes for s in segments if s.number not in self._state.evicted),
            waiting=self._quota.waiting(),
        )
        self._quota.quarantine_bytes = usage.quarantine
        return usage

    def retain(
        self, topics: Iterable[Topic] | None = None, *, dry_run: bool = False, instead: Retention | None = None
    ) -> RetentionReport:
        """Remove what the given topics' policies no longer keep. If `topics` is None: what the policies of all topics,
        and then the catalog's limits, no longer keep.

        instead: with dry_run, use this policy instead of the topics' own. Raises ManifestFailedError, OSError.
        """
        with self._retaining:
            to_delete = self._to_delete(topics, instead) if dry_run else self._retain(topics)
            usage = self.usage()
        return RetentionReport(tuple(self._removed(one) for one in to_delete), usage.total, usage.waiting, dry_run)

    def _retain(self, topics: Iterable[Topic] | None) -> list[Expired]:
        """Run one pass. Return what was removed."""
        done = self._remove(self._to_delete(topics))
        self.removal.sweep()
        self._warn_about_waiting()
        return done

    def _warn_about_waiting(self) -> None:
        """Warn once when open scans keep so many files that limits are exceeded."""
        waiting = self._quota.waiting()
        limits = [(self._limits.max_bytes, waiting)]
        for number, waiting_bytes in self._quota.waiting_by_topic().items():
            limits.append((self._state.topic_of(number).info.retention.bytes, waiting_bytes))
        much = any(limit is not None and size > limit // WAITING_SHARE for limit, size in limits)
        if much and not self._warned_waiting:
            logger.warning(
                "open scans keep %d bytes of removed segments: limits are exceeded until the scans end", waiting
            )
        self._warned_waiting = much

    def _to_delete(self, topics: Iterable[Topic] | None, instead: Retention | None = None) -> list[Expired]:
        now = self.ages.now()
        to_delete: list[Expired] = []
        remaining: list[Retained] = []
        quarantined = self._sealer.quarantine.batches()
        for topic in self._topics() if topics is None else topics:
            own_quarantined = [batch for batch in quarantined if self._state.partitions[batch.partition][0] is topic]
            kept: list[Retained] = [*self._segments(topic), *own_quarantined]
            of_topic = expired(kept, instead or topic.info.retention, now)
            chosen = {one.segment for one in of_topic}
            remaining += [one for one in kept if one not in chosen]
            to_delete += of_topic
        limited = self._limits.max_bytes is not None or self._limits.min_free_bytes is not None
        if topics is None and limited and not self.tier.has_store:  # which evicts files, and removes no events
            to_delete += self._over_all(remaining, sum(one.segment.size_bytes for one in to_delete))
        return to_delete

    def _over_all(self, remaining: list[Retained], freed_bytes: int) -> list[Expired]:
        """The part of `remaining` that the catalog's limits no longer keep, once `freed_bytes` are freed."""
        limit = self._limits.max_bytes
        live = [one for one in remaining if isinstance(one, SegmentInfo)]
        usage = self._usage(live)
        if limit is not None and usage.total - usage.waiting > limit:
            self._manifest.scrub()  # empty SQLite's own files before any event is removed
            usage = self._usage(live)
        other = usage.other
        if limit is not None:
            other -= max(0, usage.log - limit // LOG_SHARE)
        return over_limit(
            remaining, Space(limit, other, self._limits.min_free_bytes, usage.free + usage.waiting + freed_bytes)
        )

    def _remove(self, to_delete: list[Expired]) -> list[Expired]:
        """Retire these segments and batches, topic by topic. Return those that still existed."""
        done: list[Expired] = []
        by_reason: dict[tuple[int, str], list[Expired]] = {}
        for one in to_delete:
            topic, _ = self._state.partitions[one.segment.partition]
            by_reason.setdefault((topic.info.number, one.reason), []).append(one)
        for (number, reason), some in by_reason.items():
            topic = self._state.topic_of(number)
            segments = [one.segment for one in some if isinstance(one.segment, SegmentInfo)]
            batches = [one.segment for one in some if isinstance(one.segment, QuarantinedBatch)]
            deleted: set[Retained] = set(self.removal.retire(topic, segments, reason))
            deleted.update(self._sealer.quarantine.remove(batches))
            done += [one for one in some if one.segment in deleted]
            logger.info(
                "retention by %s removed %d segments and quarantined batches of topic %r",
                reason,
                len(deleted),
                topic.info.name,
            )
        return done

    def _removed(self, one: Expired) -> Removed:
        topic, partition = self._state.partitions[one.segment.partition]
        info = one.segment
        return Removed(
            topic.info.name, partition.name, info.number, info.rows, info.size_bytes, info.first_index,
            info.last_index, info.min_timestamp, info.max_timestamp, one.reason, isinstance(info, QuarantinedBatch),
        )  # fmt: skip

    def _retain_by_itself(self) -> None:
        limited = self._limits.max_bytes is not None or self._limits.min_free_bytes is not None
        if limited or any(topic.info.retention != _UNLIMITED for topic in self._topics()):
            with self._retaining:
                self._retain(None)
        else:
            self.removal.sweep()
        self.keep_reserve()
        self.ages.note()

    def keep_reserve(self) -> None:
        """Maintain the reserve for a full disk, once there is something that could be removed. Raises OSError."""
        if self._state.segment_bytes or self._reserve.spent:
            limits = (self._limits.max_bytes, self._limits.disk_bytes)
            self._reserve.keep(wanted_bytes(self._manifest.size_bytes, self._state.segment_bytes, limits))

    # ------------------------------------------------------------ compaction

    def compact(self, topics: Iterable[Topic] | None = None) -> CompactionReport:
        """Merge what can be merged, and delete hidden events from disk. Raises OSError, AggregatorError, EsdbError."""
        chosen = list(self._topics() if topics is None else topics)
        return self._reserve.help(lambda: self._compact(chosen))

    def _compact(self, chosen: Sequence[Topic]) -> CompactionReport:
        merged = made = written = 0
        erased: list[str | bytes] = []
        errors = FirstError()
        with self._compacting:
            rewritten = self.erasures.rewritten
            if any(erased_spaces(topic.tombstones) for topic in chosen):
                self._seal_all(errors)  # else the log would keep erased events until the others are sealed
            for topic in chosen:
                with errors:
                    erased += [_shown(topic, space) for space in self.erasures.advance(topic)]
                while groups := merges_possible(self._mergeable(topic), self._merge_limits(topic)):
                    before = made
                    for group in groups:
                        info = None
                        with errors, self._passing_over(group):
                            info = self._merge(topic, group)
                        if info is not None:
                            merged, made, written = merged + len(group), made + 1, written + info.size_bytes
                    if made == before:  # no room within the limits
                        break
            self.removal.sweep()
            errors.raise_first()
        remaining = {_shown(topic, space) for topic in chosen for space in erased_spaces(topic.tombstones)}
        return CompactionReport(
            merged, made, written, self.erasures.rewritten - rewritten, tuple(erased), tuple(sorted(remaining, key=str))
        )

    def _compact_by_itself(self) -> None:
        errors = FirstError()
        with self._compacting, contextlib.suppress(Stopped):
            for topic in self._topics():
                with errors:
                    self.erasures.advance(topic)
            self._manifest.scrub_again()
            if _seconds() >= self._look_after:
                self._merging = FirstError()
                for topic in self._topics():
                    self._rewriter.go_on()  # there may be thousands of topics
                    with self._merging:
                        self._merge_due(topic)
            errors.raise_first()
            self._merging.raise_first()

    def _merge_due(self, topic: Topic) -> None:
        if topic.info.retention.counts_segments:  # merging would change the count
            return
        while self._budget.is_at_ease:  # else sealing needs the processor
            began = _seconds()
            view = topic.segments.view()
            now = (len(view.infos), len(view), frozenset(topic.tombstones), self._merge_limits(topic))
            if self._looked.get(topic.info.number) == now:
                return
            groups = self._merges_due(topic)
            if not groups:
                self._looked[topic.info.number] = now
            merged = False
            for group in groups:
                with self._merging, self._passing_over(group):
                    merged |= self._merge(topic, group) is not None
            if not merged:  # nothing is due, or there is no room, or segments are unreadable
                self._look_after = max(self._look_after, _seconds() + SHARE_OF_TIME * (_seconds() - began))
                return

    def waiting_to_merge(self, topic: Topic) -> int:
        """Number of segments that are due to be merged."""
        if topic.info.retention.counts_segments:
            return 0
        return sum(map(len, self._merges_due(topic)))

    def _has_room(self, topic: Topic, size_bytes: int) -> bool:
        """Whether the disk has room for a merged segment beside its inputs and the segments that wait for scans."""
        for kept, waiting in (
            (self._limits.max_bytes, self._quota.waiting()),
            (topic.info.retention.bytes, self._quota.waiting_by_topic()[topic.info.number]),
        ):
            if kept is not None and waiting + size_bytes > kept // WAITING_SHARE:
                return False
        return self._quota.disk_refusal(size_bytes) is None

    def _mergeable(self, topic: Topic) -> list[SegmentInfo]:
        """Segments that can be merged, in partitions where nothing waits to be erased."""
        busy = {number for number, _ in topic.tombstones}
        return [
            segment
            for segment in self._segments(topic)
            if segment.partition not in busy and segment.number not in self._unmergeable
        ]

    @contextmanager
    def _passing_over(self, group: list[SegmentInfo]) -> Iterator[None]:
        """If segments cannot be merged through their own fault, report it once and skip them in later merges."""
        try:
            yield
        except (*SYSTEM_ERRORS, SegmentMissingError, MemoryError):
            raise
        except Exception as error:
            numbers = frozenset(one.number for one in group)
            if getattr(error, "ended", False) and self._ended != numbers:
                self._ended = numbers  # only a second time are the segments blamed
                raise
            damaged = [one for one in group if self._is_damaged(one)]
            for one in damaged or group:
                self._unmergeable.add(one.number)
                message = f"it cannot be merged with others: {type(error).__name__}: {error}"
                logger.warning("%s: %s; skipped", self._layout.segment(one.number), message)
                self._manifest.add_problem(Problem(segment_name(one.number), message, "skipped", self._clock()))

    def _is_damaged(self, segment: SegmentInfo) -> bool:
        """Whether the file of a segment is damaged. An evicted segment counts as undamaged: it is checked elsewhere."""
        try:
            return file_checksum(self._layout.segment(segment.number)) != segment.checksum
        except FileNotFoundError:
            return False

    def _merge(self, topic: Topic, group: list[SegmentInfo]) -> SegmentInfo | None:
        """Merge a group and replace it with the result; None if there is no room, or part of the group was removed."""
        if not all(segment.number in topic.segments for segment in group):
            return None
        _, partition = self._state.partitions[group[0].partition]
        if not self._has_room(topic, sum(segment.size_bytes for segment in group)):
            return None
        info = None
        with UnlessRemoved(topic, group):
            info = self._rewriter.merge(topic, partition, group)
        if info is None:
            return None
        if not self.removal.replace(topic, group, [info], "compacted"):
            self.removal.discard([info])
            return None
        self.removal.sweep()
        return info

    # ------------------------------------------------------------ contents

    def _topics(self) -> list[Topic]:
        return list(self._state.topics.values())

    def _segments(self, topic: Topic) -> list[SegmentInfo]:
        with self._state.view_lock:
            view = topic.segments.view()
        return list(view)

    def _merges_due(self, topic: Topic) -> list[list[SegmentInfo]]:
        return merges_due(self._mergeable(topic), self._merge_limits(topic), self._fan_in)

    def _merge_limits(self, topic: Topic) -> MergeLimits:
        return merge_limits(topic.info.retention, self._limits)

    def _seal_all(self, errors: FirstError) -> None:
        for topic, partition in list(self._state.partitions.values()):
            with errors:
                self._sealer.seal(topic, partition)


def _shown(topic: Topic, space: bytes) -> str | bytes:
    return space if topic.binary_keys else space.decode()


def _seconds() -> float:
    """A monotonic time in seconds."""
    return time.monotonic()
