"""`diff`: find the events that two segments, or two sets of segments, do not share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from esformat.format.schema import changed_type
from esformat.io.location import Options, apply_options, as_list, segments_at
from esformat.read.collection.collection import Collection, open_many
from esformat.read.segment import Segment, open_segment
from esformat.tools.new_segment import Progress

AnySegment: TypeAlias = "Segment | Collection"
BATCH_ROWS = 1 << 15
MOST_SPACES = 1000
"""Maximum number of spaces with differing events that are named."""


@dataclass(frozen=True, slots=True)
class SpaceDiff:
    """A space whose events differ: the numbers of events that only the left, and only the right side has."""

    space: str | bytes
    only_left: int
    only_right: int


@dataclass(frozen=True, slots=True)
class DiffReport:
    """The differences between two sides. schema: columns and kinds of keys that differ; indexes: those that only one
    side has; a line each.

    Events are counted, so an event that one side has twice and the other once is one difference. The order of events
    with the same keys and timestamp does not matter, nor does their storage; -0.0 differs from 0.0. If schemas differ,
    the columns that both sides have with the same type are compared. spaces: the first MOST_SPACES whose events differ,
    in key order.
    """

    schema: tuple[str, ...]
    indexes: tuple[str, ...]
    common: int
    only_left: int
    only_right: int
    spaces: tuple[SpaceDiff, ...]

    @property
    def same(self) -> bool:
        """Whether columns and events are the same; indexes may differ."""
        return not self.schema and not self.only_left and not self.only_right


def diff(left: Any, right: Any, *, progress: Progress | None = None, storage_options: Options = None) -> DiffReport:
    """Compare the events of two segments, or of two sets of segments. Keeps a few batches of each file in memory.

    left, right: one or several files, directories, patterns and places in stores, as `open_many` takes them.
    progress: called from time to time with the number of events done and in total. storage_options: as for `merge`.
    Raises UsageError, CorruptSegmentError, OSError.
    """
    lefts, rights = as_list(left), as_list(right)
    places = apply_options(storage_options, *lefts, *rights)
    with _open(places[: len(lefts)]) as one, _open(places[len(lefts) :]) as other:
        types = _types(one), _types(other)
        schema = tuple(_schema_lines(*types))
        names = [name for name, kind in types[0].items() if types[1].get(name) == kind]
        sides = _Side(one, names), _Side(other, names)
        total = one.num_events + other.num_events
        spaces: dict[str | bytes, list[int]] = {}
        differing = [0, 0]
        if one.schema.field("space").type == other.schema.field("space").type:
            for place, space, count in _differences(*sides):
                differing[place] += count
                if space in spaces or len(spaces) < MOST_SPACES:
                    spaces.setdefault(space, [0, 0])[place] += count
                if progress:
                    progress(sides[0].done + sides[1].done, total)
        else:
            differing = [one.num_events, other.num_events]
        found = tuple(SpaceDiff(space, *counts) for space, counts in sorted(spaces.items()))
        common = one.num_events - differing[0]
        return DiffReport(schema, tuple(_index_lines(one, other)), common, differing[0], differing[1], found)


def _open(targets: list[Any]) -> AnySegment:
    places = list(segments_at(targets))
    return open_segment(places[0]) if len(places) == 1 else open_many(places)


def _schema_lines(one: dict[str, pa.DataType], other: dict[str, pa.DataType]) -> Iterator[str]:
    for name in one | other:
        kinds = [types.get(name) for types in (one, other)]
        if kinds[0] != kinds[1]:
            yield f"column {name!r}: {kinds[0] or 'missing'} and {kinds[1] or 'missing'}"


def _index_lines(one: AnySegment, other: AnySegment) -> Iterator[str]:
    for name in sorted({*one.indexes} ^ {*other.indexes}):
        where = one if name in one.indexes else other
        yield f"index {name!r}: only in {where.path if isinstance(where, Segment) else ', '.join(where.paths)}"


def _types(segment: AnySegment) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in segment.schema}


class _Side:
    """The events of one side, read in step with the other's."""

    def __init__(self, segment: AnySegment, names: list[str]) -> None:
        self._batches = segment.scan(columns=names).batches()
        self._schema = pa.schema([segment.schema.field(name) for name in names])
        self.table = _plain(self._schema.empty_table())
        self.ended = False
        self.done = 0

    def fill(self, least: int) -> None:
        """Buffer at least this many rows, or all that remain."""
        parts = []
        count = len(self.table)
        while count < least and not self.ended:
            batch = next(self._batches, None)
            if batch is None:
                self.ended = True
            else:
                parts.append(_plain(pa.Table.from_batches([batch]).replace_schema_metadata().cast(self._schema)))
                count += len(batch)
        self.table = pa.concat_tables([self.table, *parts])

    def take(self, count: int) -> pa.Table:
        """Remove and return the first `count` rows."""
        taken, self.table = self.table.slice(0, count), self.table.slice(count)
        self.done += count
        return taken

    def last_key(self) -> tuple[str | bytes, str | bytes, int]:
        """Space, grouping and timestamp of the last buffered row."""
        row = self.table.slice(len(self.table) - 1)
        return row["space"][0].as_py(), row["grouping"][0].as_py(), row["timestamp"][0].as_py()

    def count_before(self, bound: tuple[str | bytes, str | bytes, int]) -> int:
        """The number of buffered rows before a bound, by binary search."""
        low, high = 0, len(self.table)
        times = self.table["timestamp"]
        while low < high:
            middle = (low + high) // 2
            key = _stored(self.table["space"][middle].as_py()), _stored(self.table["grouping"][middle].as_py())
            if (*key, times[middle].as_py()) < (_stored(bound[0]), _stored(bound[1]), bound[2]):
                low = middle + 1
            else:
                high = middle
        return low


