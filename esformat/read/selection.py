"""The events of a segment within `Bounds`, as a scan that reads the blocks which can hold them and no others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from esformat.event import MAX_TIMESTAMP, MIN_TIMESTAMP
from esformat.format.data_block import I64
from esformat.format.directory import Leaf, Root
from esformat.read.bounds import Bounds, Domain, admits_nothing
from esformat.read.index import Index
from esformat.read.plan import NOTHING, Narrowed, Stretch, block_span
from esformat.read.question import Query
from esformat.read.reader import Reader
from esformat.read.scan import Scan


def select(reader: Reader, bounds: Bounds, columns: Sequence[str], *, lazily: bool = False) -> Selection:
    """A scan, in the order of the file, of at least the events within bounds.

    lazily: read block by block, for those who may stop early; otherwise many blocks at once and ahead.
    """
    if admits_nothing(bounds):
        return Selection(reader, Query(columns=tuple(columns)), lambda: (), (0, 0), {})
    times = bounds.get("timestamp", Domain()).hull(lambda moment: moment + 1)
    indexed = {name: bounds[name].listed or frozenset() for name in reader.schema.indexes if name in bounds}
    query = Query(
        start=None if times.low is None or times.low <= MIN_TIMESTAMP else times.low,
        end=None if times.high is None or times.high > MAX_TIMESTAMP else times.high,
        limit=reader.root.rows[-1] if lazily else None,
        columns=tuple(columns),
        conditions=tuple((name, next(iter(values))) for name, values in indexed.items() if len(values) == 1),
    )
    spaces, groupings = bounds.get("space"), bounds.get("grouping")
    several = {name: values for name, values in indexed.items() if len(values) > 1}
    if spaces is None:
        return Selection(
            reader, query, lambda: _stretches(reader, query, None, groupings), (0, reader.root.rows[-1]), several
        )
    stretches = list(_stretches(reader, query, spaces, groupings))
    span = (stretches[0].first, stretches[-1].last) if stretches else (0, 0)
    return Selection(reader, query, lambda: stretches, span, several)


class Selection(Scan):
    """A scan that also asks the indexes about columns which may have one of several values."""

    def __init__(
        self, reader: Reader, query: Query, stretches: Any, span: tuple[int, int], several: dict[str, frozenset[Any]]
    ) -> None:
        super().__init__(reader, query, stretches, span=span)
        self._several = several
        self.listed: I64 | None = None
        """Ascending rows of the segment, where the scan gives no others."""

    def _narrow(self) -> Narrowed:
        narrowed = super()._narrow()
        if self.listed is not None:
            narrowed = _both(narrowed, Narrowed(self.listed, None, ()))
        for name, values in self._several.items():
            if narrowed.nothing:
                break
            narrowed = _both(narrowed, _one_of(Index(self._reader, name), self._reader, values, *self._span))
        return narrowed

    def _narrow_to_read(self) -> Narrowed:
        return super()._narrow_to_read() if self.listed is None else self._narrow()


# ---------------------------------------------------------------- spaces and groupings


def _stretches(reader: Reader, query: Query, spaces: Domain | None, groupings: Domain | None) -> Iterator[Stretch]:
    """Rows whose space and grouping are within bounds, in leaves whose times are."""
    root = reader.root
    keys = None if spaces is None or spaces.listed is None else sorted(spaces.listed)
    for number in _leaves(root, spaces, keys):
        if query.misses(root.min_timestamps[number], root.max_timestamps[number]):
            continue
        if spaces is None and groupings is None:
            yield Stretch(number, root.rows[number], root.rows[number + 1], -1)
            continue
        leaf = reader.leaf(number)
        for first, last in _runs(leaf, spaces, keys):
            for begin, end in _runs_with(leaf, groupings, first, last):
                yield Stretch(number, leaf.run_rows[begin], leaf.run_rows[end], -1)


def _leaves(root: Root, spaces: Domain | None, keys: list[bytes] | None) -> Iterable[int]:
    """Leaves that can hold the spaces, ascending."""
    if keys is not None:
        return sorted({number for key in keys for number in root.leaves_of(key)})
    if spaces is None:
        return range(len(root))
    first = 0 if spaces.low is None else root.leaves_of(spaces.low).start
    return range(first, len(root) if spaces.high is None else root.leaves_before(spaces.high))


def _runs(leaf: Leaf, spaces: Domain | None, keys: list[bytes] | None) -> Iterator[tuple[int, int]]:
    """Runs [first, last) of a leaf whose spaces are within bounds, ascending."""
    held = leaf.run_keys.spaces
    if keys is not None:
        for key in keys[bisect_left(keys, held.at(0)) : bisect_right(keys, held.at(len(held) - 1))]:
            first, last = leaf.runs_of(key)
            if first < last:
                yield first, last
        return
    first = 0 if spaces is None or spaces.low is None else held.places_of(spaces.low)[0]
    last = len(held) if spaces is None or spaces.high is None else held.places_of(spaces.high)[0]
    if first < last:
        yield first, last


def _runs_with(leaf: Leaf, groupings: Domain | None, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The parts of runs [first, last) whose groupings are within bounds."""
    if groupings is None:
        yield first, last
    elif not leaf.has_groupings:
        if groupings.holds(b""):
            yield first, last
    else:
        held = leaf.groupings
        yield from ((run, run + 1) for run in range(first, last) if groupings.holds(held[run]))


# ---------------------------------------------------------------- indexes


def _one_of(index: Index, reader: Reader, values: Iterable[Any], low: int, high: int) -> Narrowed:
    """What an index says of rows [low, high) if the column has one of several values."""
    rows: list[I64] = []
    blocks: list[I64] = []
    for value in values:
        posting = index.find(value)
        if posting is None:
            continue
        if not posting.names_blocks:
            rows.append(index.numbers(value, posting, low, high))
        elif index.everywhere(value, posting):
            return Narrowed(None, None, ())
        else:
            blocks.append(index.numbers(value, posting, *block_span(reader, low, high)))
    if not any(map(len, rows)) and not any(map(len, blocks)):
        return NOTHING
    if not blocks:
        return Narrowed(np.sort(np.concatenate(rows)), None, ())
    if any(map(len, rows)):
        blocks.append(_blocks_of(reader, np.sort(np.concatenate(rows))))
    return Narrowed(None, np.unique(np.concatenate(blocks)), ())


def _blocks_of(reader: Reader, rows: I64) -> I64:
    """The data blocks that hold ascending rows."""
    root = reader.root
    leaves = np.searchsorted(root.rows, rows, side="right") - 1
    parts = []
    for number in np.unique(leaves).tolist():
        leaf = reader.leaf(number)
        first, last = np.searchsorted(leaves, (number, number + 1)).tolist()
        parts.append(np.searchsorted(leaf.block_rows, rows[first:last], side="right") - 1 + leaf.first_block)
    return np.concatenate(parts)


def _both(one: Narrowed, two: Narrowed) -> Narrowed:
    """What holds if both hold."""
    if one.nothing or two.nothing:
        return NOTHING
    rows, blocks = _common(one.rows, two.rows), _common(one.blocks, two.blocks)
    empty = any(numbers is not None and not len(numbers) for numbers in (rows, blocks))
    return NOTHING if empty else Narrowed(rows, blocks, one.unmet + two.unmet)


def _common(one: I64 | None, two: I64 | None) -> I64 | None:
    if one is None or two is None:
        return two if one is None else one
    return np.intersect1d(one, two, assume_unique=True)
