"""Columns to bytes and back: a tree of nodes, one shape for each way that values lie in memory.

    null     nothing is stored, every value is null
    ints     whole numbers and other fixed-width values up to 8 bytes: packed integers
    wide     fixed-width values of 16 or 32 bytes: byte planes
    codes    values from the segment's dictionary of that column: packed integers, 0 for null
    bytes    strings and binary: packed lengths, then the bytes in frames of a fixed number of rows
    list     packed lengths, then the node of the elements
    fixed    fixed-size lists: the node of the elements
    struct   the nodes of the children, one after another

A node never says how many values it has: its parent knows. Method and layouts follow Arrow's columnar format
(validity, lengths for offsets, children); the packing is `packing.py`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from esformat.cache import Cache
from esformat.codec import Compressor, Decompressor
from esformat.errors import CorruptSegmentError
from esformat.layout import MAX_FRAME_BYTES
from esformat.packing import (
    MAX_WIDTH,
    decode_ints,
    encode_fixed,
    encode_int_runs,
    encode_ints,
    plane_bytes,
    planes,
    read_pack,
)
from esformat.schema import MAX_NESTING


class Shape(enum.IntEnum):
    """How the values of a node are stored. The numbers are part of the format."""

    NULL = 0
    INTS = 1
    WIDE = 2
    CODES = 3
    BYTES = 4
    LIST = 5
    FIXED = 6
    STRUCT = 7


_NODE = struct.Struct(
    "<"
    "B"  # shape
    "B"  # flags: 1 validity stored, 2 frames need the dictionary
    "H"  # rows per frame (bytes), else zero
)
_FRAMES = struct.Struct(
    "<"
    "B"  # codec of the frames
    "B"  # bytes of each entry of the frame table: 2 or 4
)
VALIDITY, NEEDS_DICTIONARY = 1, 2
FRAME_TARGET_BYTES = 4096  # measured: docs/decisions/0005-blocks-and-frames.md
MAX_FRAME_ROWS = 1024
MANY_VALUES = 64


@dataclass(frozen=True, slots=True)
class EncodeContext:
    """What encoding one column takes: compressors, and the choices that were measured on its first block."""

    plain: Compressor
    framed: Compressor
    has_dictionary: bool = False
    raw: int = 0


def shape_of(kind: pa.DataType) -> Shape:
    """The shape in which values of a logical type are stored when no dictionary is used."""
    if pt.is_null(kind):
        return Shape.NULL
    if pt.is_struct(kind):
        return Shape.STRUCT
    if pt.is_fixed_size_list(kind):
        return Shape.FIXED
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_map(kind):
        return Shape.LIST
    if is_bytes(kind):
        return Shape.BYTES
    return Shape.INTS if kind.bit_width <= 64 else Shape.WIDE


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of this type have lengths and bytes."""
    return bool(
        pt.is_string(kind)
        or pt.is_binary(kind)
        or pt.is_large_string(kind)
        or pt.is_large_binary(kind)
        or (pt.is_fixed_size_binary(kind) and not pt.is_decimal(kind))
    )


def number_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """The integer dtype whose bits are those of a fixed-width value of at most 8 bytes."""
    if pt.is_boolean(kind):
        return np.dtype(np.uint8)
    signed = pt.is_signed_integer(kind) or pt.is_temporal(kind)
    return np.dtype(f"<{'i' if signed else 'u'}{kind.bit_width // 8}")


# ---------------------------------------------------------------- Arrow arrays to plain memory


def validity_of(array: pa.Array) -> npt.NDArray[np.uint8] | None:
    """One byte per value, 1 where it is valid; None where all are."""
    if not array.null_count:
        return None
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False)).astype(np.uint8)


def numbers_of(array: pa.Array) -> npt.NDArray[np.integer[Any]]:
    """The bits of fixed-width values up to 8 bytes as integers; null slots are 0."""
    if pt.is_boolean(array.type):
        return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False)).astype(np.uint8)
    dtype = number_dtype(array.type)
    numbers: npt.NDArray[np.integer[Any]]
    numbers = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
    valid = validity_of(array)
    return numbers if valid is None else np.where(valid.view(np.bool_), numbers, numbers.dtype.type(0))


