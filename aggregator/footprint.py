"""What the catalog takes on disk and what is on its way there, counted as it changes; and who may add to it.

A limit of bytes holds at every moment because nothing is written that could break it. An append needs room twice: for
its frame in the log, and for the segment that its events become. A merged segment needs room beside those that it is
made from. What has no room is refused, and retention is told how much to make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

from aggregator.errors import OverloadedError
from aggregator.log import Log
from aggregator.manifest import Manifest
from aggregator.model import SegmentInfo
from aggregator.state import CatalogState, Partition, Topic

APPENDS, ALL = 1.03, 1.08
"""Shares of a limit: appends end at the first, so that a merge of a twentieth of the limit fits below the second. The
promise is 1.1: the rest is for what is not counted, such as directories and what SQLite writes just now."""
WAITING_SHARE = 5
"""Files that wait for scans count for retention up to one part in so many of a limit: a scan that never ends costs no
more events than that. Appends are refused where that is not enough."""
COMING_SHARE = 4
UNSEALED_SHARE = 2 * COMING_SHARE
"""A topic with a limit of bytes is sealed before its unsealed events take more than one part in so many of it."""
SEGMENT_BYTES = 4096
"""What a segment has beside its events, at most: its schema, footer, and the manifest's row of it."""
INDEX_SHARE = 8
"""Events that do not compress take more in a segment than in memory: indexes, at most one part in so many."""
SOON_S, WHEN_SCANS_END_S = 0.05, 1.0


