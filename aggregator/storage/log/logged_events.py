"""The record indexes in the log, for comparison with segments that the manifest does not list."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aggregator.errors import CorruptLogError
from aggregator.storage.log.file import Frame, list_files, read_file, read_frames
from aggregator.storage.log.frame import FrameKind

Span = tuple[int, int]
"""Record indexes [first, end)."""


class LoggedEvents:
    """The record indexes of all whole events frames in a log, by partition."""

    def __init__(self, directory: Path) -> None:
        """Read the log. Raises OSError, UnknownVersionError."""
        self._frames: dict[int, list[Span]] = {}
        for start, path in list_files(directory):
            try:
                data = read_file(path, start)
            except CorruptLogError:  # frames contain their positions: they can be read without the header
                data = memoryview(path.read_bytes())
            for item in read_frames(data, path, start):
                if isinstance(item, Frame) and item.head.kind == FrameKind.EVENTS:
                    span = (item.head.first_index, item.head.first_index + item.head.count)
                    self._frames.setdefault(item.head.partition, []).append(span)
        self._whole = {partition: joined(frames) for partition, frames in self._frames.items()}

    def __iter__(self) -> Iterator[int]:
        """The partitions with events in the log."""
        return iter(self._whole)

    def rows_from(self, partition: int, index: int) -> int:
        """Number of events of a partition from a record index on."""
        return sum(max(0, end - max(first, index)) for first, end in self._whole.get(partition, ()))

    def holds(self, partition: int, spans: Iterable[Span]) -> bool:
        """Whether the log has every event of these spans."""
        known = self._whole.get(partition, ())
        for first, end in spans:
            place = bisect_right(known, first, key=lambda span: span[0]) - 1
            if place < 0 or known[place][1] < end:
                return False
        return True

    def lacks_only_the_end(self, partition: int, spans: Iterable[Span]) -> bool:
        """Whether the log has some events of these spans, and lacks only events after its last one."""
        end = max((high for _, high in self._whole.get(partition, ())), default=0)
        known = [(first, min(last, end)) for first, last in spans if first < end]
        return bool(known) and self.holds(partition, known)

    def outside(self, partition: int, spans: Iterable[Span], first: int, end: int) -> list[Span]:
        """Frames that begin in [first, end) and contain no event of these spans."""
        known = joined(spans)
        found = []
        for low, high in self._frames.get(partition, ()):
            if first <= low < end:
                place = bisect_right(known, high - 1, key=lambda span: span[0]) - 1
                if place < 0 or known[place][1] <= low:
                    found.append((low, high))
        return found


def joined(spans: Iterable[Span]) -> Sequence[Span]:
    """The same record indexes in as few spans as possible, in order."""
    found: list[Span] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return found
