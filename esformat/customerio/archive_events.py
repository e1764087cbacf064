"""Decoding of archive spaces in memory to columns, many spaces at a time, in the order of a segment."""

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
    """A space whose bytes begin at offset `at` of a buffer."""

    place: SpacePlace
    at: int
    directory: Directory


def load_space(stored: bytes, at: int, place: SpacePlace, known: Listing | None) -> LoadedSpace:
    """Decode the directory of a space in a buffer, or use its `known` listing. Raises CorruptSegmentError."""
    if stored[at] != SPACE_MARK:
        raise CorruptSegmentError(f"space {place.key!r} does not begin with its mark", offset=place.offset)
    return LoadedSpace(place, at, decode_directory(known or read_listing(stored, at, place), place))


class SpaceEvents:
    """The events of some spaces. All arrays are in file order: by section, newest first."""

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
        except CorruptSegmentError as error:  # the error has the offset in the buffer, not in the file
            at = error.offset or 0
            space = max((space for space in self._spaces if space.at <= at), key=lambda space: space.at)
            error.offset = at - space.at + space.place.offset
            raise

    def __len__(self) -> int:
        return len(self._events.places)

    @property
    def seconds(self) -> I64:
        """The timestamp of each event in seconds."""
        return self._events.seconds

    def counts(self) -> list[int]:
        """The number of events of each space."""
        owners = self._space_of_section[self._events.sections]
        return [int(n) for n in np.bincount(owners, minlength=len(self._spaces))]

    def grouping_counts(self) -> list[tuple[bytes, int]]:
        """The groupings of a single loaded space, each with its number of events."""
        found = np.bincount(self._events.sections, minlength=len(self._groupings))
        return [(name, int(count)) for name, count in zip(self._groupings, found, strict=True) if count]

    def order(self, *, merged: bool, reverse: bool, entries_of: bytes | None = None) -> I64:
        """Return the rows oldest first, newest first if `reverse`; ties are in insertion order both ways, as in Go.

        Sorted by space, grouping and time; or, if `merged`, by time alone, for a single space. entries_of: only the
        events of this index entry `name:value`; then ties across groupings are in insertion order too.
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
        """Yield the columns of the rows in `order`, a few thousand rows per batch."""
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
        """By index: the code of each row's value, -1 if it has none, and the values."""
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
        """Return the row and the section number of each index entry."""
        blocks, offsets, numbers = read_entries(sections)
        lengths = np.array([space.place.length for space in self._spaces], dtype=np.int64)
        starts = np.array([space.at for space in self._spaces], dtype=np.int64)
        owner = owners[numbers]
        if ((blocks < 0) | (blocks >= lengths[owner])).any():
            raise CorruptSegmentError("an index entry names a block outside its space")
        return entry_rows(self._events, self._sections, blocks + starts[owner], offsets), numbers


def _codes_of_doubled(rows: I64, codes: I64) -> list[int]:
    """Return the distinct codes of the rows that occur several times."""
    found, counts = np.unique(rows, return_counts=True)
    several: list[int] = np.unique(codes[found[counts > 1]]).tolist()
    return several


def index_counts(
    stored: bytes, spaces: Sequence[LoadedSpace], name: bytes, names: Names
) -> Iterator[tuple[bytes, int]]:
    """Yield the values of an index, each with its number of events in one space, space by space."""
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
    """Return section number, block and offset of each entry, one row per entry."""
    blocks, offsets, numbers = read_entries(sections)
    return np.stack([numbers, blocks, offsets], axis=1)


def refine_names(stored: bytes, spaces: Sequence[LoadedSpace], names: Names) -> None:
    """Lengthen `names` until no event has two values of one index."""
    while doubled := _doubled_names(stored, spaces, names):
        for name in doubled:
            names.refine(name)


def _doubled_names(stored: bytes, spaces: Sequence[LoadedSpace], names: Names) -> list[bytes]:
    """Return the names for which an event of the spaces has two values."""
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
    """Yield ranges [first, last) of an order that form a batch, limited in rows and bytes."""
    sizes = np.cumsum(lengths[order])
    first, done = 0, 0
    while first < len(order):
        last = int(np.searchsorted(sizes, done + BATCH_BYTES, side="right"))
        last = min(max(last, first + 1), first + BATCH_ROWS, len(order))
        yield first, last
        first, done = last, int(sizes[last - 1])
