"""Encode columns as bytes and decode them: a tree of nodes, with one shape for each memory layout.

    null     nothing is stored, every value is null
    ints     whole numbers and other fixed-width values up to 8 bytes: packed integers
    wide     fixed-width values of 16 or 32 bytes: packed integers of their 64-bit words
    codes    values from the segment's dictionary of that column: packed integers, 0 for null
    bytes    strings and binary: packed lengths, then the bytes in frames of a fixed number of rows
    list     packed lengths, then the node of the elements
    fixed    fixed-size lists: the node of the elements
    struct   the nodes of the children, one after another
    templates  strings and binary as templates of their column: `template_node.py`
    front-coded  strings and binary outside of columns, always read as a whole: each shares a prefix with the one before

A node does not store its number of values: its parent knows it. Method and layouts follow Arrow's columnar format
(validity, lengths for offsets, children); the packing is `packing.py`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from esformat.core.bytes_nodes import end_of_values, front_coded
from esformat.errors import CorruptSegmentError
from esformat.format.arrays import (
    bitmap,
    bytes_array,
    bytes_of,
    entries_field,
    is_bytes,
    numbers_array,
    numbers_of,
    plain_lists,
    take_with_nulls,
    validity_of,
)
from esformat.format.bytes_node import BytesNode, check_lengths, frame_sizes
from esformat.format.codec import Codec, make_compressor
from esformat.format.layout import MAX_ELEMENTS, MAX_FRAME_BYTES
from esformat.format.node import (
    FRAMES,
    MAX_FRAME_ROWS,
    NEEDS_DICTIONARY,
    NODE,
    VALIDITY,
    WHOLE_BYTES,
    DecodeContext,
    EncodeContext,
    NodeHead,
    Shape,
    read_head,
    shape_of,
)
from esformat.format.packing import decode_columns, decode_ints, encode_int_slices, encode_ints, read_pack
from esformat.format.schema import MAX_NESTING
from esformat.format.template_node import TemplateNode

_RAW = make_compressor(Codec.NONE)
WORTH_TIMES = 3  # compress the rest of front-coded texts only if that shrinks it to a third
FRAME_TARGET_BYTES = 4096  # measured: docs/decisions/0005-blocks-and-frames.md


def encode_slices(array: pa.Array, bounds: list[int], context: EncodeContext) -> list[bytes]:
    """Encode array[bounds[i]:bounds[i+1]] for each i as one node each."""
    shape = shape_of(array.type)
    if shape is Shape.INTS:
        return _encode_numbers(array, bounds, context)
    if shape is Shape.BYTES:
        return _encode_bytes(array, bounds, context)
    slices = (array.slice(a, b - a) for a, b in pairwise(bounds))
    return [_encode_other(piece, shape, context) for piece in slices]


def encode_node(array: pa.Array, context: EncodeContext) -> bytes:
    """Encode a whole array as one node."""
    return encode_slices(array, [0, len(array)], context)[0]


def encode_texts(texts: pa.Array, context: EncodeContext) -> bytes:
    """Encode binary without nulls that is not a column and is read as a whole: keys, and the texts of templates."""
    whole = replace(context, frame_bytes=WHOLE_BYTES)
    offsets, data = bytes_of(texts)
    shared, ends, rest = front_coded(offsets, data.cast("B"))
    if 2 * len(rest) > len(data) or not rest:
        return encode_node(texts, whole)
    rests = pa.Array.from_buffers(
        pa.binary(), len(texts), [None, pa.py_buffer(np.asarray(ends).astype(np.int32)), pa.py_buffer(rest)]
    )
    raw = replace(whole, plain=_RAW, framed=_RAW)  # these bytes are few, and take longer to decompress than to read
    plain, small = encode_node(rests, raw), encode_node(rests, replace(raw, framed=context.framed))
    node = small if WORTH_TIMES * len(small) <= len(plain) else plain
    return NODE.pack(Shape.FRONT_CODED, 0, 0) + encode_ints(np.asarray(shared), _RAW) + node


def encode_codes(codes: npt.NDArray[np.integer[Any]], bounds: list[int], context: EncodeContext) -> list[bytes]:
    """Encode dictionary codes, 0 for null, as one node per slice."""
    head = NODE.pack(Shape.CODES, 0, 0)
    return [head + pack for pack in encode_int_slices(codes, bounds, context.plain, raw=context.raw)]


def _headers(
    shape: Shape, array: pa.Array, bounds: list[int], context: EncodeContext, flags: int = 0, rows: int = 0
) -> list[bytes]:
    """Node headers with their validity, which is stored only in slices that have a null."""
    plain = NODE.pack(shape, flags, rows)
    valid = validity_of(array)
    if valid is None:
        return [plain] * (len(bounds) - 1)
    marked = NODE.pack(shape, flags | VALIDITY, rows)
    return [plain if valid[a:b].all() else marked + encode_ints(valid[a:b], context.plain) for a, b in pairwise(bounds)]


def _encode_numbers(array: pa.Array, bounds: list[int], context: EncodeContext) -> list[bytes]:
    heads = _headers(Shape.INTS, array, bounds, context)
    packs = encode_int_slices(numbers_of(array), bounds, context.plain, raw=context.raw)
    return [head + pack for head, pack in zip(heads, packs, strict=True)]


def frame_rows(row_count: int, byte_count: int, frame_bytes: int | None = None) -> int:
    """Rows per frame of about `frame_bytes` (None: FRAME_TARGET_BYTES): a power of two up to MAX_FRAME_ROWS."""
    target = frame_bytes or FRAME_TARGET_BYTES
    mean = byte_count / row_count if row_count else 0
    fitting = int(target / mean) if mean * MAX_FRAME_ROWS > target else MAX_FRAME_ROWS
    return 1 << max(0, fitting.bit_length() - 1)


def _encode_bytes(array: pa.Array, bounds: list[int], context: EncodeContext) -> list[bytes]:
    offsets, data = bytes_of(array)
    rows = frame_rows(len(array), len(data), context.frame_bytes)
    flags = NEEDS_DICTIONARY if context.has_dictionary else 0
    heads = _headers(Shape.BYTES, array, bounds, context, flags, rows)
    lengths = encode_int_slices(np.diff(offsets), bounds, context.plain)
    cuts = [edge for a, b in pairwise(bounds) for edge in range(a, b, rows)] + [bounds[-1]]
    edges = offsets[cuts]
    if len(edges) > 1 and int(np.diff(edges).max()) > MAX_FRAME_BYTES:
        raise AssertionError("a frame is too large: blocks are cut wrongly")
    frames = context.framed.compress_many(data, edges)
    sizes = np.fromiter(map(len, frames), dtype=np.int64, count=len(edges) - 1)
    codec = int(context.framed.codec)
    nodes = []
    at = 0
    for head, pack, a, b in zip(heads, lengths, bounds[:-1], bounds[1:], strict=True):
        to = at + -(-(b - a) // rows)
        wide = to > at and int(sizes[at:to].max()) > 0xFFFF
        table = sizes[at:to].astype("<u4" if wide else "<u2").tobytes()
        nodes.append(
            b"".join([head, pack, FRAMES.pack(codec, 4 if wide else 2), table, *[frames[i] for i in range(at, to)]])
        )
        at = to
    return nodes


def _encode_other(array: pa.Array, shape: Shape, context: EncodeContext) -> bytes:
    head = _headers(shape, array, [0, len(array)], context)[0]
    plain = EncodeContext(context.plain, context.plain)
    if shape is Shape.NULL:
        return NODE.pack(shape, 0, 0)
    if shape is Shape.WIDE:
        width = array.type.bit_width // 64
        words = np.frombuffer(array.buffers()[1], np.int64, len(array) * width, array.offset * width * 8)
        words = words.reshape(len(array), width)
        valid = validity_of(array)
        if valid is not None:
            words = words * valid[:, np.newaxis]
        return head + b"".join(encode_ints(words[:, k], context.plain) for k in range(width))
    if shape is Shape.LIST:
        lists = plain_lists(array)
        lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
        return head + encode_ints(lengths, context.plain) + encode_node(lists.flatten(), plain)
    if shape is Shape.FIXED:
        return head + encode_node(array.flatten(), plain)
    present = array.drop_null() if array.null_count else array
    return head + b"".join(encode_node(present.field(i), plain) for i in range(array.type.num_fields))


def decode_node(
    body: memoryview, at: int, count: int, kind: pa.DataType, context: DecodeContext, depth: int = 0
) -> tuple[pa.Array, int]:
    """Decode a node of `count` values of `kind` at byte `at`; also return the byte after it.

    Raises CorruptSegmentError.
    """
    if depth > MAX_NESTING:
        raise CorruptSegmentError("column nodes nest too deep")
    head = read_head(body, at, count, context.plain)
    if head.shape == Shape.CODES and depth == 0 and context.values is not None:
        pack = read_pack(body, head.at, count)
        return context.values.take(decode_ints(body, pack, context.plain)), pack.end
    if head.shape == Shape.TEMPLATES and depth == 0 and is_bytes(kind):
        node = TemplateNode(body, at, count, context)
        return node.array(kind, context), node.end
    if head.shape != shape_of(kind):
        raise CorruptSegmentError(f"a column of type {kind} is stored in shape {head.shape}")
    if head.shape == Shape.NULL:
        return pa.nulls(count, kind), head.at
    if head.shape == Shape.INTS:
        pack = read_pack(body, head.at, count)
        return numbers_array(decode_ints(body, pack, context.plain), kind, head.valid), pack.end
    if head.shape == Shape.BYTES:
        return _decode_bytes(body, at, count, kind, context)
    if head.shape == Shape.WIDE:
        words, end = decode_columns(body, head.at, count, kind.bit_width // 64, context.plain)
        stored = pa.py_buffer(np.ascontiguousarray(words.T))
        return pa.Array.from_buffers(kind, count, [bitmap(head.valid), stored]), end
    return _decode_nested(body, head, count, kind, context, depth)


def end_of_node(body: memoryview, at: int, count: int, kind: pa.DataType, context: DecodeContext) -> int:
    """The byte after a node. Decodes values only if nested or wider than 8 bytes. Raises CorruptSegmentError."""
    end = end_of_values(body, at, count)
    if end >= 0:
        return end
    head = read_head(body, at, count, context.plain)
    if head.shape == Shape.BYTES:
        return int(BytesNode(body, at, count, context).end)
    if head.shape == Shape.INTS:
        return read_pack(body, head.at, count).end
    if head.shape == Shape.STRUCT and pt.is_struct(kind) and not count:
        end = head.at
        for i in range(kind.num_fields):
            end = end_of_node(body, end, 0, kind.field(i).type, context)
        return end
    return decode_node(body, at, count, kind, context)[1]


def _decode_bytes(
    body: memoryview, at: int, count: int, kind: pa.DataType, context: DecodeContext
) -> tuple[pa.Array, int]:
    node = BytesNode(body, at, count, context)
    lengths = node.all_lengths(context)
    sizes = frame_sizes(lengths, node.rows)
    out = pa.allocate_buffer(int(sizes.sum()))
    stored = body[node.at : node.end]
    node.decompressor(context).decompress_run(node.codec, stored, node.table, sizes.tolist(), memoryview(out))
    return bytes_array(lengths, out, kind, node.head.valid), node.end


def _decode_nested(
    body: memoryview, head: NodeHead, count: int, kind: pa.DataType, context: DecodeContext, depth: int
) -> tuple[pa.Array, int]:
    present = count if head.valid is None else int(head.valid.sum())
    if head.shape == Shape.LIST:
        pack = read_pack(body, head.at, count)
        element = entries_field(kind) if pt.is_map(kind) else kind.value_field
        if not present and not pack.width and not pack.base:  # such as a field that no record of the block has
            return pa.nulls(count, kind), end_of_node(body, pack.end, 0, element.type, context)
        lengths = decode_ints(body, pack, context.plain)
        total = _checked_sum(lengths)
        child, end = decode_node(body, pack.end, total, element.type, context, depth + 1)
        dtype = np.int64 if pt.is_large_list(kind) else np.int32
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)
        return pa.Array.from_buffers(kind, count, [bitmap(head.valid), pa.py_buffer(offsets)], children=[child]), end
    if head.shape == Shape.FIXED:
        total = _checked_sum(np.array([present * kind.list_size]))
        child, end = decode_node(body, head.at, total, kind.value_type, context, depth + 1)
        dense = pa.Array.from_buffers(kind, present, [None], children=[child])
    else:
        children = []
        end = head.at
        for i in range(kind.num_fields):
            child, end = decode_node(body, end, present, kind.field(i).type, context, depth + 1)
            children.append(child)
        dense = pa.Array.from_buffers(kind, present, [None], children=children)
    return (dense if head.valid is None else take_with_nulls(dense, head.valid)), end


def _checked_sum(lengths: npt.NDArray[np.int64]) -> int:
    """The total number of elements of lists. Raises CorruptSegmentError if it is more than a block can hold."""
    total = int(check_lengths(lengths).sum())
    if total > MAX_ELEMENTS:
        raise CorruptSegmentError("lists have more elements than a block can hold")
    return total