def bytes_of(array: pa.Array) -> tuple[npt.NDArray[np.int64], memoryview]:
    """Offsets (count + 1, starting at 0) and the bytes of strings or binary; null slots are empty."""
    kind = array.type
    if pt.is_fixed_size_binary(kind):
        array = array.cast(pa.binary())
    if array.null_count:
        array = array.fill_null("" if pt.is_string(kind) or pt.is_large_string(kind) else b"")
    width = np.int64 if pt.is_large_string(array.type) or pt.is_large_binary(array.type) else np.int32
    _validity, offset_buffer, data = array.buffers()
    if not len(array) or data is None:
        return np.zeros(len(array) + 1, dtype=np.int64), memoryview(b"")
    offsets = np.frombuffer(offset_buffer, width, len(array) + 1, array.offset * width().itemsize).astype(np.int64)
    view = memoryview(data)[int(offsets[0]) : int(offsets[-1])]
    return offsets - offsets[0], view


def plain_lists(array: pa.Array) -> pa.Array:
    """A map as the list of key-value structs that it is; other arrays as they are."""
    if not pt.is_map(array.type):
        return array
    return array.cast(pa.list_(entries_field(array.type)))


def entries_field(kind: pa.DataType) -> pa.Field:
    """The element field of the list that a map type stands for."""
    return pa.field("entries", pa.struct([kind.key_field, kind.item_field]), nullable=False)


def _take_with_nulls(values: pa.Array, valid: npt.NDArray[np.uint8]) -> pa.Array:
    """Spread `values` over the valid slots; the others become null."""
    places = np.cumsum(valid, dtype=np.int64) - 1
    return values.take(pa.array(places, mask=valid == 0))


# ---------------------------------------------------------------- encode


def encode_runs(array: pa.Array, bounds: list[int], context: EncodeContext) -> list[bytes]:
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
    return encode_runs(array, [0, len(array)], context)[0]


def encode_codes(codes: npt.NDArray[np.integer[Any]], bounds: list[int], context: EncodeContext) -> list[bytes]:
    """Encode dictionary codes, 0 for null, as one node per run."""
    head = _NODE.pack(Shape.CODES, 0, 0)
    return [head + pack for pack in encode_int_runs(codes, bounds, context.plain, raw=context.raw)]


def _headers(
    shape: Shape, array: pa.Array, bounds: list[int], context: EncodeContext, flags: int = 0, rows: int = 0
) -> list[bytes]:
    """Node headers with their validity: stored only in runs that have a null."""
    plain = _NODE.pack(shape, flags, rows)
    valid = validity_of(array)
    if valid is None:
        return [plain] * (len(bounds) - 1)
    marked = _NODE.pack(shape, flags | VALIDITY, rows)
    return [plain if valid[a:b].all() else marked + encode_ints(valid[a:b], context.plain) for a, b in pairwise(bounds)]


def _encode_numbers(array: pa.Array, bounds: list[int], context: EncodeContext) -> list[bytes]:
    heads = _headers(Shape.INTS, array, bounds, context)
    packs = encode_int_runs(numbers_of(array), bounds, context.plain, raw=context.raw)
    return [head + pack for head, pack in zip(heads, packs, strict=True)]


def frame_rows(row_count: int, byte_count: int) -> int:
    """Rows in each frame so that a frame holds about `FRAME_TARGET_BYTES`: a power of two up to MAX_FRAME_ROWS."""
    mean = byte_count / row_count if row_count else 0
    fitting = int(FRAME_TARGET_BYTES / mean) if mean * MAX_FRAME_ROWS > FRAME_TARGET_BYTES else MAX_FRAME_ROWS
    return 1 << max(0, fitting.bit_length() - 1)


def _encode_bytes(array: pa.Array, bounds: list[int], context: EncodeContext) -> list[bytes]:
    offsets, data = bytes_of(array)
    rows = frame_rows(len(array), len(data))
    flags = NEEDS_DICTIONARY if context.has_dictionary else 0
    heads = _headers(Shape.BYTES, array, bounds, context, flags, rows)
    lengths = encode_int_runs(np.diff(offsets), bounds, context.plain)
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
            b"".join([head, pack, _FRAMES.pack(codec, 4 if wide else 2), table, *[frames[i] for i in range(at, to)]])
        )
        at = to
    return nodes


