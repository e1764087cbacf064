"""Stretches of rows as runs: the rows of one space and grouping, which lie in the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from esformat.query import Stretch
from esformat.reader import Reader

SORTED_ROWS = 8192  # short runs up to so many rows are sorted together rather than merged


def by_run(stretches: Iterable[Stretch], reader: Reader) -> Iterator[list[Stretch]]:
    """Stretches grouped so that each group is one run: a run that crosses leaves has several stretches."""
    group: list[Stretch] = []
    for stretch in stretches:
        if group and not (stretch.first == group[-1].last and _same_run(reader, group[-1], stretch)):
            yield group
            group = []
        group.append(stretch)
    if group:
        yield group


def gathered(runs: Iterable[list[Stretch]]) -> Iterator[list[list[Stretch]]]:
    """Runs grouped so that short ones which follow each other are together, up to SORTED_ROWS rows."""
    group: list[list[Stretch]] = []
    rows = 0
    for run in runs:
        count = run[-1].last - run[0].first
        if group and rows + count > SORTED_ROWS:
            yield group
            group, rows = [], 0
        group.append(run)
        rows += count
    if group:
        yield group


def joined(stretches: list[Stretch]) -> list[Stretch]:
    """Stretches with those that touch within a leaf made one, so that no block is read twice."""
    joined: list[Stretch] = []
    for stretch in stretches:
        if joined and joined[-1].leaf == stretch.leaf and joined[-1].last == stretch.first:
            joined[-1] = Stretch(stretch.leaf, joined[-1].first, stretch.last, -1)
        else:
            joined.append(stretch)
    return joined


def _same_run(reader: Reader, before: Stretch, after: Stretch) -> bool:
    if before.leaf == after.leaf:
        return False
    left, right = reader.leaf(before.leaf), reader.leaf(after.leaf)
    return left.spaces[-1] == right.spaces[0] and left.groupings[-1] == right.groupings[0]
