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

from esformat.block import Block, encode_block
from esformat.codec import load_dictionary
from esformat.encoding import decode_node, encode_node
from esformat.errors import CorruptSegmentError
from esformat.layout import MAX_PAGE_ENTRIES, BlockKind
from esformat.node import DecodeContext, EncodeContext
from esformat.schema import Field

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


def decode_dictionary(block: Block, fields: Sequence[Field], context: DecodeContext) -> list[ColumnDictionary]:
    """Read what `encode_dictionary` wrote. Raises CorruptSegmentError."""
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
        values = None
        if count:
            values, at = decode_node(body, at, count, fields[place].type, context)
            if values.null_count:
                raise CorruptSegmentError("a dictionary holds a null", offset=block.offset)
        columns.append(ColumnDictionary(place, zstd, values))
    if at != len(body):
        raise CorruptSegmentError("a dictionary block is longer than its columns", offset=block.offset)
    return columns


def with_null(values: pa.Array) -> pa.Array:
    """`values` with the null of code 0 in front."""
    return pa.concat_arrays([pa.nulls(1, values.type), values])


def zstd_of(column: ColumnDictionary) -> zstandard.ZstdCompressionDict | None:
    """The zstd dictionary, ready for use."""
    return load_dictionary(column.zstd) if column.zstd else None
