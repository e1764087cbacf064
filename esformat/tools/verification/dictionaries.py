"""Check dictionary blocks, and provide the decode contexts of columns that use them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from esformat.errors import CorruptSegmentError
from esformat.format.dictionary import ColumnDictionary
from esformat.format.frame import Block
from esformat.format.layout import MAX_PAGE_ENTRIES
from esformat.format.node import DecodeContext
from esformat.format.schema import Field
from esformat.tools.verification.parts import Parts, check_range

_ENTRY = struct.Struct("<HHII")  # column, templates, zstd bytes, values


def read_dictionary(block: Block, fields: Sequence[Field], own: DecodeContext) -> list[ColumnDictionary]:
    """The dictionary of each column in a dictionary block. Raises CorruptSegmentError."""
    parts = Parts(block.body, own)
    columns: list[ColumnDictionary] = []
    for _ in range(block.count):
        place, template_count, zstd_bytes, value_count = parts.fields(_ENTRY)
        check_range(0, place, len(fields) - 1, "the column of a dictionary")
        check_range(0, value_count, MAX_PAGE_ENTRIES, "the number of values of a dictionary")
        (zstd,) = parts.fields(struct.Struct(f"{zstd_bytes}s")) if zstd_bytes else (b"",)
        values = parts.values(value_count, fields[place].type) if value_count else None
        if any(column.column == place for column in columns):
            raise CorruptSegmentError(f"a dictionary lists column {place} twice")
        templates = parts.templates(template_count, fields[place].type) if template_count else None
        columns.append(ColumnDictionary(place, zstd, values, templates))
    parts.end()
    return columns


class Contexts:
    """The columns' decode contexts for each dictionary number; None for a lost dictionary."""

    def __init__(self, own: DecodeContext) -> None:
        self._own = own
        self._known: dict[int, list[DecodeContext | None]] = {}
        self._lost: set[int] = set()

    def add(self, number: int, contexts: list[DecodeContext | None]) -> None:
        """Add the contexts of a dictionary."""
        self._known[number] = contexts

    def lose(self, number: int) -> None:
        """Record that a dictionary exists but, until `add`, cannot be read."""
        self._lost.add(number)

    def __contains__(self, number: int) -> bool:
        return number in self._known

    def of(self, number: int, column_count: int) -> list[DecodeContext | None]:
        """The contexts of blocks that use a dictionary. Raises CorruptSegmentError if the file does not have it."""
        if not number:
            return [self._own] * column_count
        if number in self._known:
            return self._known[number]
        if number in self._lost:
            return [None] * column_count
        raise CorruptSegmentError(f"a data block needs dictionary {number}, which the file does not have")
