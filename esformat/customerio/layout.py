"""Which columns the events of a Go ESDB file have here: its index names as columns beside the usual ones."""

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
    """One index of the file, and the column that shows it."""

    stored: bytes
    """Its name in the file."""
    name: str
    """The same, or with "_" behind it where a segment gives that name another meaning, or for NUL, which it refuses."""
    binary: bool
    """Whether some value is not UTF-8 text: then the column holds bytes."""

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the column."""
        return pa.binary() if self.binary else pa.string()


class Names:
    """Where the name ends in index entries `name:value`, which the file does not tell: at the first colon.

    Go lets names have colons, too. Where an event has two entries of what would be one name, as `tag:red:1` and
    `tag:blue:1`, the name goes on to the next colon. Two entries that no colon tells apart are names as they are.
    """

    def __init__(self) -> None:
        self._longer: set[bytes] = set()  # than these, where there is another colon
        self._whole: set[bytes] = set()  # entries with these names are names themselves

    def split(self, pair: bytes) -> tuple[bytes, bytes]:
        """Name and value of an entry."""
        at = pair.index(b":")
        while pair[:at] in self._longer and (after := pair.find(b":", at + 1)) >= 0:
            at = after
        return (pair, b"") if pair[:at] in self._whole else (pair[:at], pair[at + 1 :])

    def pair(self, name: bytes, value: bytes) -> bytes:
        """The entry of a name and a value: the inverse of `split`."""
        return name if not value and name.rpartition(b":")[0] in self._whole else name + b":" + value

    def refine(self, name: bytes) -> None:
        """Take note that an event has two entries of that name."""
        (self._whole if name in self._longer else self._longer).add(name)


@dataclass(frozen=True)
class Layout:
    """Columns of a file's events: space, grouping, timestamp, data, then one for each index, by name."""

    binary_keys: bool
    indexes: tuple[IndexColumn, ...]
    names: Names = field(default_factory=lambda: Names())
    """Where the names of index entries end."""

    @cached_property
    def schema(self) -> EventSchema:
        """As a segment with these columns has it."""
        columns = [Field(index.name, index.type, indexed=not index.binary) for index in self.indexes]
        return EventSchema((Field(DATA_COLUMN, pa.binary(), nullable=False), *columns), self.binary_keys)

    @cached_property
    def by_name(self) -> dict[str, IndexColumn]:
        """The indexes by the names of their columns."""
        return {index.name: index for index in self.indexes}

    @cached_property
    def by_stored(self) -> dict[bytes, int]:
        """Places of the indexes by their names in the file."""
        return {index.stored: place for place, index in enumerate(self.indexes)}

    @property
    def index_names(self) -> tuple[str, ...]:
        """Names of the index columns."""
        return tuple(index.name for index in self.indexes)

    @property
    def empty(self) -> str | bytes:
        """The key that is nothing."""
        return b"" if self.binary_keys else ""


KEY_LAYOUT = Layout(binary_keys=True, indexes=())
"""The columns that every file has, keys in the type that holds any."""
SAME_IN_ALL = frozenset(("timestamp", DATA_COLUMN))
"""Columns that have the same type in every file."""


class Layouts(NamedTuple):
    """What a question needs of a file's columns, found when it is needed: for the whole file every space is read."""

    near: Callable[[], Layout]
    """Columns that have a value somewhere in the answer: enough for its events."""
    whole: Callable[[], Layout]
    """Columns of the file."""

    def naming(self, names: Iterable[str]) -> Layout:
        """A layout that has those columns, if the file has them."""
        wanted = tuple(names)
        for known in (KEY_LAYOUT, self.near()) if wanted else (KEY_LAYOUT,):
            if all(name in known.schema.arrow.names for name in wanted):
                return known
        return self.whole()


def near_layout(keys: Iterable[bytes], pairs: Iterable[bytes]) -> Layout | None:
    """The columns of some of a file's spaces by themselves; None where the other spaces have a say in their names."""
    entries = list(pairs)
    names = {entry.partition(b":")[0] for entry in entries}
    if any(entry.count(b":") > 1 for entry in entries) or any(
        not name or b"\0" in name or not is_text(name) or name.decode() in RESERVED for name in names
    ):
        return None
    return make_layout(keys, entries, Names())


def make_layout(keys: Iterable[bytes], pairs: Iterable[bytes], names: Names) -> Layout:
    """The columns for those spaces and groupings, and index entries `name:value`.

    Raises CorruptSegmentError for an index name that is no text, UnsupportedVersionError for too many of them.
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
    """A key or index value as events have it: text where it is UTF-8, whatever else the file holds."""
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
    """An index entry that may be `name:value`. Raises CorruptSegmentError where it has no colon."""
    if b":" not in pair:
        raise CorruptSegmentError(f"the index entry {pair[:64]!r} has no colon between name and value")
    return pair
