"""Where things lie in an archive: its spaces, and the sections of each. Reads, and decodes no event."""

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
_TAIL_BYTES = 4096  # of a space, read at once: most directories fit


class SpacePlace(NamedTuple):
    """A space and its bytes [offset, offset + length) of the file."""

    key: bytes
    offset: int
    length: int


class Section(NamedTuple):
    """A section and its bytes [start, end) of the space: a grouping's events, or the entries of `name:value`."""

    key: bytes
    start: int
    end: int


class Listing(NamedTuple):
    """The directory of a space as it is stored: keys of its sections, and where each lies."""

    pairs: list[Pair]
    end: int
    """Where the sections end in the space."""


class Directory(NamedTuple):
    """What a space has: its groupings in key order, then its indexes."""

    groupings: list[Section]
    indexes: list[Section]


def read_table(source: Source, end: int, first: int) -> tuple[Table, int]:
    """The sorted table whose length is in the 8 bytes before `end`, and where it begins, which is not before `first`.

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
    """The spaces of an archive. Safe to share between threads."""

    def __init__(self, source: Source) -> None:
        """Raises CorruptSegmentError where the file does not end as an archive does."""
        self.source = source
        self._table, self._end = read_table(source, source.size, 0)

    def find(self, key: bytes) -> SpacePlace | None:
        """Where a space lies; None if it is not there."""
        stored = self._table.get(key)
        return None if stored is None else self._place(key, stored)

    def spaces(self) -> Iterator[SpacePlace]:
        """Where each space lies, by key."""
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
        """The sections of a space, by one or two short reads."""
        return decode_directory(self.listing(place), place)

    def listing(self, place: SpacePlace) -> Listing:
        """The same, not decoded: it takes half the time, where keys are all that is asked for."""
        size = min(place.length, _TAIL_BYTES)
        tail = self.source.read_at(place.offset + place.length - size, size)
        (length,) = LENGTH.unpack_from(tail, size - LENGTH.size)
        if size < place.length and length + LENGTH.size + 1 > size:
            return read_listing(self.source.read_at(place.offset, place.length), 0, place)
        return read_listing(tail, size - place.length, place)


def read_listing(stored: bytes, at: int, place: SpacePlace) -> Listing:
    """The directory of a space of which `stored` holds what matters; the space itself begins at its byte `at`.

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
    """The sections of a space. Raises CorruptSegmentError."""
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
