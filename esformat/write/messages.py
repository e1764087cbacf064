"""Batches of one set of columns as Arrow IPC messages of a schema.

This module determines the columns, and what all messages of a schema have in common; the core's `messages` writes them.
`pyarrow.ipc.read_record_batch` reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import chain

import pyarrow as pa
import pyarrow.types as pt

from esformat.core.messages import BITS, FIXED_LISTS, LISTS, STRUCTS, TEXTS, VALUES, Column, MessageWriter
from esformat.format.schema import KEY_COLUMNS

_LENGTH, _BODY_LENGTH = 0, 3  # field numbers in the tables of a message
_HEADER, _NODES, _BUFFERS = 2, 1, 2


def message_writer(
    given: pa.Schema, target: pa.Schema, sources: Mapping[str, int], longest_key: int
) -> MessageWriter | None:
    """A writer of batches of the columns `given` as messages of `target`; None if `target` has unsupported types.

    sources: for each column its position in `given`, where it has the same type or one with the same bytes; other
    columns are null, or "". longest_key: most bytes of a space or grouping; batches with a longer one are not written.
    """
    columns: list[Column] = []
    for field in target:
        found = _columns_of(field.type)
        if not found:
            return None
        longest = longest_key if field.name in KEY_COLUMNS[:2] else -1
        columns += [(sources.get(field.name, -1), *found[0][:2], not field.nullable, longest, found[0][2])]
        columns += [(-1, kind, width, False, -1, parts) for kind, width, parts in found[1:]]
    head, places = _head(target)
    return MessageWriter(head, places, columns, sources["timestamp"])


def _columns_of(kind: pa.DataType) -> list[tuple[int, int, int]]:
    """A column of the type followed by its parts, as `MessageWriter` takes them: the kind of each, the number that goes
    with it, and how many parts it has. Empty for an unsupported type.
    """
    if pt.is_boolean(kind):
        return [(BITS, 0, 0)]
    if pt.is_primitive(kind) or pt.is_decimal(kind) or pt.is_fixed_size_binary(kind):
        return [(VALUES, int(kind.bit_width) // 8, 0)] if kind.bit_width else []
    if pt.is_string(kind) or pt.is_binary(kind):
        return [(TEXTS, 4, 0)]
    if pt.is_large_string(kind) or pt.is_large_binary(kind):
        return [(TEXTS, 8, 0)]
    if pt.is_list(kind) or pt.is_map(kind):
        own = (LISTS, 4, 1)
    elif pt.is_large_list(kind):
        own = (LISTS, 8, 1)
    elif pt.is_fixed_size_list(kind):
        own = (FIXED_LISTS, kind.list_size, 1)
    elif pt.is_struct(kind):
        own = (STRUCTS, 0, kind.num_fields)
    else:
        return []
    parts = [_columns_of(kind.field(place).type) for place in range(kind.num_fields)]
    return [own, *chain.from_iterable(parts)] if all(parts) else []


def _head(schema: pa.Schema) -> tuple[bytes, tuple[int, int, int, int]]:
    """The metadata of a message, and where it contains: the number of rows, the nodes, the buffers, the body's length.

    Arrow writes it for one row: whatever depends on the rows is a 64-bit number, and only zeros would be omitted.
    """
    message = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema).serialize()
    stored = message.to_pybytes()
    head = stored[: 8 + struct.unpack_from("<i", stored, 4)[0]]
    root = _followed(head, 8)
    header = _followed(head, _field(head, root, _HEADER))
    nodes, buffers = (_followed(head, _field(head, header, field)) + 4 for field in (_NODES, _BUFFERS))
    return head, (_field(head, header, _LENGTH), nodes, buffers, _field(head, root, _BODY_LENGTH))


def _followed(head: bytes, at: int) -> int:
    """The position to which an offset points."""
    return at + int(struct.unpack_from("<I", head, at)[0])


def _field(head: bytes, table: int, number: int) -> int:
    """The position of a field of a table, which must have that field."""
    places = table - int(struct.unpack_from("<i", head, table)[0])
    return table + int(struct.unpack_from("<H", head, places + 4 + 2 * number)[0])
