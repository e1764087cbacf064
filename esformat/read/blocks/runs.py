"""Group row spans into runs: the rows of one space and grouping, which are in the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from esformat.core.cached_segment import RowSpan
from esformat.read.blocks.reader import Reader

SORTED_ROWS = 8192  # short runs with up to this many rows in total are sorted together, not merged
SORTED_BLOCKS = 16  # and with up to this many data blocks: a few MiB, however large rows are


def by_run(row_spans: Iterable[RowSpan], reader: Reader) -> Iterator[list[RowSpan]]:
    """Group row spans into runs: a run that crosses leaves has several row spans."""
    group: list[RowSpan] = []
    for row_span in row_spans:
        if group and not (row_span.first == group[-1].last and _same_run(reader, group[-1], row_span)):
            yield group
            group = []
        group.append(row_span)
    if group:
        yield group


def gathered(runs: Iterable[list[RowSpan]], reader: Reader) -> Iterator[list[list[RowSpan]]]:
    """Group consecutive short runs, up to SORTED_ROWS and SORTED_BLOCKS per group."""
    group: list[list[RowSpan]] = []
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


def _blocks_of(run: list[RowSpan], reader: Reader) -> int:
    """The number of blocks that end within a run, so that the counts of consecutive runs add up."""
    ends = 0
    for row_span in run:
        leaf = reader.leaf(row_span.leaf, keys=False)
        ends += leaf.block_of(row_span.last) - leaf.block_of(row_span.first)
    return ends


def joined(row_spans: list[RowSpan]) -> list[RowSpan]:
    """Join adjacent row spans of the same leaf, so that no block is read twice."""
    joined: list[RowSpan] = []
    for row_span in row_spans:
        if joined and joined[-1].leaf == row_span.leaf and joined[-1].last == row_span.first:
            joined[-1] = RowSpan(row_span.leaf, joined[-1].first, row_span.last, -1)
        else:
            joined.append(row_span)
    return joined


def _same_run(reader: Reader, before: RowSpan, after: RowSpan) -> bool:
    if before.leaf == after.leaf:
        return False
    left, right = reader.leaf(before.leaf), reader.leaf(after.leaf)
    last = len(left.spaces) - 1
    return bool(left.spaces[last] == right.spaces[0] and left.groupings[last] == right.groupings[0])
