"""Dictionary blocks: for each column, the zstd dictionary of its frames and the values that its codes stand for.

A file usually has one, written twice: data blocks cannot be read without it. Files that were merged have
several; each data block says which one it needs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import zstandard

from esformat.errors import CorruptSegmentError
from esformat.format.codec import load_dictionary
from esformat.format.encoding import decode_node, encode_node, end_of_node
from esformat.format.frame import Block, encode_block
from esformat.format.layout import MAX_PAGE_ENTRIES, BlockKind
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.schema import Field

_ENTRY = struct.Struct(
    "<"
    "H"  # column: its place among the payload and index columns
    "H"  # reserved, zero
    "I"  # bytes of the zstd dictionary, 0 for none
    "I"  # values, 0 for none
)


@dataclass(frozen=True, slots=True)
class ColumnDictionary:
    """What one column's nodes refer to: a zstd dictionary for frames, values for codes (code 1 is `values[0]`)."""

    column: int
    zstd: bytes = b""
    values: pa.Array | None = None


def encode_dictionary(columns: Sequence[ColumnDictionary], context: EncodeContext) -> bytes:
    """One framed dictionary block."""
    parts = []
    for column in columns:
        count = 0 if column.values is None else len(column.values)
        parts.append(_ENTRY.pack(column.column, 0, len(column.zstd), count) + column.zstd)
        if column.values is not None:
            parts.append(encode_node(column.values, context))
    return encode_block(BlockKind.DICTIONARY, b"".join(parts), count=len(columns))


@dataclass(frozen=True, slots=True)
class StoredDictionary:
    """One column's entry in a dictionary block, its values not yet decoded: most questions need none of them."""

    column: int
    zstd: bytes
    count: int
    type: pa.DataType
    node: memoryview
    offset: int

    def values(self, context: DecodeContext) -> pa.Array | None:
        """The values; None where the column has no codes. Raises CorruptSegmentError."""
        if not self.count:
            return None
        values, _ = decode_node(self.node, 0, self.count, self.type, context)
        if values.null_count:
            raise CorruptSegmentError("a dictionary holds a null", offset=self.offset)
        return values


def decode_dictionary(block: Block, fields: Sequence[Field], context: DecodeContext) -> list[ColumnDictionary]:
    """Read what `encode_dictionary` wrote. Raises CorruptSegmentError."""
    stored = open_dictionary(block, fields, context)
    return [ColumnDictionary(entry.column, entry.zstd, entry.values(context)) for entry in stored]


def open_dictionary(block: Block, fields: Sequence[Field], context: DecodeContext) -> list[StoredDictionary]:
    """The same with the values yet to be decoded. Raises CorruptSegmentError."""
    body, at = block.body, 0
    columns = []
    for _ in range(block.count):
        if len(body) - at < _ENTRY.size:
            raise CorruptSegmentError("a dictionary block is cut short", offset=block.offset)
        place, reserved, zstd_bytes, count = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size
        if place >= len(fields) or reserved or at + zstd_bytes > len(body) or count > MAX_PAGE_ENTRIES:
            raise CorruptSegmentError("a dictionary block breaks the format", offset=block.offset)
        zstd = bytes(body[at : at + zstd_bytes])
        at += zstd_bytes
        kind = fields[place].type
        end = end_of_node(body, at, count, kind, context) if count else at
        columns.append(StoredDictionary(place, zstd, count, kind, body[at:end], block.offset))
        at = end
    if at != len(body):
        raise CorruptSegmentError("a dictionary block is longer than its columns", offset=block.offset)
    return columns


def with_null(values: pa.Array) -> pa.Array:
    """`values` with the null of code 0 in front."""
    return pa.concat_arrays([pa.nulls(1, values.type), values])


def zstd_of(column: ColumnDictionary | StoredDictionary) -> zstandard.ZstdCompressionDict | None:
    """The zstd dictionary, ready for use."""
    return load_dictionary(column.zstd) if column.zstd else None
