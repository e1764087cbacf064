"""Check every rule of packed integers and column nodes, sections 7 to 9 of the format; readers check only some."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from esformat.errors import CorruptSegmentError
from esformat.format.arrays import entries_field, is_bytes, number_dtype
from esformat.format.bytes_node import BytesNode, check_lengths, frame_sizes
from esformat.format.codec import Decompressor
from esformat.format.layout import MAX_ELEMENTS
from esformat.format.node import DecodeContext, NodeHead, Shape, read_head, shape_of
from esformat.format.packing import Pack, decode_ints, read_pack
from esformat.format.template_node import TemplateNode

I64 = npt.NDArray[np.int64]
_NODE_HEADER_BYTES = 4


def check_pack(body: memoryview, at: int, count: int, plain: Decompressor) -> Pack:
    """Open a pack and check every rule. Raises CorruptSegmentError."""
    pack = read_pack(body, at, count)
    if pack.bits:
        if count * pack.bits % 8 and body[pack.end - 1] >> (count * pack.bits % 8):
            raise CorruptSegmentError("bits behind packed numbers are not 0")
    elif pack.raw < pack.width:
        plain.check(pack.codec, body[pack.stored_at : pack.end], (pack.width - pack.raw) * count)
    return pack


def check_node(
    body: memoryview,
    at: int,
    count: int,
    kind: pa.DataType,
    context: DecodeContext,
    *,
    nullable: bool = True,
    whole: bool = True,
) -> int:
    """Check a node of `count` values at byte `at`. Returns the byte after it. Raises CorruptSegmentError.

    nullable: whether nulls are allowed. whole: whether its values are whole values of a column, not parts of them.
    """
    head = read_head(body, at, count, context.plain)
    shape = head.shape
    _check_head(head, context, whole=whole)
    if head.valid is not None:
        check_pack(body, at + _NODE_HEADER_BYTES, count, context.plain)
        if not nullable and not head.valid.all():
            raise CorruptSegmentError("a null where the schema forbids it")
    if shape == Shape.CODES:
        return _check_codes(body, head, count, context, nullable=nullable)
    if shape == Shape.TEMPLATES and is_bytes(kind):
        return _check_templates(body, at, count, context, nullable=nullable)
    if shape != shape_of(kind):
        raise CorruptSegmentError(f"a column of type {kind} is stored in shape {shape}")
    if shape == Shape.NULL:
        return head.at
    if shape == Shape.INTS:
        pack = check_pack(body, head.at, count, context.plain)
        numbers = decode_ints(body, pack, context.plain)
        _check_range(numbers, kind)
        _check_null_slots(numbers, head)
        return pack.end
    if shape == Shape.WIDE:
        return _check_wide(body, head, count, kind, context)
    if shape == Shape.BYTES:
        return _check_bytes(body, at, count, kind, context)
    return _check_nested(body, head, count, kind, context)


def _check_head(head: NodeHead, context: DecodeContext, *, whole: bool) -> None:
    shape = head.shape
    if shape > max(Shape):
        raise CorruptSegmentError(f"unknown shape {shape}")
    if shape != Shape.BYTES and (head.frame_rows or head.needs_dictionary):
        raise CorruptSegmentError(f"a node of shape {shape} has frame rows or a dictionary")
    if head.needs_dictionary and context.framed is context.plain:
        raise CorruptSegmentError("frames need a zstd dictionary that the block does not name")
    if head.valid is not None and shape in (Shape.NULL, Shape.CODES, Shape.TEMPLATES):
        raise CorruptSegmentError(f"a node of shape {shape} has validity")
    if shape == Shape.CODES and (not whole or context.values is None):
        raise CorruptSegmentError("a node of codes has no dictionary of values")
    if shape == Shape.TEMPLATES and (not whole or context.templates is None):
        raise CorruptSegmentError("a node of templates has no dictionary of them")


def _check_codes(body: memoryview, head: NodeHead, count: int, context: DecodeContext, *, nullable: bool) -> int:
    pack = check_pack(body, head.at, count, context.plain)
    codes = decode_ints(body, pack, context.plain)
    assert context.values is not None
    if count and not (int(codes.min()) >= (0 if nullable else 1) and int(codes.max()) < len(context.values)):
        raise CorruptSegmentError("a code has no value in the column's dictionary")
    return pack.end


def _check_templates(body: memoryview, at: int, count: int, context: DecodeContext, *, nullable: bool) -> int:
    """Check a node of templates. The values of variables are checked when they are decoded, which needs each rule."""
    node = TemplateNode(body, at, count, context)
    end = check_pack(body, at + _NODE_HEADER_BYTES, count, context.plain).end
    if not nullable and not node.codes.all():
        raise CorruptSegmentError("a null where the schema forbids it")
    for column in node.columns(context).values():
        if isinstance(column, BytesNode):
            end = check_node(body, end, column.count, pa.binary(), context, nullable=False, whole=False)
        else:
            end = check_pack(body, end, column.numbers, context.plain).end
    return end


def _check_range(numbers: I64, kind: pa.DataType) -> None:
    """Check that integers fit a type: fixed-width values are stored as the integers with their bits."""
    if not len(numbers):
        return
    low, high = int(numbers.min()), int(numbers.max())
    dtype = number_dtype(kind)
    limits = (0, 1) if pt.is_boolean(kind) else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if dtype.itemsize < numbers.itemsize and not limits[0] <= low <= high <= limits[1]:
        raise CorruptSegmentError(f"numbers from {low} to {high} do not fit type {kind}")


def _check_null_slots(numbers: npt.NDArray[np.integer], head: NodeHead) -> None:
    if head.valid is not None and bool(numbers[head.valid == 0].any()):
        raise CorruptSegmentError("the slot of a null does not hold 0")


def _check_wide(body: memoryview, head: NodeHead, count: int, kind: pa.DataType, context: DecodeContext) -> int:
    at = head.at
    for _ in range(kind.bit_width // 64):
        pack = check_pack(body, at, count, context.plain)
        _check_null_slots(decode_ints(body, pack, context.plain), head)
        at = pack.end
    return at


def _check_bytes(body: memoryview, at: int, count: int, kind: pa.DataType, context: DecodeContext) -> int:
    node = BytesNode(body, at, count, context)
    check_pack(body, node.head.at, count, context.plain)
    lengths = node.all_lengths(context)
    _check_null_slots(lengths, node.head)
    if pt.is_fixed_size_binary(kind):
        wrong = lengths != kind.byte_width
        if bool((wrong if node.head.valid is None else wrong & (node.head.valid != 0)).any()):
            raise CorruptSegmentError(f"a value of type {kind} has another length")
    decompressor = node.decompressor(context)
    sizes = frame_sizes(lengths, node.rows).tolist()
    for frame, size in zip(node.stored_frames(list(range(len(sizes)))), sizes, strict=True):
        decompressor.check(node.codec, frame, size)
    return int(node.end)


def _check_nested(body: memoryview, head: NodeHead, count: int, kind: pa.DataType, context: DecodeContext) -> int:
    present = count if head.valid is None else int(head.valid.sum())
    if head.shape == Shape.LIST:
        pack = check_pack(body, head.at, count, context.plain)
        lengths = check_lengths(decode_ints(body, pack, context.plain))
        _check_null_slots(lengths, head)
        element = entries_field(kind) if pt.is_map(kind) else kind.value_field
        return _check_child(body, pack.end, int(lengths.sum()), element, context)
    if head.shape == Shape.FIXED:
        return _check_child(body, head.at, present * kind.list_size, kind.value_field, context)
    at = head.at
    for place in range(kind.num_fields):
        at = _check_child(body, at, present, kind.field(place), context)
    return at


def _check_child(body: memoryview, at: int, count: int, field: pa.Field, context: DecodeContext) -> int:
    if count > MAX_ELEMENTS:
        raise CorruptSegmentError("lists have more elements than a block can hold")
    return check_node(body, at, count, field.type, context, nullable=field.nullable, whole=False)
