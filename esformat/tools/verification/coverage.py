"""The bytes of a file that belong to blocks which a handle refers to."""

from __future__ import annotations

from bisect import bisect_right


class Coverage:
    """A set of byte ranges. Adjacent ranges are joined, so the blocks of a valid file become a single range."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> bool:
        """Add a non-empty range [start, end). Returns False, and adds nothing, if part of it is already covered."""
        at = bisect_right(self._starts, start)
        if (at and self._ends[at - 1] > start) or (at < len(self._starts) and self._starts[at] < end):
            return False
        joins_left = at > 0 and self._ends[at - 1] == start
        joins_right = at < len(self._starts) and self._starts[at] == end
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends[at]
            del self._starts[at], self._ends[at]
        elif joins_left:
            self._ends[at - 1] = end
        elif joins_right:
            self._starts[at] = start
        else:
            self._starts.insert(at, start)
            self._ends.insert(at, end)
        return True

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """The ranges within [start, end) that are not covered."""
        gaps = []
        at = start
        for a, b in zip(self._starts, self._ends, strict=True):
            if b <= start:
                continue
            if a >= end:
                break
            if at < a:
                gaps.append((at, a))
            at = b
        if at < end:
            gaps.append((at, end))
        return gaps
