"""Spaces of an archive, in memory, to columns: many spaces at a time, in the order of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from esformat.customerio.archive_file import SPACE_MARK, Directory, Section, SpacePlace, read_directory
from esformat.customerio.archive_sections import Events, entry_rows, read_entries, read_events
from esformat.customerio.blocks import Sections, read_sections
from esformat.customerio.layout import IndexColumn, Layout
from esformat.customerio.pieces import pieces, take_pieces
from esformat.customerio.varint import I64
from esformat.errors import CorruptSegmentError

BATCH_ROWS = 16384
BATCH_BYTES = 64 << 20
_MICROSECONDS = 1_000_000


class LoadedSpace(NamedTuple):
    """A space whose bytes begin at `at` of a buffer."""

    place: SpacePlace
    at: int
    directory: Directory


def load_space(stored: bytes, at: int, place: SpacePlace, known: Directory | None) -> LoadedSpace:
    """A space in a buffer, with its directory if that is `known`. Raises CorruptSegmentError."""
    if stored[at] != SPACE_MARK:
        raise CorruptSegmentError(f"space {place.key!r} does not begin with its mark", offset=place.offset)
    return LoadedSpace(place, at, known or read_directory(stored, at, place))


class SpaceEvents:
    """The events of some spaces. All arrays are in the order of the file: by section, newest first."""

    def __init__(self, stored: bytes, spaces: Sequence[LoadedSpace]) -> None:
        """Raises CorruptSegmentError."""
        self._stored = stored
        self._spaces = spaces
        self._groupings = [section.name for space in spaces for section in space.directory.groupings]
        counts = [len(space.directory.groupings) for space in spaces]
        self._space_of_section = np.repeat(np.arange(len(spaces)), counts)
        self._sections = self._read(
            [_span(space, section) for space in spaces for section in space.directory.groupings]
        )
        self._events: Events = read_events(self._sections)

    def _read(self, spans: list[tuple[int, int]]) -> Sections:
        try:
            return read_sections(self._stored, spans)
        except CorruptSegmentError as error:  # it knows the place in the buffer, not in the file
            at = error.offset or 0
            space = max((space for space in self._spaces if space.at <= at), key=lambda space: space.at)
            error.offset = at - space.at + space.place.offset
            raise

    def __len__(self) -> int:
        return len(self._events.places)

    @property
    def seconds(self) -> I64:
        """When each happened."""
        return self._events.seconds

    def counts(self) -> list[int]:
        """Events of each space."""
        owners = self._space_of_section[self._events.sections]
        return [int(n) for n in np.bincount(owners, minlength=len(self._spaces))]

    def grouping_counts(self) -> list[tuple[bytes, int]]:
        """Groupings, of which there is one list where there is one space, and the events of each."""
        found = np.bincount(self._events.sections, minlength=len(self._groupings))
        return [(name, int(count)) for name, count in zip(self._groupings, found, strict=True) if count]

    def order(self, *, merged: bool) -> I64:
        """Rows oldest first: by space, grouping and time, or `merged` by time alone; ties as they were added."""
        seconds = self._events.seconds
        return np.argsort(seconds, kind="stable") if merged else np.lexsort((seconds, self._events.sections))

    def batches(self, layout: Layout, columns: tuple[str, ...], order: I64) -> Iterator[pa.RecordBatch]:
        """Those columns of the rows in an order, some thousand rows at a time."""
        events = self._events
        indexed = self._index_columns([layout.by_name[name] for name in columns if name in layout.by_name], layout)
        sections = events.sections
        keys = pa.array([space.place.key for space in self._spaces], pa.binary()).cast(layout.schema.key_type)
        groupings = pa.array(self._groupings, pa.binary()).cast(layout.schema.key_type)
        payloads = pieces(self._sections.data, events.data_starts, events.data_ends) if "data" in columns else None
        schema = pa.schema([layout.schema.arrow.field(name) for name in columns])

        def column(name: str, rows: I64) -> pa.Array:
            if name == "space":
                return keys.take(pa.array(self._space_of_section[sections[rows]]))
            if name == "grouping":
                return groupings.take(pa.array(sections[rows]))
            if name == "timestamp":
                return pa.array(events.seconds[rows] * _MICROSECONDS).cast(schema.field(name).type)
            if name == "data" and payloads is not None:
                return take_pieces(payloads, rows)
            codes, values = indexed[name]
            return values.take(pa.array(codes[rows], mask=codes[rows] < 0))

        for first, last in _cut(events.data_ends - events.data_starts, order):
            rows = order[first:last]
            yield pa.RecordBatch.from_arrays([column(name, rows) for name in columns], schema=schema)

    def _index_columns(self, indexes: list[IndexColumn], layout: Layout) -> dict[str, tuple[I64, pa.Array]]:
        """For each index its values, and for each row the number of the one it has, -1 for none."""
        if not indexes:
            return {}
        place_of = {index.stored: place for place, index in enumerate(indexes)}
        spans: list[tuple[int, int]] = []
        owners, places, codes = [], [], []
        values: list[dict[bytes, int]] = [{} for _ in indexes]
        for number, space in enumerate(self._spaces):
            for section in space.directory.indexes:
                place = place_of.get(section.name)
                if place is not None:
                    spans.append(_span(space, section))
                    owners.append(number)
                    places.append(place)
                    codes.append(values[place].setdefault(section.value, len(values[place])))
        rows, numbers = self._rows_of_entries(self._read(spans), np.array(owners, dtype=np.int64))
        place_of_row = np.array(places, dtype=np.int64)[numbers]
        code_of_row = np.array(codes, dtype=np.int64)[numbers]
        columns = {}
        for place, index in enumerate(indexes):
            mine = place_of_row == place
            found = np.full(len(self), -1, dtype=np.int64)
            found[rows[mine]] = code_of_row[mine]
            if np.count_nonzero(found >= 0) != np.count_nonzero(mine):
                raise CorruptSegmentError(f"an event is in the index {index.name!r} twice")
            columns[index.name] = (found, pa.array(list(values[place]), pa.binary()).cast(index.type))
        return columns

    def _rows_of_entries(self, sections: Sections, owners: I64) -> tuple[I64, I64]:
        """The row and the section of each index entry."""
        blocks, offsets, numbers = read_entries(sections)
        lengths = np.array([space.place.length for space in self._spaces], dtype=np.int64)
        starts = np.array([space.at for space in self._spaces], dtype=np.int64)
        owner = owners[numbers]
        if ((blocks < 0) | (blocks >= lengths[owner])).any():
            raise CorruptSegmentError("an index entry names a block outside its space")
        return entry_rows(self._events, self._sections, blocks + starts[owner], offsets), numbers


def index_counts(stored: bytes, spaces: Sequence[LoadedSpace], name: bytes) -> Iterator[tuple[bytes, int]]:
    """Values of an index and how many events of a space have it, space by space."""
    found = [(s, section) for s in spaces for section in s.directory.indexes if section.name == name]
    sections = read_sections(stored, [_span(space, section) for space, section in found])
    _, _, numbers = read_entries(sections)
    counts = np.bincount(numbers, minlength=len(found))
    yield from ((section.value, int(count)) for (_, section), count in zip(found, counts, strict=True))


def _span(space: LoadedSpace, section: Section) -> tuple[int, int]:
    return space.at + section.start, space.at + section.end


def _cut(lengths: I64, order: I64) -> Iterator[tuple[int, int]]:
    """Stretches [first, last) of an order that make a batch: bounded in rows and in bytes."""
    sizes = np.cumsum(lengths[order])
    first, done = 0, 0
    while first < len(order):
        last = int(np.searchsorted(sizes, done + BATCH_BYTES, side="right"))
        last = min(max(last, first + 1), first + BATCH_ROWS, len(order))
        yield first, last
        first, done = last, int(sizes[last - 1])
