"""The columns of a Go ESDB file's events: the usual ones, and one per index."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from esformat.errors import CorruptSegmentError, UnsupportedVersionError
from esformat.format.layout import MAX_COLUMNS
from esformat.format.schema import DATA_COLUMN, KEY_COLUMNS, EventSchema, Field

RESERVED = (*KEY_COLUMNS, DATA_COLUMN)
MAX_INDEXES = MAX_COLUMNS - 1


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """One index of the file, and its column."""

    stored: bytes
    """The name in the file."""
    name: str
    """The name in the file, with "_" after reserved names and in place of NUL, which segments reject."""
    binary: bool
    """Whether some value is not UTF-8: then the column contains bytes."""

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the column."""
        return pa.binary() if self.binary else pa.string()


class Names:
    """Splits index entries `name:value`, whose boundary the file does not record: normally at the first colon.

    Go allows colons in names too. If an event has two entries of the same name, such as `tag:red:1` and `tag:blue:1`,
    the name extends to the next colon. If no colon distinguishes them, the whole entries are the names.
    """

    def __init__(self) -> None:
        self._longer: set[bytes] = set()  # names that extend to the next colon, if there is one
        self._whole: set[bytes] = set()  # names whose entries are names as a whole

    def split(self, pair: bytes) -> tuple[bytes, bytes]:
        """Return the name and value of an entry."""
        at = pair.index(b":")
        while pair[:at] in self._longer and (after := pair.find(b":", at + 1)) >= 0:
            at = after
        return (pair, b"") if pair[:at] in self._whole else (pair[:at], pair[at + 1 :])

    def pair(self, name: bytes, value: bytes) -> bytes:
        """Return the entry of a name and a value: the inverse of `split`."""
        return name if not value and name.rpartition(b":")[0] in self._whole else name + b":" + value

    def refine(self, name: bytes) -> None:
        """Record that an event has two entries of that name."""
        (self._whole if name in self._longer else self._longer).add(name)


@dataclass(frozen=True)
class Layout:
    """The columns of a file's events: space, grouping, timestamp, data, then one per index, by name."""

    binary_keys: bool
    indexes: tuple[IndexColumn, ...]
    names: Names = field(default_factory=lambda: Names())
    """How to split index entries into name and value."""

    @cached_property
    def schema(self) -> EventSchema:
        """The schema of a segment with these columns."""
        columns = [Field(index.name, index.type, indexed=not index.binary) for index in self.indexes]
        return EventSchema((Field(DATA_COLUMN, pa.binary(), nullable=False), *columns), self.binary_keys)

    @cached_property
    def by_name(self) -> dict[str, IndexColumn]:
        """The indexes by column name."""
        return {index.name: index for index in self.indexes}

    @cached_property
    def by_stored(self) -> dict[bytes, int]:
        """The positions of the indexes by name in the file."""
        return {index.stored: place for place, index in enumerate(self.indexes)}

    @property
    def index_names(self) -> tuple[str, ...]:
        """Names of the index columns."""
        return tuple(index.name for index in self.indexes)

    @property
    def empty(self) -> str | bytes:
        """The empty key."""
        return b"" if self.binary_keys else ""


KEY_LAYOUT = Layout(binary_keys=True, indexes=())
"""The columns that every file has, with binary keys, which fit any file."""
SAME_IN_ALL = frozenset(("timestamp", DATA_COLUMN))
"""Columns that have the same type in every file."""


class Layouts(NamedTuple):
    """The columns that a query needs, found lazily: those of the whole file require reading every space."""

    near: Callable[[], Layout]
    """The columns that have a value in the result, which suffice for its events."""
    whole: Callable[[], Layout]
    """All columns of the file."""

    def naming(self, names: Iterable[str]) -> Layout:
        """Return the cheapest layout that has those columns, if the file has them."""
        wanted = tuple(names)
        for known in (KEY_LAYOUT, self.near()) if wanted else (KEY_LAYOUT,):
            if all(name in known.schema.arrow.names for name in wanted):
                return known
        return self.whole()


def near_layout(keys: Iterable[bytes], pairs: Iterable[bytes]) -> Layout | None:
    """The columns of some spaces of a file; None if their names depend on the other spaces."""
    entries = list(pairs)
    names = {entry.partition(b":")[0] for entry in entries}
    if any(entry.count(b":") > 1 for entry in entries) or any(
        not name or b"\0" in name or not is_text(name) or name.decode() in RESERVED for name in names
    ):
        return None
    return make_layout(keys, entries, Names())


def make_layout(keys: Iterable[bytes], pairs: Iterable[bytes], names: Names) -> Layout:
    """Return the columns for these keys of spaces and groupings, and index entries `name:value`.

    Raises CorruptSegmentError for an index name that is not text, UnsupportedVersionError for too many indexes.
    """
    binary: dict[bytes, bool] = {}
    for stored, value in map(names.split, pairs):
        binary[stored] = binary.get(stored, False) or not is_text(value)
        if len(binary) > MAX_INDEXES:
            raise UnsupportedVersionError(f"the file has more than {MAX_INDEXES} indexes, too many for one table")
    taken = set(RESERVED)
    columns: list[IndexColumn] = []
    for stored in sorted(binary):
        if not is_text(stored):
            raise CorruptSegmentError(f"the index name {stored!r} is not UTF-8 text")
        name = stored.decode().replace("\0", "_") or "_"
        while name in taken or (name.encode() != stored and name.encode() in binary):
            name += "_"
        taken.add(name)
        columns.append(IndexColumn(stored, name, binary[stored]))
    return Layout(not all(map(is_text, keys)), tuple(columns), names)


def shown(value: bytes) -> str | bytes:
    """Return a key or index value as shown in events: text if it is UTF-8, whatever else the file contains."""
    return value.decode() if is_text(value) else value


def is_text(value: bytes) -> bool:
    """Whether bytes are UTF-8."""
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def check_pair(pair: bytes) -> bytes:
    """Return an index entry `name:value`. Raises CorruptSegmentError if it has no colon."""
    if b":" not in pair:
        raise CorruptSegmentError(f"the index entry {pair[:64]!r} has no colon between name and value")
    return pair
