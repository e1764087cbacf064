"""What a scan asks for, and which rows of which blocks can hold it. Decisions only: nothing of the events is read."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from esformat.errors import UsageError
from esformat.event import to_bound
from esformat.format.data_block import I64
from esformat.format.directory import Leaf
from esformat.format.schema import EventSchema
from esformat.read.index import Index, check_condition
from esformat.read.reader import Reader

MANY_LISTS = 100  # of columns are remembered as checked
MANY_CONDITIONS = 1000  # are remembered as met in every data block


class Query(NamedTuple):
    """What a scan asks for. Times are µs, [start, end); `columns` None means all."""

    start: int | None = None
    end: int | None = None
    reverse: bool = False
    limit: int | None = None
    columns: tuple[str, ...] | None = None
    conditions: tuple[tuple[str, Any], ...] = ()

    @property
    def timed(self) -> bool:
        """Whether the query bounds time."""
        return self.start is not None or self.end is not None

    @property
    def filtered(self) -> bool:
        """Whether rows must be looked at to know if they belong to the answer."""
        return self.timed or bool(self.conditions)

    def covers(self, low: int, high: int) -> bool:
        """Whether every timestamp in [low, high] is within the query's time."""
        return (self.start is None or low >= self.start) and (self.end is None or high < self.end)

    def misses(self, low: int, high: int) -> bool:
        """Whether no timestamp in [low, high] is within the query's time."""
        return (self.start is not None and high < self.start) or (self.end is not None and low >= self.end)

    def forward(self) -> Query:
        """The same question for all its answers, oldest first."""
        return self._replace(reverse=False, limit=None)


_EVERYTHING = Query()
_EVERYTHING_BACKWARD = Query(reverse=True)


class Asked(Protocol):
    """What a question is asked of, as far as checking it goes: an open segment's reader, or several as one."""

    name: str
    schema: EventSchema
    checked_columns: set[tuple[str, ...]]


def make_query(
    asked: Asked,
    *,
    start: Any = None,
    end: Any = None,
    reverse: bool = False,
    limit: int | None = None,
    columns: Any = None,
    conditions: Mapping[str, Any] | None = None,
) -> Query:
    """A checked query. Raises UsageError, UnknownIndexError or InvalidEventError (naive datetimes)."""
    if start is None and end is None and not conditions and limit is None:
        if columns is None:
            return _EVERYTHING_BACKWARD if reverse else _EVERYTHING
        if isinstance(columns, tuple) and columns in asked.checked_columns:  # one question asked of many segments
            return Query(reverse=bool(reverse), columns=columns)
    if limit is not None:
        if not isinstance(limit, int | np.integer) or isinstance(limit, bool) or limit < 0:
            raise UsageError(f"limit must be a whole number from 0, not {limit!r}")
        limit = min(int(limit), sys.maxsize)  # there is never more
    checked = None if columns is None else _checked_columns(asked, columns)
    return Query(
        None if start is None else to_bound(start, "start"),
        None if end is None else to_bound(end, "end"),
        bool(reverse),
        limit,
        checked,
        tuple(check_condition(asked.schema, name, value, asked.name) for name, value in (conditions or {}).items()),
    )


def _checked_columns(asked: Asked, columns: Any) -> tuple[str, ...]:
    """Columns that a question names. Raises UsageError for one that is unknown or named twice."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        text = "the text " if isinstance(columns, str) else ""
        raise UsageError(f"columns must be a list of names, not {text}{columns!r}")
    checked = tuple(columns)
    if checked in asked.checked_columns:
        return checked
    if not checked:
        raise UsageError("columns must name at least one column", hint="to count events use scan().count()")
    known = asked.schema.arrow.names
    for name in checked:
        if name not in known:
            raise UsageError(f"no column {name!r}", path=asked.name, hint=f"the columns are {', '.join(known)}")
    if len(set(checked)) != len(checked):
        raise UsageError(f"a column is named twice in {list(checked)}")
    if len(asked.checked_columns) < MANY_LISTS:
        asked.checked_columns.add(checked)
    return checked


def conditions_of(name: str | Mapping[str, Any], value: Any) -> dict[str, Any]:
    """The conditions of `scan_index`, from a mapping or a name and a value. Raises UsageError."""
    if not isinstance(name, str) and isinstance(name, Mapping):
        if value is not None:
            raise UsageError("give either a mapping of conditions or a name and a value, not both")
        if not name:
            raise UsageError("a mapping of conditions must not be empty", hint="use scan() for all events")
        return dict(name)
    return {name: value}


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
