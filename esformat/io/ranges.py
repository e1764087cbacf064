"""Byte ranges that are worth one request: near ones joined, long ones cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""Bytes [start, stop)."""


def join(ranges: Iterable[Range], gap: int) -> list[Range]:
    """The ranges, ascending, those that lie no more than `gap` bytes apart made one, gap included."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined


def cut(ranges: Iterable[Range], most: int) -> Iterator[Range]:
    """The ranges in pieces of about the same length and at most `most` bytes each."""
    for start, stop in ranges:
        pieces = -(-(stop - start) // most)
        for piece in range(pieces):
            first, last = (start + (stop - start) * end // pieces for end in (piece, piece + 1))
            yield first, last