def _encode_other(array: pa.Array, shape: Shape, context: EncodeContext) -> bytes:
    head = _headers(shape, array, [0, len(array)], context)[0]
    plain = EncodeContext(context.plain, context.plain)
    if shape is Shape.NULL:
        return _NODE.pack(shape, 0, 0)
    if shape is Shape.WIDE:
        itemsize = array.type.bit_width // 8
        stored = np.frombuffer(array.buffers()[1], np.uint8, len(array) * itemsize, array.offset * itemsize)
        matrix = stored.reshape(len(array), itemsize)
        valid = validity_of(array)
        if valid is not None:
            matrix = matrix * valid[:, np.newaxis]
        return head + encode_fixed(matrix, context.plain)
    if shape is Shape.LIST:
        lists = plain_lists(array)
        lengths = np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
        return head + encode_ints(lengths, context.plain) + encode_node(lists.flatten(), plain)
    if shape is Shape.FIXED:
        return head + encode_node(array.flatten(), plain)
    present = array.drop_null() if array.null_count else array
    return head + b"".join(encode_node(present.field(i), plain) for i in range(array.type.num_fields))


# ---------------------------------------------------------------- decode


@dataclass(slots=True)
class DecodeContext:
    """What decoding takes: decompressors without and with the block's dictionary, and a column's values."""

    plain: Decompressor
    framed: Decompressor
    values: pa.Array | None = None


class NodeHead(NamedTuple):
    """The first bytes of a node: its shape, its validity (None: all valid) and where its values begin."""

    shape: int
    needs_dictionary: bool
    frame_rows: int
    valid: npt.NDArray[np.uint8] | None
    at: int


def read_head(body: memoryview, at: int, count: int, plain: Decompressor) -> NodeHead:
    """Read a node's header and validity. Raises CorruptSegmentError."""
    try:
        shape, flags, rows = _NODE.unpack_from(body, at)
    except struct.error:
        raise CorruptSegmentError("a column node is cut short") from None
    if not flags:
        return NodeHead(shape, False, rows, None, at + 4)
    if flags & ~(VALIDITY | NEEDS_DICTIONARY):
        raise CorruptSegmentError(f"a column node has unknown flags {flags:#x}")
    at += _NODE.size
    valid = None
    if flags & VALIDITY:
        valid, at = _read_validity(body, at, count, plain)
    return NodeHead(shape, bool(flags & NEEDS_DICTIONARY), rows, valid, at)


def _read_validity(body: memoryview, at: int, count: int, plain: Decompressor) -> tuple[npt.NDArray[np.uint8], int]:
    pack = read_pack(body, at, count)
    valid = decode_ints(body, pack, plain).astype(np.uint8)
    if pack.width > 1 or (count and int(valid.max()) > 1):
        raise CorruptSegmentError("validity holds other values than 0 and 1")
    return valid, pack.end