def _stored(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _differences(one: _Side, other: _Side) -> Iterator[tuple[int, str | bytes, int]]:
    """Yield side (0 or 1), space and number of events that only this side has."""
    wanted = BATCH_ROWS
    while True:
        one.fill(wanted)
        other.fill(wanted)
        if not len(one.table) and not len(other.table):
            return
        same = min(len(one.table), len(other.table))
        if same and one.table.slice(0, same).equals(other.table.slice(0, same)):
            one.take(same)
            other.take(same)
            wanted = BATCH_ROWS
            continue
        counts = _comparable(one, other)
        if counts == (0, 0):  # all buffered rows have one timestamp in one run: read more
            wanted *= 2
            continue
        wanted = BATCH_ROWS
        yield from _compare(one.take(counts[0]), other.take(counts[1]))


def _comparable(one: _Side, other: _Side) -> tuple[int, int]:
    """The number of rows of each side that can be compared: those before the first key that may have more rows."""
    bounds = [side.last_key() for side in (one, other) if not side.ended and len(side.table)]
    if not bounds:
        return len(one.table), len(other.table)
    bound = min(bounds, key=lambda key: (_stored(key[0]), _stored(key[1]), key[2]))
    return one.count_before(bound), other.count_before(bound)


def _compare(one: pa.Table, other: pa.Table) -> Iterator[tuple[int, str | bytes, int]]:
    counted = [Counter(_rows(table)) for table in (one, other)]
    for place in (0, 1):
        left = counted[place] - counted[1 - place]
        by_space: Counter[str | bytes] = Counter()
        for (space, _), count in left.items():
            by_space[space] += count
        for space, count in by_space.items():
            yield place, space, count


def _rows(table: pa.Table) -> Iterator[tuple[str | bytes, str]]:
    """Each row as its space and all its values, in a hashable form for counting."""
    columns = [column.to_pylist() for column in table.columns]
    return ((row[0], repr(row)) for row in zip(*columns, strict=True))


def _plain(table: pa.Table) -> pa.Table:
    """Convert floats, times and dates to their bits, also within lists, maps and structs: -0.0 differs from 0.0, and
    Python's times have no nanoseconds and end at the year 9999.
    """
    schema = pa.schema([field.with_type(changed_type(field.type, _as_bits)) for field in table.schema])
    columns = [
        pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)
        for column, kind in zip(table.columns, schema.types, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _as_bits(kind: pa.DataType) -> pa.DataType:
    if not (pa.types.is_floating(kind) or pa.types.is_temporal(kind)) or pa.types.is_interval(kind):
        return kind
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
