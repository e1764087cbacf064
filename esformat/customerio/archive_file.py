"""The structure of an archive: the positions of its spaces and their sections. Decodes no events."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from esformat.customerio.layout import check_pair
from esformat.customerio.sst import FOOTER_BYTES, Pair, Table
from esformat.customerio.varint import decode
from esformat.errors import CorruptSegmentError
from esformat.io.source import Source

SPACE_MARK = 0x2A
LENGTH = struct.Struct("<q")  # of the sorted table before it
_PLACE = struct.Struct(
    "<"  # little-endian, no padding
    "q"  # offset of a space in the file
    "q"  # its length
)
_TAIL_BYTES = 4096  # end of a space to read first: most directories fit


class SpacePlace(NamedTuple):
    """A space and its bytes [offset, offset + length) of the file."""

    key: bytes
    offset: int
    length: int


class Section(NamedTuple):
    """A section and its bytes [start, end) in the space: the events of a grouping, or the entries of `name:value`."""

    key: bytes
    start: int
    end: int


class Listing(NamedTuple):
    """The directory of a space as stored: the keys of its sections with their positions."""

    pairs: list[Pair]
    end: int
    """The offset in the space at which the sections end."""


class Directory(NamedTuple):
    """The sections of a space: groupings in key order, then index entries."""

    groupings: list[Section]
    indexes: list[Section]


def read_table(source: Source, end: int, first: int) -> tuple[Table, int]:
    """Read the sorted table whose length is in the 8 bytes before `end`; return it and its start, at least `first`.

    Raises CorruptSegmentError.
    """
    if end - first < LENGTH.size + FOOTER_BYTES:
        raise CorruptSegmentError("there is no room for a sorted table", path=source.name, offset=end)
    (length,) = LENGTH.unpack(source.read_at(end - LENGTH.size, LENGTH.size))
    start = end - LENGTH.size - length
    if length < FOOTER_BYTES or start < first:
        raise CorruptSegmentError(
            f"a sorted table is said to have {length} bytes, which cannot be",
            path=source.name,
            offset=end - LENGTH.size,
        )
    return Table(source.read_at(start, length), start), start


class ArchiveFile:
    """The spaces of an archive. Thread-safe."""

    def __init__(self, source: Source) -> None:
        """Raises CorruptSegmentError if the file does not end like an archive."""
        self.source = source
        self._table, self._end = read_table(source, source.size, 0)

    def find(self, key: bytes) -> SpacePlace | None:
        """Return the position of a space; None if the archive does not contain it."""
        stored = self._table.get(key)
        return None if stored is None else self._place(key, stored)

    def spaces(self) -> Iterator[SpacePlace]:
        """Yield the position of each space, in key order."""
        for key, stored in self._table.items():
            yield self._place(key, stored)

    def _place(self, key: bytes, stored: bytes) -> SpacePlace:
        if len(stored) != _PLACE.size:
            raise CorruptSegmentError(f"the place of space {key!r} has {len(stored)} bytes, not 16")
        offset, length = _PLACE.unpack(stored)
        if offset < 0 or length <= LENGTH.size or offset + length > self._end:
            raise CorruptSegmentError(f"space {key!r} is said to lie outside the file", offset=offset)
        return SpacePlace(key, offset, length)

    def directory(self, place: SpacePlace) -> Directory:
        """Read the sections of a space, in one or two short reads."""
        return decode_directory(self.listing(place), place)

    def listing(self, place: SpacePlace) -> Listing:
        """Read the directory of a space without decoding it: half the time, for callers that need only the keys."""
        size = min(place.length, _TAIL_BYTES)
        tail = self.source.read_at(place.offset + place.length - size, size)
        (length,) = LENGTH.unpack_from(tail, size - LENGTH.size)
        if size < place.length and length + LENGTH.size + 1 > size:
            return read_listing(self.source.read_at(place.offset, place.length), 0, place)
        return read_listing(tail, size - place.length, place)


def read_listing(stored: bytes, at: int, place: SpacePlace) -> Listing:
    """Return the directory of a space that begins at byte `at` of `stored`, negative if `stored` is its tail.

    Raises CorruptSegmentError.
    """
    end = at + place.length - LENGTH.size
    (length,) = LENGTH.unpack_from(stored, end)
    start = end - length
    if length < FOOTER_BYTES or start < max(at + 1, 0):
        raise CorruptSegmentError(
            f"the directory of space {place.key!r} cannot have {length} bytes", offset=place.offset
        )
    return Listing(list(Table(stored[start:end], place.offset + start - at).items()), start - at)


def decode_directory(listing: Listing, place: SpacePlace) -> Directory:
    """Decode the sections of a space. Raises CorruptSegmentError."""
    groupings: list[Section] = []
    indexes: list[Section] = []
    before = 1  # the space's mark
    for key, value in listing.pairs:
        offset, used = decode(value, 0)
        size, used = decode(value, used)
        if used != len(value) or offset != before or not size:
            raise CorruptSegmentError(
                f"the sections of space {place.key!r} do not follow each other", offset=place.offset
            )
        before = offset + size
        if key[:1] == b"g":
            groupings.append(Section(key[1:], offset, before))
        elif key[:1] == b"i":
            indexes.append(Section(check_pair(key[1:]), offset, before))
        else:
            raise CorruptSegmentError(f"space {place.key!r} has a section of an unknown kind", offset=place.offset)
    if before != listing.end:
        raise CorruptSegmentError(
            f"the sections of space {place.key!r} do not end where they should", offset=place.offset
        )
    return Directory(groupings, indexes)