class Footprint:
    """Bytes on disk, by what they are for. Safe to share between threads.

    Whatever moves bytes from one count to another adds before it subtracts, so that the sum is never too low.
    """

    def __init__(self, state: CatalogState, manifest: Manifest, log: Log, max_bytes: int | None) -> None:
        """max_bytes: of the catalog; None: no limit. Topics have limits of their own."""
        self._state, self._manifest, self._log, self.max_bytes = state, manifest, log, max_bytes
        self._lock = Lock()
        self._arriving = 0  # on its way into the log
        self._unsealed: Counter[int] = Counter()  # by topic, as `_making` and `_wanted`
        self._unsealed_bytes = 0
        self._holding: dict[int, set[int]] = {}  # partitions with unsealed events
        self._holding_count = 0
        self._making: Counter[int] = Counter()
        self._waiting: dict[int, tuple[int | None, int]] = {n: (None, size) for n, size, _ in manifest.retired()}
        self._waiting_bytes = sum(size for _, size in self._waiting.values())
        self._waiting_of: Counter[int | None] = Counter()
        self._wanted: Counter[int | None] = Counter()  # None: of the catalog
        self.quarantine_bytes = 0
        self.wake: Callable[[], None] = lambda: None
        """Called when retention has something to do."""
        for topic, partition in state.partitions.values():
            if partition.unsealed.pieces:
                self._hold(topic, partition, partition.unsealed.size_bytes)

    # ------------------------------------------------------------ what there is

    def total(self) -> int:
        """Bytes that the catalog takes, what its unsealed events will take included, but for merges under way."""
        on_disk = self._log.size_bytes + self._state.segment_bytes + self._waiting_bytes + self._manifest_bytes()
        return on_disk + self.quarantine_bytes + self._arriving + self.coming()

    def _manifest_bytes(self) -> int:
        return self._manifest.size_bytes + self._manifest.facts_bytes

    def coming(self, topic: Topic | None = None) -> int:
        """Bytes of the segments that unsealed events become, of one topic or of all: no less than that."""
        if topic is None:
            return _sealed_bytes(self._unsealed_bytes, self._holding_count)
        number = topic.info.number
        return _sealed_bytes(self._unsealed[number], len(self._holding.get(number, ())))

    def waiting(self, topic: Topic | None = None) -> int:
        """Bytes of retired segments whose files are still there, as scans read them."""
        return self._waiting_bytes if topic is None else self._waiting_of[topic.info.number]

    def total_of(self, topic: Topic) -> int:
        """Bytes that a topic's segments take, those that its unsealed events become included."""
        return topic.segments.size_bytes + self.waiting(topic) + self.coming(topic)

    def spare(self, topic: Topic | None = None) -> int:
        """Bytes below its limit that retention leaves free, in a topic or in all, for what is on its way.

        A topic's is sealed when it is a small part of the limit: of more than that, no old event need go for it.
        """
        limit = self.max_bytes if topic is None else topic.info.retention.max_bytes
        if limit is None:
            return 0
        coming = self.coming() if topic is None else min(self.coming(topic), limit // COMING_SHARE)
        wanted = self._wanted[None if topic is None else topic.info.number]
        return max(0, coming + wanted - int((APPENDS - 1) * limit))

    def made_room(self) -> None:
        """Retention looked at what was wanted."""
        with self._lock:
            self._wanted.clear()

    # ------------------------------------------------------------ appends

    def admit(self, topic: Topic, partition: Partition, size_bytes: int, frame_bytes: int) -> None:
        """Count a batch in: `logged` and, when it is sealed or came to nothing, `let_go` count it out.

        size_bytes: in memory. frame_bytes: in the log. Raises OverloadedError where the limit has no room for it.
        """
        with self._lock:
            self._hold(topic, partition, size_bytes)
            self._arriving += frame_bytes
            refusal = self._refusal(topic, _sealed_bytes(size_bytes, 1) + frame_bytes)
            if refusal is not None:
                self._let_go(topic, partition, size_bytes)
                self._arriving -= frame_bytes
        if refusal is not None:
            self.wake()
            raise refusal

    def _refusal(self, topic: Topic, needed_bytes: int) -> OverloadedError | None:
        of_topic, of_all = topic.info.retention.max_bytes, self.max_bytes
        if of_topic is not None:
            total = self.total_of(topic)
            if total > APPENDS * of_topic or total + self._making[topic.info.number] > ALL * of_topic:
                self._want(topic.info.number, needed_bytes)
                parts = {"segments": topic.segments.size_bytes, "unsealed events": self.coming(topic)}
                return _refused(f"topic {topic.info.name!r}", total, of_topic, parts, self.waiting(topic))
            if total > of_topic:
                self.wake()
        if of_all is not None:
            total = self.total()
            if total > APPENDS * of_all or total + self._making.total() > ALL * of_all:
                self._want(None, needed_bytes)
                parts = {
                    "segments": self._state.segment_bytes, "unsealed events": self.coming(),
                    "the log": self._log.size_bytes, "the manifest": self._manifest_bytes(),
                    "quarantine": self.quarantine_bytes,
                }  # fmt: skip
                return _refused("the catalog", total, of_all, parts, self._waiting_bytes)
            if total > of_all:
                self.wake()
        return None

    def _want(self, who: int | None, size_bytes: int) -> None:
        self._wanted[who] = max(self._wanted[who], size_bytes)

    def _hold(self, topic: Topic, partition: Partition, size_bytes: int) -> None:
        self._unsealed[topic.info.number] += size_bytes
        self._unsealed_bytes += size_bytes
        holding = self._holding.setdefault(topic.info.number, set())
        if partition.number not in holding:
            holding.add(partition.number)
            self._holding_count += 1

    def _let_go(self, topic: Topic, partition: Partition, size_bytes: int) -> None:
        self._unsealed[topic.info.number] -= size_bytes
        self._unsealed_bytes -= size_bytes
        holding = self._holding[topic.info.number]
        if partition.number in holding and not partition.unsealed.pieces and partition.sealing is None:
            holding.remove(partition.number)
            self._holding_count -= 1

    def logged(self, frame_bytes: int) -> None:
        """A batch that was admitted is in the log's own count now, or will never be."""
        with self._lock:
            self._arriving -= frame_bytes

    def let_go(self, topic: Topic, partition: Partition, size_bytes: int) -> None:
        """Events that were admitted are counted as segments now, or came to nothing."""
        with self._lock:
            self._let_go(topic, partition, size_bytes)

    # ------------------------------------------------------------ segments that replace others, and those that go

    @contextmanager
    def making(self, topic: Topic, size_bytes: int, *, urgent: bool = False) -> Iterator[bool]:
        """While a segment of up to so many bytes is made of others. False, and nothing is counted, without room.

        urgent: then retention makes room.
        """
        number = topic.info.number
        size_bytes += SEGMENT_BYTES
        with self._lock:
            fits = all(
                limit is None or total + size_bytes <= ALL * limit
                for total, limit in (
                    (self.total_of(topic) + self._making[number], topic.info.retention.max_bytes),
                    (self.total() + self._making.total(), self.max_bytes),
                )
            )
            if fits:
                self._making[number] += size_bytes
            elif urgent:
                self._want(None, size_bytes)
                self._want(number, size_bytes)
        try:
            yield fits
        finally:
            if fits:
                with self._lock:
                    self._making[number] -= size_bytes

    @contextmanager
    def rewriting(self, topic: Topic, size_bytes: int) -> Iterator[None]:
        """While a segment of up to so many bytes is made that takes the place of one with hidden events.

        Never without room: what is erased does not wait, and no other event has to go for it. Until the old file is
        gone the limit may be passed by this one segment; appends are refused meanwhile.
        """
        number = topic.info.number
        size_bytes += SEGMENT_BYTES
        with self._lock:
            self._making[number] += size_bytes
        try:
            yield
        finally:
            with self._lock:
                self._making[number] -= size_bytes

    def retire(self, topic: Topic, segments: Iterable[SegmentInfo]) -> None:
        """Count segments as waiting for scans; before they leave the topic's own count."""
        with self._lock:
            for segment in segments:
                self._waiting[segment.number] = (topic.info.number, segment.size_bytes)
                self._waiting_bytes += segment.size_bytes
                self._waiting_of[topic.info.number] += segment.size_bytes

    def gone(self, numbers: Iterable[int]) -> None:
        """Files of retired segments are deleted."""
        with self._lock:
            for number in numbers:
                topic, size = self._waiting.pop(number, (None, 0))
                self._waiting_bytes -= size
                self._waiting_of[topic] -= size


def largest_batch(max_bytes: int) -> int:
    """The largest batch that a topic takes that keeps so many bytes: one that fits when nothing else is there."""
    return (max_bytes - SEGMENT_BYTES) * INDEX_SHARE // (INDEX_SHARE + 1)


def _sealed_bytes(size_bytes: int, partitions: int) -> int:
    return size_bytes + size_bytes // INDEX_SHARE + SEGMENT_BYTES * partitions


def _refused(who: str, total: int, limit: int, parts: dict[str, int], waiting: int) -> OverloadedError:
    """The error that says what takes the room."""
    shown = ", ".join(f"{what} {size:,}" for what, size in parts.items() if size)
    hint = "retention makes room: append again later; nothing of this batch was kept"
    stuck = waiting > 0 and total - waiting <= APPENDS * limit
    if waiting:
        shown += f", removed segments that open scans still read {waiting:,}"
    if stuck:
        hint = "append again when scans that are open have ended; nothing of this batch was kept"
    return OverloadedError(
        f"{who} takes {total:,} bytes with this batch, and max_bytes is {limit:,}: {shown}",
        hint=hint,
        retry_after_s=WHEN_SCANS_END_S if stuck else SOON_S,
    )
