"""Spaces of an archive, in memory, to columns: many spaces at a time, in the order of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from esformat.customerio.archive_file import (
    SPACE_MARK,
    Directory,
    Listing,
    Section,
    SpacePlace,
    decode_directory,
    read_listing,
)
from esformat.customerio.archive_sections import Events, entry_rows, read_entries, read_events
from esformat.customerio.blocks import Sections, read_sections
from esformat.customerio.layout import IndexColumn, Layout, Names
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


def load_space(stored: bytes, at: int, place: SpacePlace, known: Listing | None) -> LoadedSpace:
    """A space in a buffer, with its listing if that is `known`. Raises CorruptSegmentError."""
    if stored[at] != SPACE_MARK:
        raise CorruptSegmentError(f"space {place.key!r} does not begin with its mark", offset=place.offset)
    return LoadedSpace(place, at, decode_directory(known or read_listing(stored, at, place), place))


class SpaceEvents:
    """The events of some spaces. All arrays are in the order of the file: by section, newest first."""

    def __init__(self, stored: bytes, spaces: Sequence[LoadedSpace]) -> None:
        """Raises CorruptSegmentError."""
        self._stored = stored
        self._spaces = spaces
        self._groupings = [section.key for space in spaces for section in space.directory.groupings]
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

    def order(self, *, merged: bool, reverse: bool, entries_of: bytes | None = None) -> I64:
        """Rows oldest first, or newest first where `reverse`; ties as they were added, both ways, as Go has them.

        By space, grouping and time; or `merged` by time alone, for one space. entries_of: an entry `name:value` of
        whose events alone it is; then ties of different groupings are in their order, too.
        """
        sign = -1 if reverse else 1
        seconds = sign * self._events.seconds
        if not merged:
            return np.lexsort((seconds, sign * self._events.sections))
        if entries_of is None:
            return np.argsort(seconds, kind="stable")
        spans = [
            _span(space, section)
            for space in self._spaces
            for section in space.directory.indexes
            if section.key == entries_of
        ]
        rows, _ = self._rows_of_entries(self._read(spans), np.zeros(len(spans), dtype=np.int64))
        _, first = np.unique(rows, return_index=True)
        rows = rows[np.sort(first)]
        return rows[np.argsort(seconds[rows], kind="stable")]

    def batches(self, layout: Layout, columns: tuple[str, ...], order: I64) -> Iterator[pa.RecordBatch]:
        """Those columns of the rows in an order, some thousand rows at a time."""
        events = self._events
        indexed = self._index_columns(
            [layout.by_name[name] for name in columns if name in layout.by_name], layout.names
        )
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

    def _index_columns(self, indexes: list[IndexColumn], names: Names) -> dict[str, tuple[I64, pa.Array]]:
        """For each index its values, and for each row the number of the one it has, -1 for none."""
        if not indexes:
            return {}
        place_of = {index.stored: place for place, index in enumerate(indexes)}
        spans: list[tuple[int, int]] = []
        owners, places, codes = [], [], []
        values: list[dict[bytes, int]] = [{} for _ in indexes]
        for number, space in enumerate(self._spaces):
            for section in space.directory.indexes:
                name, value = names.split(section.key)
                place = place_of.get(name)
                if place is not None:
                    spans.append(_span(space, section))
                    owners.append(number)
                    places.append(place)
                    codes.append(values[place].setdefault(value, len(values[place])))
        rows, numbers = self._rows_of_entries(self._read(spans), np.array(owners, dtype=np.int64))
        place_of_row = np.array(places, dtype=np.int64)[numbers]
        code_of_row = np.array(codes, dtype=np.int64)[numbers]
        columns = {}
        for place, index in enumerate(indexes):
            mine = place_of_row == place
            found = np.full(len(self), -1, dtype=np.int64)
            found[rows[mine]] = code_of_row[mine]
            if np.count_nonzero(found >= 0) != np.count_nonzero(mine):
                known = list(values[place])
                again = {known[code] for code in _codes_of_doubled(rows[mine], found)}
                names_may_meet = all(names.pair(index.stored, value).count(b":") > 1 for value in again)
                if not names_may_meet or (found[rows[mine]] != code_of_row[mine]).any():
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


def _codes_of_doubled(rows: I64, codes: I64) -> list[int]:
    """Of the rows that come several times, the codes."""
    found, counts = np.unique(rows, return_counts=True)
    several: list[int] = np.unique(codes[found[counts > 1]]).tolist()
    return several


def index_counts(
    stored: bytes, spaces: Sequence[LoadedSpace], name: bytes, names: Names
) -> Iterator[tuple[bytes, int]]:
    """Values of an index and how many events of a space have it, space by space."""
    found = [
        (space, section, value)
        for space in spaces
        for section in space.directory.indexes
        for own, value in [names.split(section.key)]
        if own == name
    ]
    sections = read_sections(stored, [_span(space, section) for space, section, _ in found])
    numbers = np.unique(_entry_places(sections), axis=0)[:, 0]
    counts = np.bincount(numbers, minlength=len(found))
    yield from ((value, int(count)) for (_, _, value), count in zip(found, counts, strict=True))


def _entry_places(sections: Sections) -> I64:
    """Rows of section, block and offset, one for each entry."""
    blocks, offsets, numbers = read_entries(sections)
    return np.stack([numbers, blocks, offsets], axis=1)


def refine_names(stored: bytes, spaces: Sequence[LoadedSpace], names: Names) -> None:
    """Let `names` be so long that no event has two values of one."""
    while doubled := _doubled_names(stored, spaces, names):
        for name in doubled:
            names.refine(name)


def _doubled_names(stored: bytes, spaces: Sequence[LoadedSpace], names: Names) -> list[bytes]:
    """Names of which an event of the spaces has two values."""
    spans: list[tuple[int, int]] = []
    owners: list[tuple[int, bytes]] = []  # space and name
    for number, space in enumerate(spaces):
        by_name: dict[bytes, list[Section]] = {}
        for section in space.directory.indexes:
            by_name.setdefault(names.split(section.key)[0], []).append(section)
        for name, sections in by_name.items():
            if len(sections) > 1 and any(section.key.count(b":") > 1 for section in sections):
                spans += [_span(space, section) for section in sections]
                owners += [(number, name)] * len(sections)
    if not spans:
        return []
    places = np.unique(_entry_places(read_sections(stored, spans)), axis=0)
    known: dict[tuple[int, bytes], int] = {}
    numbers = np.array([known.setdefault(owner, len(known)) for owner in owners], dtype=np.int64)
    places[:, 0] = numbers[places[:, 0]]
    found, counts = np.unique(places, axis=0, return_counts=True)
    doubled = set(found[counts > 1, 0].tolist())
    return sorted({name for (_, name), number in known.items() if number in doubled})


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
