"""Group stretches of rows into runs: the rows of one space and grouping, which are in the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from esformat.core.opened import Stretch
from esformat.read.blocks.reader import Reader

SORTED_ROWS = 8192  # short runs with up to this many rows in total are sorted together, not merged
SORTED_BLOCKS = 16  # and with up to this many data blocks: a few MiB, however large rows are


def by_run(stretches: Iterable[Stretch], reader: Reader) -> Iterator[list[Stretch]]:
    """Group stretches into runs: a run that crosses leaves has several stretches."""
    group: list[Stretch] = []
    for stretch in stretches:
        if group and not (stretch.first == group[-1].last and _same_run(reader, group[-1], stretch)):
            yield group
            group = []
        group.append(stretch)
    if group:
        yield group


def gathered(runs: Iterable[list[Stretch]], reader: Reader) -> Iterator[list[list[Stretch]]]:
    """Group consecutive short runs, up to SORTED_ROWS and SORTED_BLOCKS per group."""
    group: list[list[Stretch]] = []
    rows = blocks = 0
    for run in runs:
        count, spanned = run[-1].last - run[0].first, _blocks_of(run, reader)
        if group and (rows + count > SORTED_ROWS or blocks + spanned > SORTED_BLOCKS):
            yield group
            group, rows, blocks = [], 0, 0
        group.append(run)
        rows, blocks = rows + count, blocks + spanned
    if group:
        yield group


def _blocks_of(run: list[Stretch], reader: Reader) -> int:
    """The number of blocks that end within a run, so that the counts of consecutive runs add up."""
    ends = 0
    for stretch in run:
        leaf = reader.leaf(stretch.leaf, keys=False)
        ends += leaf.block_of(stretch.last) - leaf.block_of(stretch.first)
    return ends


def joined(stretches: list[Stretch]) -> list[Stretch]:
    """Join adjacent stretches of the same leaf, so that no block is read twice."""
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
    last = len(left.spaces) - 1
    return bool(left.spaces[last] == right.spaces[0] and left.groupings[last] == right.groupings[0])
