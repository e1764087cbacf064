"""Which rows of which blocks can hold what a scan asks for. Decisions only: nothing of the events is read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from esformat.format.data_block import I64
from esformat.format.directory import Leaf
from esformat.read.index import Index
from esformat.read.question import Query
from esformat.read.reader import Reader

MANY_CONDITIONS = 1000  # are remembered as met in every data block


class Stretch(NamedTuple):
    """Rows [first, last) of the segment, all in one leaf. `run_start`: where their run begins, -1 for several runs."""

    leaf: int
    first: int
    last: int
    run_start: int


class Narrowed(NamedTuple):
    """What the indexes say of a query's conditions, for rows [low, high): see `narrow`."""

    rows: I64 | None
    """Rows that meet the conditions with row lists; None where there is no such condition."""
    blocks: I64 | None
    """Data blocks that can hold rows; None for all."""
    unmet: tuple[tuple[str, Any], ...]
    """Conditions that the blocks' columns must still decide."""
    nothing: bool = False
    """No row can meet the conditions."""
    asked_before: bool = False
    """The question is not the first of its kind: what answers it is worth keeping."""


UNCONDITIONAL = Narrowed(None, None, ())
NOTHING = Narrowed(None, None, (), nothing=True)


def narrow(reader: Reader, query: Query, low: int, high: int) -> Narrowed:
    """Ask the indexes about the query's conditions for rows [low, high)."""
    if low >= high or query.limit == 0:
        return NOTHING
    if not query.conditions:
        return UNCONDITIONAL
    rows: I64 | None = None
    blocks: I64 | None = None
    unmet: list[tuple[str, Any]] = []
    root = reader.root
    for name, value in query.conditions:
        if (name, value) in reader.everywhere:
            unmet.append((name, value))
            continue
        index = Index(reader, name)
        posting = index.find(value)
        if posting is None:
            return NOTHING
        if posting.names_blocks:
            unmet.append((name, value))
            if index.everywhere(value, posting):
                if len(reader.everywhere) < MANY_CONDITIONS:
                    reader.everywhere.add((name, value))
                continue
            first, last = block_span(reader, low, high) if high - low < root.rows[-1] else (0, root.blocks[-1])
            found = index.numbers(value, posting, first, last)
            blocks = found if blocks is None else np.intersect1d(blocks, found, assume_unique=True)
        else:
            found = index.numbers(value, posting, low, high)
            rows = found if rows is None else np.intersect1d(rows, found, assume_unique=True)
        if not len(found):
            return NOTHING
    return Narrowed(rows, blocks, tuple(unmet))


def block_span(reader: Reader, low: int, high: int) -> tuple[int, int]:
    """Data blocks [first, last) that hold rows [low, high) of the segment."""
    root = reader.root
    first, last = root.leaf_of_row(low), root.leaf_of_row(high - 1)
    leaf = reader.leaf(first)
    begin = leaf.first_block + leaf.block_of(low)
    leaf = leaf if last == first else reader.leaf(last)
    return begin, leaf.first_block + leaf.block_of(high - 1) + 1


class Portion(NamedTuple):
    """Rows [first, last) of the segment in one data block of a leaf; `rows` lists them where not all are wanted."""

    leaf: Leaf
    block: int
    first: int
    last: int
    rows: I64 | None
    run_start: int


def portions(reader: Reader, query: Query, stretch: Stretch, narrowed: Narrowed) -> Iterator[Portion]:
    """The portions of a stretch that can hold answers, in the query's direction."""
    leaf = reader.leaf(stretch.leaf)
    a, b = leaf.block_of(stretch.first), leaf.block_of(stretch.last - 1) + 1
    wanted: set[int] | None = None
    if narrowed.blocks is not None:
        c, d = np.searchsorted(narrowed.blocks, (leaf.first_block + a, leaf.first_block + b)).tolist()
        if d - c < b - a:
            wanted = set((narrowed.blocks[c:d] - leaf.first_block).tolist())
    listed = narrowed.rows
    for block in range(b - 1, a - 1, -1) if query.reverse else range(a, b):
        if wanted is not None and block not in wanted:
            continue
        if query.timed and query.misses(leaf.block_min[block], leaf.block_max[block]):
            continue
        first, last = max(stretch.first, leaf.block_rows[block]), min(stretch.last, leaf.block_rows[block + 1])
        rows = None
        if listed is not None:
            c, d = np.searchsorted(listed, (first, last)).tolist()
            if c == d:
                continue
            rows = listed[c:d]
        yield Portion(leaf, block, first, last, rows, stretch.run_start)


def leaves_with(reader: Reader, rows: I64) -> list[Stretch]:
    """The leaves that hold ascending rows of the segment, as stretches."""
    edges = reader.root.rows
    numbers = np.unique(np.searchsorted(edges, rows, side="right") - 1).tolist()
    return [Stretch(number, edges[number], edges[number + 1], -1) for number in numbers]


def touched(reader: Reader, stretches: Iterable[Stretch], narrowed: Narrowed) -> Iterable[Stretch]:
    """The stretches in which the indexes leave rows or blocks: of the others not even the leaf is read."""
    if narrowed.rows is None and narrowed.blocks is None:
        return stretches
    rows, blocks = (_quick(numbers) for numbers in (narrowed.rows, narrowed.blocks))
    edges = reader.root.blocks
    return (
        stretch
        for stretch in stretches
        if (rows is None or _any_within(rows, stretch.first, stretch.last))
        and (blocks is None or _any_within(blocks, edges[stretch.leaf], edges[stretch.leaf + 1]))
    )


def _quick(numbers: I64 | None) -> Sequence[int] | None:
    """The same to look into one by one."""
    return None if numbers is None else np.ascontiguousarray(numbers, dtype=np.int64).data


def _any_within(numbers: Sequence[int], first: int, last: int) -> bool:
    place = bisect_left(numbers, first)
    return place < len(numbers) and numbers[place] < last


def block_portions(reader: Reader, query: Query, stretches: Iterable[Stretch], narrowed: Narrowed) -> Iterator[Portion]:
    """The portions of stretches in the query's direction: one for each block, however many stretches it holds."""
    held: list[Portion] = []
    for stretch in stretches:
        for portion in portions(reader, query, stretch, narrowed):
            if held and portion.leaf.first_block + portion.block != held[0].leaf.first_block + held[0].block:
                yield _one_portion(held)
                held = []
            held.append(portion)
    if held:
        yield _one_portion(held)


def _one_portion(parts: list[Portion]) -> Portion:
    """Portions of one block as one that lists their rows."""
    if len(parts) == 1:
        return parts[0]
    parts = sorted(parts, key=lambda part: part.first)
    rows = [np.arange(part.first, part.last) if part.rows is None else part.rows for part in parts]
    return Portion(parts[0].leaf, parts[0].block, parts[0].first, parts[-1].last, np.concatenate(rows), -1)
