"""Quotas of memory, log and disk for appends: an append that would exceed one is refused.

Retention limits do not count here: they decide what is removed, and no append is refused because of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from aggregator.errors import DiskFullError
from aggregator.model import SegmentInfo
from aggregator.storage.files.usage import free_bytes
from aggregator.storage.log.frame import MAX_BODY_BYTES
from aggregator.storage.parts import Storage
from aggregator.storage.state.state import Topic
from esformat import InvalidEventError

INDEX_SHARE = 8
"""Incompressible events take more space in a segment than in memory: indexes add at most 1/INDEX_SHARE."""
FLOOR_SHARE = 2
"""Appends are refused below 1/FLOOR_SHARE of `min_free_bytes`: above it, retention makes room while they continue."""
MARGIN_SHARE, MOST_MARGIN = 32, 4 << 20
"""1/MARGIN_SHARE of `disk_bytes`, at most MOST_MARGIN bytes, is left for what the manifest records about sealing."""
RETRY_S = 1.0
STEPS = 8
"""The scheduler is woken each time that another 1/STEPS of the memory is taken, as something may be due for sealing."""


class Quota:
    """Limits what appends take of memory, log and disk, and counts what is taken. Thread-safe."""

    def __init__(self, storage: Storage, wake: Callable[[], None]) -> None:
        """wake: called when memory or log fill up, so that something may be due for sealing."""
        self._objects = storage.objects
        self._layout, self._state, self._manifest = storage.layout, storage.state, storage.manifest
        self._log, self._budget, self._reserve = storage.log, storage.budget, storage.reserve
        self._limits, self._wake = storage.limits, wake
        self._step = max(1, storage.budget.limit_bytes // STEPS)
        retired = storage.manifest.retired_files()
        self._waiting: dict[int, tuple[int | None, int]] = {number: (None, size) for number, size, _ in retired}
        self.quarantine_bytes = 0
        """Size of the quarantine when retention last measured it."""

    def total(self) -> int:
        """Bytes on disk, with an upper estimate of the segments that unsealed events will become."""
        return sum(self._parts().values())

    def _parts(self) -> dict[str, int]:
        return {
            "segments": self._state.segment_bytes,
            "unsealed events": _sealed_bytes(self._budget.held_bytes),
            "the log": self._log.size_bytes,
            "the manifest": self._manifest.size_bytes + self._manifest.backup_bytes,
            "quarantine": self.quarantine_bytes,
            "the reserve": self._reserve.size_bytes,
            "the cache of the store": self._objects.cached_bytes,
            "removed segments that open scans still read": self.waiting(),
        }

    # ------------------------------------------------------------ room for an append

    def check_size(self, size_bytes: int) -> None:
        """Raise InvalidEventError for a batch that is too large to ever fit."""
        limit = min(MAX_BODY_BYTES - 4096, self._budget.limit_bytes, self._limits.log_bytes // 2)
        if size_bytes > limit:
            raise InvalidEventError(
                f"the batch has {size_bytes:,} bytes, more than the {limit:,} that fit",
                hint="append smaller batches",
            )

    def check(self, size_bytes: int, memory_bytes: int) -> None:
        """Raise OverloadedError if a batch of about `size_bytes`, in memory `memory_bytes`, would be refused now."""
        self._check_log(size_bytes)
        self._budget.check(memory_bytes)
        self.check_disk(2 * size_bytes)

    def reserve(self, size_bytes: int) -> None:
        """Reserve memory for a batch. Raises OverloadedError if memory, log or disk have no room for it."""
        self._check_log(size_bytes)
        held = self._budget.held_bytes
        self._budget.reserve(size_bytes)
        if held // self._step != (held + size_bytes) // self._step:
            self._wake()
        try:
            self.check_disk(size_bytes)
        except BaseException:
            self.release(size_bytes)
            raise

    def release(self, size_bytes: int) -> None:
        """Release the memory reserved for a batch that is not stored."""
        self._budget.release(size_bytes)

    def _check_log(self, size_bytes: int) -> None:
        held, limit = self._log.size_bytes, self._limits.log_bytes
        if held + size_bytes > limit:
            self._wake()
            raise self._budget.refusal(f"the log has {held:,} of {limit:,} bytes", size_bytes, limit)

    def check_disk(self, size_bytes: int) -> None:
        """Raise DiskFullError if a hard limit has no room for `size_bytes`, whose memory is already reserved."""
        refusal = self.disk_refusal(size_bytes)
        if refusal is not None:
            raise refusal

    def disk_refusal(self, size_bytes: int) -> DiskFullError | None:
        """Why the disk cannot take `size_bytes` more now; None if it can."""
        limit, floor = self._limits.disk_bytes, self._limits.min_free_bytes
        if self._reserve.trouble is not None:
            return _refused(self._reserve.trouble, "free space on the disk, for example by removing the oldest events")
        if limit is not None and self.total() + size_bytes > limit - min(limit // MARGIN_SHARE, MOST_MARGIN):
            parts = ", ".join(f"{what} {size:,}" for what, size in self._parts().items() if size)
            full = f"the catalog would pass its disk_bytes of {limit:,} with {size_bytes:,} bytes more: {parts}"
            return _refused(full, "raise disk_bytes, or lower retention (max_bytes)")
        least = self._limits.min_available_bytes
        if least is not None and (free := free_bytes(self._layout.root)) - size_bytes < least:
            full = f"{free:,} bytes are free on the disk, and min_available_bytes is {least:,}"
            return _refused(full, "free space on the disk, or lower min_available_bytes")
        if floor is not None and (free := free_bytes(self._layout.root)) - size_bytes < floor // FLOOR_SHARE:
            full = f"{free:,} bytes are free on the disk, and min_free_bytes is {floor:,}"
            return _refused(full, "free space on the disk, or lower min_free_bytes")
        return None

    # ------------------------------------------------------------ segments that wait for scans

    def waiting(self) -> int:
        """Bytes of retired segments whose files are kept because scans read them."""
        return sum(size for _, size in list(self._waiting.values()))

    def waiting_by_topic(self) -> Counter[int]:
        """The same by topic number, without segments that were retired before the catalog was opened."""
        sizes: Counter[int] = Counter()
        for topic, size in list(self._waiting.values()):
            if topic is not None:
                sizes[topic] += size
        return sizes

    def retire(self, topic: Topic, segments: Iterable[SegmentInfo]) -> None:
        """Count segments as waiting for scans. Called before they leave the count of live segments."""
        for segment in segments:
            if segment.number not in self._state.evicted:
                self._waiting[segment.number] = (topic.info.number, segment.size_bytes)

    def deleted(self, numbers: Iterable[int]) -> None:
        """Stop counting retired segments, whose files are deleted."""
        for number in numbers:
            self._waiting.pop(number, None)


def _sealed_bytes(size_bytes: int) -> int:
    return size_bytes + size_bytes // INDEX_SHARE


def _refused(full: str, hint: str) -> DiskFullError:
    return DiskFullError(full, hint=f"{hint}; refused events were not kept", retry_after_s=RETRY_S)