class BytesNode:
    """A node of lengths and bytes, opened: which frames hold which rows. Nothing of its bytes is decoded yet.

    It holds no decompressor, so threads may share it; its methods take the caller's context.
    """

    __slots__ = (
        "at",
        "body",
        "codec",
        "count",
        "edges",
        "end",
        "head",
        "key",
        "length_bytes",
        "lengths",
        "rows",
        "short",
        "table",
    )

    def __init__(self, body: memoryview, at: int, count: int, context: DecodeContext, key: Hashable = None) -> None:
        """`key`: what tells the node from others in a cache. Raises CorruptSegmentError for a broken frame table."""
        self.key = key
        head = read_head(body, at, count, context.plain)
        rows = head.frame_rows
        if head.shape != 4 or not 0 < rows <= MAX_FRAME_ROWS:
            raise CorruptSegmentError(f"a column node has shape {head.shape}, expected {Shape.BYTES:d}")
        self.body, self.head, self.count, self.rows = body, head, count, rows
        self.lengths = lengths = read_pack(body, head.at, count)
        self.edges: npt.NDArray[np.int64] | None = None
        self.length_bytes: bytes | None = None
        self.short = lengths.width == 1 and not lengths.base  # lengths below 256, one byte each
        frames = -(-count // rows)
        try:
            self.codec, width = _FRAMES.unpack_from(body, lengths.end)
            self.table = struct.unpack_from(f"<{frames}{'H' if width == 2 else 'I'}", body, lengths.end + 2)
        except struct.error:
            raise CorruptSegmentError("a frame table is cut short") from None
        if width not in (2, 4):
            raise CorruptSegmentError(f"a frame table has entries of {width} bytes")
        self.at = lengths.end + 2 + width * frames
        self.end = self.at + sum(self.table)
        if self.end > len(body):
            raise CorruptSegmentError("frames reach beyond their block")

    def decompressor(self, context: DecodeContext) -> Decompressor:
        """What the node's frames are decompressed with."""
        return context.framed if self.head.needs_dictionary else context.plain

    def all_lengths(self, context: DecodeContext) -> npt.NDArray[np.int64]:
        """The length of every value. Raises CorruptSegmentError if one is out of bounds."""
        return check_lengths(decode_ints(self.body, self.lengths, context.plain))

    def stored_frames(self, frames: list[int]) -> list[memoryview]:
        """The stored bytes of some frames, ascending."""
        edges = list(accumulate(self.table, initial=self.at))
        return [self.body[edges[frame] : edges[frame + 1]] for frame in frames]

    def all_values(self, context: DecodeContext) -> tuple[npt.NDArray[Any], bytes]:
        """The lengths of all values and their bytes side by side; null slots are empty."""
        lengths = self.all_lengths(context)
        sizes = frame_sizes(lengths, self.rows)
        out = np.empty(int(sizes.sum()), np.uint8)  # not zeroed: what lengths only claim costs no memory
        stored = self.body[self.at : self.end]
        self.decompressor(context).decompress_run(self.codec, stored, self.table, sizes.tolist(), out.data)
        return lengths, out.tobytes()

    def values(self, low: int, high: int, context: DecodeContext, frames: Cache) -> list[bytes | None]:
        """Values [low, high) as Python bytes. Decompresses only the frames that hold them and are not in `frames`."""
        first, last = low // self.rows, -(-high // self.rows)
        values: list[bytes | None]
        if last - first == 1 and self.short:
            start = first * self.rows
            near, stored = self._frame(first, context, frames)
            values = [stored[a:b] for a, b in pairwise(near[low - start : high - start + 1])]
        else:
            edges = self._edges(context)
            stored = self._span(first, last, edges, context, frames)
            values = [*slices(stored, (edges[low : high + 1] - edges[first * self.rows]).tolist())]
        return values if self.head.valid is None else self._with_nulls(values, range(low, high))

    def chosen_values(self, places: list[int], context: DecodeContext, frames: Cache) -> list[bytes | None]:
        """The values at ascending places as Python bytes, decompressing only the frames that hold them."""
        rows = self.rows
        values: list[bytes | None]
        first = places[0] // rows
        if self.short and places[-1] // rows == first:
            near, stored = self._frame(first, context, frames)
            values = [stored[near[at] : near[at + 1]] for at in (place - first * rows for place in places)]
            return values if self.head.valid is None else self._with_nulls(values, places)
        edges = self._edges(context)
        wanted = np.array(places)
        touched = np.unique(wanted // rows)
        last = int(touched[-1]) + 1
        begins, ends = edges[wanted], edges[wanted + 1]
        if 2 * len(touched) > last - first:  # dense: one span of frames
            stored = self._span(first, last, edges, context, frames)
            origin = edges[first * rows]
            cuts = zip((begins - origin).tolist(), (ends - origin).tolist(), strict=True)
            values = [stored[a:b] for a, b in cuts]
        else:
            held = {frame: self._span(frame, frame + 1, edges, context, frames) for frame in touched.tolist()}
            origins = edges[wanted // rows * rows]
            cuts = zip((begins - origins).tolist(), (ends - origins).tolist(), strict=True)
            values = [held[place // rows][a:b] for place, (a, b) in zip(places, cuts, strict=True)]
        return values if self.head.valid is None else self._with_nulls(values, places)

    def _frame(self, number: int, context: DecodeContext, frames: Cache) -> tuple[list[int], bytes]:
        """One frame of short values: the edges of the values in it, and its uncompressed bytes.

        Python's integers are quicker here than arrays: this is what most histories come to.
        """
        if self.length_bytes is None:
            self.length_bytes = plane_bytes(self.body, self.lengths, context.plain)
        start = number * self.rows
        edges = list(accumulate(self.length_bytes[start : start + self.rows], initial=0))
        key = (self.key, number)
        stored: bytes | None = frames.find(key)
        if stored is None:
            at = self.at + sum(self.table[:number])
            frame = self.body[at : at + self.table[number]]
            stored = self.decompressor(context).decompress(self.codec, frame, edges[-1])
            frames.keep(key, stored, len(stored))
        return edges, stored

    def _edges(self, context: DecodeContext) -> npt.NDArray[np.int64]:
        """Where each value begins within the bytes of all, and where the last ends; kept for the next question."""
        if self.edges is None:
            edges = np.zeros(self.count + 1, dtype=np.int64)
            np.cumsum(self.all_lengths(context), out=edges[1:])
            if int(edges[-1]) > MAX_FRAME_BYTES:
                raise CorruptSegmentError("the lengths of a block's values are out of bounds")
            self.edges = edges
        return self.edges

    def _span(
        self, first: int, last: int, edges: npt.NDArray[np.int64], context: DecodeContext, frames: Cache
    ) -> bytes:
        """The uncompressed bytes of frames [first, last); several that are missing are decompressed with one call."""
        key, rows, table = self.key, self.rows, self.table
        known: list[bytes] = [found for n in range(first, last) if (found := frames.find((key, n))) is not None]
        if len(known) == last - first:
            return known[0] if last - first == 1 else b"".join(known)
        at = self.at + sum(table[:first])
        bounds = [int(edges[min(number * rows, self.count)]) for number in range(first, last + 1)]
        sizes = [b - a for a, b in pairwise(bounds)]
        decompressor = self.decompressor(context)
        if last - first == 1:
            made = decompressor.decompress(self.codec, self.body[at : at + table[first]], sizes[0])
            frames.keep((key, first), made, len(made))
            return made
        lengths = table[first:last]
        out = bytearray(bounds[-1] - bounds[0])
        decompressor.decompress_run(self.codec, self.body[at : at + sum(lengths)], lengths, sizes, memoryview(out))
        made = bytes(out)
        for number, (a, b) in enumerate(pairwise(bounds), first):
            frames.keep((key, number), made[a - bounds[0] : b - bounds[0]], b - a)
        return made

    def _with_nulls(self, values: list[bytes | None], places: Sequence[int]) -> list[bytes | None]:
        valid = self.head.valid
        assert valid is not None
        return [value if valid[place] else None for value, place in zip(values, places, strict=True)]


def check_lengths(lengths: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`lengths`, unless one of them is negative or absurd: then CorruptSegmentError."""
    if len(lengths) and lengths.dtype != np.uint8 and (int(lengths.min()) < 0 or int(lengths.max()) > MAX_FRAME_BYTES):
        raise CorruptSegmentError("a stored length is out of bounds")
    return lengths


def frame_sizes(lengths: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.int64]:
    """Uncompressed bytes of every frame, from the lengths of all values."""
    if not len(lengths):
        return np.zeros(0, dtype=np.int64)
    sizes: npt.NDArray[np.int64] = np.add.reduceat(lengths, np.arange(0, len(lengths), rows))
    if int(sizes.sum()) > MAX_FRAME_BYTES:
        raise CorruptSegmentError("the lengths of a block's values are out of bounds")
    return sizes


def slices(stored: bytes, edges: list[int]) -> list[bytes]:
    """The bytes between consecutive edges. Arrow cuts many of them twice as fast as Python does."""
    if len(edges) <= MANY_VALUES:
        return [stored[a:b] for a, b in pairwise(edges)]
    offsets = pa.py_buffer(np.array(edges, dtype=np.int32))
    array = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, offsets, pa.py_buffer(stored)])
    return array.to_pylist()  # type: ignore[no-any-return]


def decode_node(
    body: memoryview, at: int, count: int, kind: pa.DataType, context: DecodeContext, depth: int = 0
) -> tuple[pa.Array, int]:
    """Decode a node of `count` values of `kind` at byte `at`; also the byte after it. Raises CorruptSegmentError."""
    if depth > MAX_NESTING:
        raise CorruptSegmentError("column nodes nest too deep")
    head = read_head(body, at, count, context.plain)
    if head.shape == Shape.CODES and depth == 0 and context.values is not None:
        pack = read_pack(body, head.at, count)
        return decode_codes(decode_ints(body, pack, context.plain), context.values), pack.end
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
        pack = read_pack(body, head.at, count, MAX_WIDTH)
        if pack.width != kind.bit_width // 8 and count:
            raise CorruptSegmentError(f"values of type {kind} are stored in {pack.width} bytes each")
        stored = planes(body, pack, context.plain).T.tobytes() if count else b""
        return pa.Array.from_buffers(kind, count, [_bitmap(head.valid), pa.py_buffer(stored)]), pack.end
    return _decode_nested(body, head, count, kind, context, depth)


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
        lengths = decode_ints(body, pack, context.plain)
        total = _checked_sum(lengths)
        element = entries_field(kind) if pt.is_map(kind) else kind.value_field
        child, end = decode_node(body, pack.end, total, element.type, context, depth + 1)
        dtype = np.int64 if pt.is_large_list(kind) else np.int32
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)
        return pa.Array.from_buffers(kind, count, [_bitmap(head.valid), pa.py_buffer(offsets)], children=[child]), end
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
    return (dense if head.valid is None else _take_with_nulls(dense, head.valid)), end


def _checked_sum(lengths: npt.NDArray[np.int64]) -> int:
    """The number of elements of lists; refused where no block can hold them."""
    total = int(check_lengths(lengths).sum())
    if total > MAX_FRAME_BYTES:
        raise CorruptSegmentError("lists have more elements than a block can hold")
    return total


def _bitmap(valid: npt.NDArray[np.uint8] | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def numbers_array(
    numbers: npt.NDArray[np.int64], kind: pa.DataType, valid: npt.NDArray[np.uint8] | None = None
) -> pa.Array:
    """Fixed-width values of at most 8 bytes from their bits."""
    data: npt.NDArray[Any]
    if pt.is_boolean(kind):
        data = np.packbits(numbers != 0, bitorder="little")
    else:
        data = numbers.view(np.uint64).astype(number_dtype(kind)) if kind.bit_width < 64 else numbers
    return pa.Array.from_buffers(kind, len(numbers), [_bitmap(valid), pa.py_buffer(np.ascontiguousarray(data))])


def bytes_array(
    lengths: npt.NDArray[Any], data: pa.Buffer, kind: pa.DataType, valid: npt.NDArray[np.uint8] | None = None
) -> pa.Array:
    """Strings or binary from lengths and bytes. Raises CorruptSegmentError for text that is not UTF-8."""
    large = pt.is_large_string(kind) or pt.is_large_binary(kind)
    if not large and len(data) > MAX_FRAME_BYTES:
        raise CorruptSegmentError("more bytes than one Arrow array can hold")
    offsets = np.zeros(len(lengths) + 1, dtype=np.dtype(np.int64 if large else np.int32))
    np.cumsum(lengths, out=offsets[1:])
    buffers = [_bitmap(valid), pa.py_buffer(offsets), data]
    if pt.is_fixed_size_binary(kind):
        if not bool(
            (lengths == (kind.byte_width if valid is None else kind.byte_width * valid.astype(np.int64))).all()
        ):
            raise CorruptSegmentError(f"a value of type {kind} has another length")
        return pa.Array.from_buffers(pa.binary(), len(lengths), buffers).cast(kind)
    array = pa.Array.from_buffers(kind, len(lengths), buffers)
    if pt.is_string(kind) or pt.is_large_string(kind):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptSegmentError(f"stored text is broken: {error}") from None
    return array


def decode_codes(codes: npt.NDArray[np.integer[Any]], values: pa.Array) -> pa.Array:
    """Values by code; `values[0]` is the null. Raises CorruptSegmentError for a code without a value."""
    try:
        return values.take(pa.array(codes))
    except pa.ArrowIndexError:
        raise CorruptSegmentError("a code has no value in the column's dictionary") from None
