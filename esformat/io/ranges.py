"""Turn byte ranges into requests: join near ones, cut long ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""Bytes [start, stop)."""


def join(ranges: Iterable[Range], gap: int) -> list[Range]:
    """The ranges in ascending order; those at most `gap` bytes apart are joined, with the gap."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined


def cut(ranges: Iterable[Range], most: int) -> Iterator[Range]:
    """Cut ranges into pieces of about equal length, of at most `most` bytes each."""
    for start, stop in ranges:
        pieces = -(-(stop - start) // most)
        for piece in range(pieces):
            first, last = (start + (stop - start) * end // pieces for end in (piece, piece + 1))
            yield first, last
