"""Dictionary blocks: for each column, the zstd dictionary of its frames, the values of its codes, and its templates.

A file usually has one dictionary block, written twice, because data blocks cannot be read without it. Merged files have
several; each data block names the one that it needs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import zstandard

from esformat.core.bytes_nodes import read_values
from esformat.core.dictionaries import StoredColumn, read_columns
from esformat.core.templates import Templates
from esformat.errors import CorruptSegmentError
from esformat.format.arrays import Values, is_bytes
from esformat.format.codec import Codec, Decompressor, load_dictionary, make_compressor
from esformat.format.encoding import decode_node, encode_node, end_of_node
from esformat.format.frame import Block, encode_block
from esformat.format.layout import MAX_PAGE_ENTRIES, BlockKind
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.schema import Field
from esformat.format.templates import TemplateTable, decode_templates, table_of

LEAST_LEVEL = 12
"""Lowest zstd level for dictionary blocks."""

_ENTRY = struct.Struct(
    "<"
    "H"  # column: its position among the payload and index columns
    "H"  # templates, 0 for none
    "I"  # bytes of the zstd dictionary, 0 for none
    "I"  # values, 0 for none
)


@dataclass(frozen=True, slots=True)
class ColumnDictionary:
    """The dictionary of one column, to which its nodes refer: a zstd dictionary for frames, values for codes (code 1 is
    `values[0]`), and templates (code 1 is the first).
    """

    column: int
    zstd: bytes = b""
    values: pa.Array | None = None
    templates: TemplateTable | None = None


def dictionary_context(codec: Codec, level: int | None) -> EncodeContext:
    """The context that encodes the dictionary blocks of a file. It compresses well and slowly: the blocks are small,
    and each is stored twice.
    """
    slow = make_compressor(codec, max(level or 0, LEAST_LEVEL))
    return EncodeContext(slow, slow)


def encode_dictionary(columns: Sequence[ColumnDictionary], context: EncodeContext) -> bytes:
    """Encode one framed dictionary block."""
    parts = []
    for column in columns:
        count = 0 if column.values is None else len(column.values)
        templates = 0 if column.templates is None else len(column.templates.templates)
        parts.append(_ENTRY.pack(column.column, templates, len(column.zstd), count) + column.zstd)
        if column.values is not None:
            parts.append(encode_node(column.values, context))
        if column.templates is not None:
            parts.append(column.templates.encode(context))
    return encode_block(BlockKind.DICTIONARY, b"".join(parts), count=len(columns))


class StoredDictionary(StoredColumn):
    """One column's entry in a dictionary block. Values and templates are decoded on demand: many reads need neither."""

    __slots__ = ("type",)
    type: pa.DataType

    def values(self, context: DecodeContext) -> pa.Array | None:
        """The values; None if the column has no codes. Raises CorruptSegmentError."""
        return _values_of(self.node, self.count, self.type, self.offset, context) if self.count else None

    def templates(self, context: DecodeContext) -> Templates | None:
        """The templates; None if the column has none. Raises CorruptSegmentError."""
        if not self.template_count:
            return None
        return decode_templates(self.stored_templates, self.template_count, context)

    def shared_values(self) -> Values | None:
        """The values by code, starting with the null of code 0; shared by all threads. Raises CorruptSegmentError."""
        made: Values | None = self.decoded.get("values")
        if made is None and self.count:
            stored = self.node, self.count, self.type, self.offset
            listed = partial(_texts_with_null, *stored) if pt.is_string(self.type) else None
            made = self.decoded.setdefault("values", Values(partial(_values_with_null, *stored), listed))
        return made

    def shared_templates(self, context: DecodeContext) -> Templates | None:
        """The templates, one object for all threads: caches are tied to that object. Raises CorruptSegmentError."""
        made: Templates | None = self.decoded.get("templates")
        if made is None and self.template_count:
            made = self.decoded.setdefault("templates", self.templates(context))
        return made

    def whole(self, context: DecodeContext) -> ColumnDictionary:
        """The whole entry, decoded. Raises CorruptSegmentError."""
        templates = self.templates(context)
        table = None if templates is None else table_of(templates)
        return ColumnDictionary(self.column, self.zstd, self.values(context), table)


def _values_of(node: memoryview, count: int, kind: pa.DataType, offset: int, context: DecodeContext) -> pa.Array:
    values, _ = decode_node(node, 0, count, kind, context)
    if values.null_count:
        raise CorruptSegmentError("a dictionary holds a null", offset=offset)
    return values


def _values_with_null(node: memoryview, count: int, kind: pa.DataType, offset: int) -> pa.Array:
    return with_null(_values_of(node, count, kind, offset, _own_context()))


def _texts_with_null(node: memoryview, count: int, _: pa.DataType, offset: int) -> list[Any]:
    """Like `_values_with_null` for text, but as Python objects, for events: they need no Arrow."""
    own = _own_context()
    edges, texts, _end = read_values(node, 0, count, own.plain, own.framed)
    try:
        return [None, *[texts[first:last].decode() for first, last in pairwise(edges)]]
    except UnicodeDecodeError as error:
        raise CorruptSegmentError(f"stored text is broken: {error}", offset=offset) from None


def decode_dictionary(block: Block, fields: Sequence[Field], context: DecodeContext) -> list[ColumnDictionary]:
    """Decode what `encode_dictionary` wrote. Raises CorruptSegmentError."""
    return [entry.whole(context) for entry in open_dictionary(block, fields, context)]


def open_dictionary(block: Block, fields: Sequence[Field], context: DecodeContext) -> list[StoredDictionary]:
    """Like `decode_dictionary`, but without decoding the values. Raises CorruptSegmentError."""

    def end_of_values(body: memoryview, at: int, count: int, place: int) -> int:
        return end_of_node(body, at, count, fields[place].type, context)

    columns: list[StoredDictionary] = read_columns(
        block.body, block.count, len(fields), MAX_PAGE_ENTRIES, end_of_values, StoredDictionary, block.offset
    )
    for column in columns:
        column.type = fields[column.column].type
        if column.template_count and not is_bytes(column.type):
            raise CorruptSegmentError(f"a column of type {column.type} has templates", offset=block.offset)
    return columns


def _own_context() -> DecodeContext:
    """A context with a new decompressor: any thread may be the first to decode shared values."""
    plain = Decompressor()
    return DecodeContext(plain, plain)


def with_null(values: pa.Array) -> pa.Array:
    """`values` with the null of code 0 prepended."""
    return pa.concat_arrays([pa.nulls(1, values.type), values])


def context_of(column: ColumnDictionary, plain: Decompressor) -> DecodeContext:
    """The context that decodes the nodes of a column. Raises CorruptSegmentError."""
    zstd = zstd_of(column)
    values = None if column.values is None else with_null(column.values)
    templates = None if column.templates is None else column.templates.compiled()
    return DecodeContext(plain, Decompressor(zstd) if zstd else plain, values, templates)


def zstd_of(column: ColumnDictionary | StoredDictionary) -> zstandard.ZstdCompressionDict | None:
    """The zstd dictionary, loaded; None if the column has none."""
    return load_dictionary(column.zstd) if column.zstd else None
