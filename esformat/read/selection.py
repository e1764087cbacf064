"""Scan the events of a segment within `Bounds`, reading only blocks that can contain them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from esformat.core.cached_segment import RowSpan, SpaceRows, find_space, part_of
from esformat.core.leaves import Leaf
from esformat.core.roots import Root
from esformat.event import MAX_TIMESTAMP, MIN_TIMESTAMP
from esformat.format.data_block import I64
from esformat.format.schema import KEY_COLUMNS
from esformat.read.ask.bounds import Bounds, Domain, admits_nothing
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import leaves_with
from esformat.read.blocks.reader import Reader
from esformat.read.scan import THREADS, Scan

PAGE_ROWS = 1 << 14
"""A query of at most this many rows is a page, which is cached: several readers may read a segment page by page."""

SHORT_ROWS = 1024
"""A space of no more rows is read block by block: the fixed cost of a group of blocks would be most of the work."""
MANY_SPACES = 64
"""From this many spaces on, their rows are listed instead of row spans."""
MOST_LISTED_ROWS = 1 << 22
ONE_SPACE = {"space"}


def gives_exactly(bounds: Bounds) -> bool:
    """Whether `select` returns only events within bounds: they must name at most one value of each index."""
    times = bounds.get("timestamp", Domain()).listed
    indexed = (domain.listed for name, domain in bounds.items() if name not in KEY_COLUMNS)
    return (times is None or len(times) < 2) and all(listed is not None and len(listed) < 2 for listed in indexed)


def select(
    reader: Reader,
    bounds: Bounds,
    columns: Sequence[str],
    *,
    lazily: bool = False,
    rows: tuple[int, int] | None = None,
    listed: I64 | None = None,
    threads: int = THREADS,
) -> Scan:
    """A scan, in the order of the file, of at least the events within bounds.

    lazily: read block by block, for callers that may stop early; otherwise read many blocks at a time, and ahead.
    rows: only rows [first, last) of the segment. listed: only these rows, ascending. threads: how many decode.
    """
    if listed is None and rows is None and not lazily and bounds.keys() == ONE_SPACE:  # the usual case
        run = _short_run(reader, Query(columns=tuple(columns)), bounds["space"])
        if run is not None:
            return run
    if admits_nothing(bounds):
        return Scan(reader, Query(columns=tuple(columns)), lambda: (), span=(0, 0))
    times = bounds.get("timestamp", Domain()).hull(lambda moment: moment + 1)
    indexed = [(name, bounds[name].listed or frozenset()) for name in reader.schema.indexes if name in bounds]
    query = Query(
        start=None if times.low is None or times.low <= MIN_TIMESTAMP else times.low,
        end=None if times.high is None or times.high > MAX_TIMESTAMP else times.high,
        limit=reader.root.events if lazily else None,
        columns=tuple(columns),
        conditions=tuple((name, next(iter(values)) if len(values) == 1 else values) for name, values in indexed),
    )
    spaces, groupings = bounds.get("space"), bounds.get("grouping")
    if listed is None and rows is None and groupings is None:
        run = _short_run(reader, query, spaces)
        if run is not None:
            return run
        listed = _rows_of_many(reader, query, spaces)
        if listed is not None:
            leaves = leaves_with(reader, listed)
            span = (leaves[0].first, leaves[-1].last) if leaves else (0, 0)
            return Scan(reader, query, lambda: leaves, span=span, listed=listed, threads=threads)
    first, last = (0, reader.root.events) if rows is None else rows

    def row_spans() -> Iterator[RowSpan]:
        for row_span in _row_spans(reader, query, spaces, groupings):
            if row_span.first < last and row_span.last > first:
                yield part_of(row_span, first, last)

    if spaces is None:
        plain = not (query.filtered or query.reverse) and groupings is None and listed is None
        page = plain and last - first <= PAGE_ROWS
        return Scan(reader, query, row_spans, span=(first, last), listed=listed, threads=threads, page=page)
    found = list(row_spans())
    span = (found[0].first, found[-1].last) if found else (0, 0)
    return Scan(reader, query, lambda: found, span=span, listed=listed, threads=threads)


def _short_run(reader: Reader, query: Query, spaces: Domain | None) -> Scan | None:
    """A scan of a single space, like that of a history, if it has few rows, all of one grouping; None otherwise."""
    if spaces is None or spaces.listed is None or len(spaces.listed) != 1 or reader.announce is not None:
        return None
    (key,) = spaces.listed
    space: SpaceRows | None = find_space(reader, key, SpaceRows)
    if space is None or space.num_events > SHORT_ROWS:
        return None
    return space.of_one_run(query, None, Scan)  # type: ignore[no-any-return]


def _rows_of_many(reader: Reader, query: Query, spaces: Domain | None) -> I64 | None:
    """The rows of spaces, ascending, if many spaces are listed and the list of rows is not too long; else None."""
    if spaces is None or spaces.listed is None or len(spaces.listed) < MANY_SPACES:
        return None
    root, keys = reader.root, sorted(spaces.listed)
    begins, ends = [], []
    for number in _leaves(root, spaces, keys):
        if query.timed and query.misses(*root.times_of(number)):
            continue
        leaf = reader.leaf(number)
        edges = leaf.run_rows
        for begin, end in _runs(leaf, spaces, keys):
            begins.append(edges[begin])
            ends.append(edges[end])
    first = np.array(begins, np.int64)
    sizes = np.array(ends, np.int64) - first
    count = int(sizes.sum())
    if count > MOST_LISTED_ROWS:
        return None
    return np.repeat(first - np.cumsum(sizes) + sizes, sizes) + np.arange(count)


def _row_spans(reader: Reader, query: Query, spaces: Domain | None, groupings: Domain | None) -> Iterator[RowSpan]:
    """Row spans whose space and grouping are within bounds, in leaves that overlap the query's time range."""
    root = reader.root
    keys = None if spaces is None or spaces.listed is None else sorted(spaces.listed)
    for number in _leaves(root, spaces, keys):
        if query.timed and query.misses(*root.times_of(number)):
            continue
        if spaces is None and groupings is None:
            first, last = root.rows_of(number)
            yield RowSpan(number, first, last, -1)
            continue
        leaf = reader.leaf(number)
        for first, last in _runs(leaf, spaces, keys):
            for begin, end in _runs_with(leaf, groupings, first, last):
                yield RowSpan(number, leaf.run_rows[begin], leaf.run_rows[end], -1)


def _leaves(root: Root, spaces: Domain | None, keys: list[bytes] | None) -> Iterable[int]:
    """The leaves that can contain the spaces, ascending."""
    if keys is not None:
        return root.leaves_of_each(keys)
    if spaces is None:
        return range(len(root))
    first = 0 if spaces.low is None else root.leaves_of(spaces.low).start
    return range(first, len(root) if spaces.high is None else root.leaves_before(spaces.high))


def _runs(leaf: Leaf, spaces: Domain | None, keys: list[bytes] | None) -> Iterator[tuple[int, int]]:
    """Runs [first, last) of a leaf whose spaces are within bounds, ascending."""
    if keys is not None:
        yield from leaf.runs_of_each(keys)
        return
    held = leaf.spaces
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
        held = leaf.groupings.as_list()
        yield from ((run, run + 1) for run in range(first, last) if groupings.holds(held[run]))
