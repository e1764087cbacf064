"""Which columns the events of a Go ESDB file have here: its index names as columns beside the usual ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from esformat.errors import CorruptSegmentError, UnsupportedVersionError
from esformat.layout import MAX_COLUMNS
from esformat.schema import DATA_COLUMN, KEY_COLUMNS, EventSchema, Field

RESERVED = (*KEY_COLUMNS, DATA_COLUMN)
MAX_INDEXES = MAX_COLUMNS - 1


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """One index of the file, and the column that shows it."""

    stored: bytes
    """Its name in the file."""
    name: str
    """The same, or with "_" behind it where a segment gives that name another meaning."""
    binary: bool
    """Whether some value is not UTF-8 text: then the column holds bytes."""

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the column."""
        return pa.binary() if self.binary else pa.string()


@dataclass(frozen=True)
class Layout:
    """Columns of a file's events: space, grouping, timestamp, data, then one for each index, by name."""

    binary_keys: bool
    indexes: tuple[IndexColumn, ...]

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

    def shown(self, key: bytes) -> str | bytes:
        """A space or grouping as callers see it."""
        return key if self.binary_keys else key.decode()


def make_layout(keys: Iterable[bytes], indexes: Iterable[tuple[bytes, bytes]]) -> Layout:
    """The columns for those spaces and groupings, and pairs of index name and value.

    Raises CorruptSegmentError for an index name that is no text, UnsupportedVersionError for too many of them.
    """
    names: dict[bytes, bool] = {}
    for stored, value in indexes:
        names[stored] = names.get(stored, False) or not is_text(value)
        if len(names) > MAX_INDEXES:
            raise UnsupportedVersionError(f"the file has more than {MAX_INDEXES} indexes, too many for one table")
    taken = set(RESERVED)
    columns: list[IndexColumn] = []
    for stored in sorted(names):
        if not is_text(stored):
            raise CorruptSegmentError(f"the index name {stored!r} is not UTF-8 text")
        name = stored.decode() or "_"
        while name in taken or (name.encode() != stored and name.encode() in names):
            name += "_"
        taken.add(name)
        columns.append(IndexColumn(stored, name, names[stored]))
    return Layout(not all(map(is_text, keys)), tuple(columns))


def is_text(value: bytes) -> bool:
    """Whether bytes are UTF-8."""
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def split_pair(pair: bytes) -> tuple[bytes, bytes]:
    """Name and value of `name:value`: the first colon parts them. Raises CorruptSegmentError without one."""
    name, colon, value = pair.partition(b":")
    if not colon:
        raise CorruptSegmentError(f"the index entry {pair[:64]!r} has no colon between name and value")
    return name, value
