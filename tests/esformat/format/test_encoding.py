"""Columns are encoded and decoded: every type, every shape, and bytes that no writer makes."""

# ruff: noqa: E501 - tables read better in one line per case

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import NESTED_TYPES, PLAIN_TYPES, array_of, types
from damage import assert_refused_or_read
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor, load_dictionary, make_compressor, train_dictionary
from esformat.format.encoding import (
    FRAME_TARGET_BYTES,
    decode_node,
    encode_codes,
    encode_node,
    encode_slices,
    frame_rows,
)
from esformat.format.node import DecodeContext, EncodeContext, Shape, shape_of

PLAIN = Decompressor()
READ = DecodeContext(PLAIN, PLAIN)


def writes(codec: Codec = Codec.ZSTD) -> EncodeContext:
    """An encoding context without dictionaries."""
    compressor = make_compressor(codec)
    return EncodeContext(compressor, compressor)


def back(stored: bytes, count: int, kind: pa.DataType) -> pa.Array:
    """The array in a whole node."""
    array, end = decode_node(memoryview(stored), 0, count, kind, READ)
    assert end == len(stored)
    array.validate(full=True)
    return array


@pytest.mark.parametrize("kind", PLAIN_TYPES + NESTED_TYPES, ids=str)
@examples(15)
@given(st.data())
def test_every_type_comes_back(kind, data):
    """Every type is decoded to equal values, nulls and type."""
    array = data.draw(array_of(kind))
    codec = data.draw(st.sampled_from(Codec))
    with cut_small(Pieces(frame_bytes=data.draw(st.sampled_from([1, 20, 8192])))):
        decoded = back(encode_node(array, writes(codec)), len(array), kind)
    assert decoded.type == kind
    assert decoded.equals(array)


@examples(150)
@given(st.data())
def test_any_nesting_comes_back(data):
    """Nested types are decoded, also if an array is encoded as several runs."""
    kind = data.draw(types())
    array = data.draw(array_of(kind))
    cut = data.draw(st.integers(0, len(array)))
    first, second = encode_slices(array, [0, cut, len(array)], writes())
    assert back(first, cut, kind).equals(array.slice(0, cut))
    assert back(second, len(array) - cut, kind).equals(array.slice(cut))


def test_floats_keep_their_bits():
    """NaN payloads, both zeroes and subnormal numbers are preserved."""
    bits = [0x7FF8_0000_0000_0001, 0xFFF0_0000_0000_0123, 0x8000_0000_0000_0000, 1, 0]
    array = pa.array(np.array(bits, np.uint64).view(np.float64))
    decoded = back(encode_node(array, writes()), len(bits), pa.float64())
    assert decoded.view(pa.uint64()).to_pylist() == bits
    assert math.copysign(1, decoded[2].as_py()) == -1


SHAPES = [
    (pa.null(), Shape.NULL), (pa.bool_(), Shape.INTS), (pa.uint64(), Shape.INTS), (pa.decimal128(9), Shape.WIDE),
    (pa.month_day_nano_interval(), Shape.WIDE), (pa.string(), Shape.BYTES), (pa.binary(3), Shape.BYTES),
    (pa.list_(pa.int8()), Shape.LIST), (pa.map_(pa.int8(), pa.int8()), Shape.LIST), (pa.large_list(pa.int8()), Shape.LIST),
    (pa.list_(pa.int8(), 2), Shape.FIXED), (pa.struct([]), Shape.STRUCT),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "shape"), SHAPES, ids=str)
def test_the_first_byte_of_a_node_is_its_shape(kind, shape):
    """The first byte of a node is its shape, which follows from the type alone."""
    assert shape_of(kind) is shape
    assert encode_node(pa.array([], kind), writes())[0] == shape


def test_validity_is_stored_only_where_there_is_a_null():
    """A run without nulls stores no validity, even if its column has nulls."""
    array = pa.array([1, 2, None, 4])
    with_null, without = encode_slices(array, [0, 3, 4], writes(Codec.NONE))
    assert (with_null[1], without[1]) == (1, 0)
    assert without == encode_node(pa.array([4]), writes(Codec.NONE))


def test_what_lies_beneath_a_null_is_not_stored():
    """Two arrays that differ only beneath their nulls are encoded to the same bytes."""
    validity = pa.py_buffer(b"\x05")
    garbled = pa.Array.from_buffers(pa.int64(), 3, [validity, pa.py_buffer(struct.pack("<3q", 1, 99, 3))])
    assert encode_node(garbled, writes()) == encode_node(pa.array([1, None, 3]), writes())
    wide = pa.Array.from_buffers(pa.decimal128(5), 3, [validity, pa.py_buffer(struct.pack("<6q", 1, 0, 99, 7, 3, 0))])
    assert encode_node(wide, writes()) == encode_node(pa.array([1, None, 3], pa.decimal128(5)), writes())


def test_codes_come_back_as_values():
    """Code 0 is null, code k the k-th value; a code beyond the values is refused."""
    values = pa.array([None, "page", "signup"])
    stored = encode_codes(np.array([1, 0, 2, 2]), [0, 4], writes())[0]
    array, end = decode_node(memoryview(stored), 0, 4, pa.string(), DecodeContext(PLAIN, PLAIN, values))
    assert (array.to_pylist(), end) == (["page", None, "signup", "signup"], len(stored))
    with pytest.raises(CorruptSegmentError, match="a code has no value"):
        decode_node(memoryview(stored), 0, 4, pa.string(), DecodeContext(PLAIN, PLAIN, values.slice(0, 2)))
    with pytest.raises(CorruptSegmentError, match="shape"):
        decode_node(memoryview(stored), 0, 4, pa.string(), READ)


def test_frames_with_a_dictionary():
    """Frames compressed with the block's dictionary are decompressed only with it."""
    texts = [b'{"url": "/products/%d", "agent": "Mozilla/5.0 (X11; Linux)"}' % n for n in range(4000)]
    trained = train_dictionary(texts, 4096)
    assert trained is not None
    framed = make_compressor(Codec.ZSTD, None, trained)
    context = EncodeContext(make_compressor(Codec.ZSTD), framed, has_dictionary=True)
    stored = encode_node(pa.array(texts[:50]), context)
    assert stored[1] & 2
    assert len(stored) < len(encode_node(pa.array(texts[:50]), writes()))
    reading = DecodeContext(PLAIN, Decompressor(load_dictionary(trained.as_bytes())))
    assert decode_node(memoryview(stored), 0, 50, pa.binary(), reading)[0].to_pylist() == texts[:50]
    with pytest.raises(CorruptSegmentError):
        decode_node(memoryview(stored), 0, 50, pa.binary(), READ)


@pytest.mark.parametrize("mean_bytes", [0, 1, 7, 8, 100, 5000, 8192, 8193, 10**7])
def test_frames_hold_about_the_target(mean_bytes):
    """A frame has as many rows as fit, rounded to a power of two: at least one, at most 1024."""
    rows = frame_rows(10, 10 * mean_bytes)
    assert rows in {1 << k for k in range(11)}
    assert rows == 1 or rows * mean_bytes <= FRAME_TARGET_BYTES
    assert rows == 1024 or 2 * rows * mean_bytes > FRAME_TARGET_BYTES


def test_a_value_of_many_megabytes():
    """A value may be far larger than a frame; the frame table then has wide entries."""
    large = np.random.default_rng(1).bytes(3 << 20)
    array = pa.array([b"", large, b"x"])
    assert back(encode_node(array, writes()), 3, pa.binary()).equals(array)


DAMAGED_TYPES = [
    (pa.int64(), [1, 2, None, 1 << 40]),
    (pa.string(), ["a", "bcd", None, "é" * 9]),
    (pa.binary(2), [b"ab", None, b"cd"]),
    (pa.decimal128(20), [1, None, -(10**19)]),
    (pa.list_(pa.string()), [["a"], None, [], ["b", None]]),
    (pa.list_(pa.int8(), 2), [[1, 2], None]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1)], None]),
    (pa.struct([pa.field("x", pa.bool_())]), [{"x": True}, None]),
]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD, Codec.LZ4])
@pytest.mark.parametrize(("kind", "values"), DAMAGED_TYPES, ids=lambda x: str(x) if isinstance(x, pa.DataType) else "")
def test_damaged_nodes(kind, values, codec):
    """A node that is cut or has any bit flipped is refused, or decoded as other values of its type."""
    array = pa.array(values, kind)
    stored = encode_node(array, writes(codec))

    def read(damaged: bytes) -> None:
        decoded, _ = decode_node(memoryview(damaged), 0, len(array), kind, READ)
        assert len(decoded) == len(array)
        decoded.validate(full=not pa.types.is_decimal(kind))  # a decimal beyond its precision is harmless

    assert_refused_or_read(stored, read)


ABSURD_NODES = [
    ("unknown flags", bytes([1, 4, 0, 0]) + bytes(8), pa.int8(), "unknown flags 0x4"),
    ("other shape", bytes([4, 0, 1, 0]) + bytes(10), pa.int8(), "stored in shape 4"),
    (
        "validity of 2",
        bytes([1, 1, 0, 0]) + struct.pack("<BBBBI", 1, 1, 0, 0, 0) + b"\x02",
        pa.int8(),
        "other values than 0 and 1",
    ),
    ("no rows per frame", bytes([4, 0, 0, 0]) + bytes(10), pa.binary(), "expected 4"),
    ("too many rows per frame", bytes([4, 0, 1, 4]) + bytes(10), pa.binary(), "expected 4"),
    ("frame table of 3-byte entries", bytes([4, 0, 1, 0]) + bytes(8) + b"\0\3" + bytes(9), pa.binary(), "3 bytes"),
    ("frames beyond the block", bytes([4, 0, 1, 0]) + bytes(8) + b"\0\2\x05\0", pa.binary(), "beyond"),
]


@pytest.mark.parametrize(
    ("stored", "kind", "message"), [case[1:] for case in ABSURD_NODES], ids=[c[0] for c in ABSURD_NODES]
)
def test_nodes_that_no_writer_makes(stored, kind, message):
    """A node that no writer makes is refused; the error names the fault."""
    with pytest.raises(CorruptSegmentError, match=message):
        decode_node(memoryview(stored), 0, 1, kind, READ)


def test_absurd_lengths_are_refused_before_anything_is_allocated():
    """Lengths that add up to terabytes are refused before anything is allocated."""
    for kind in (pa.binary(), pa.list_(pa.int8())):
        head = bytes([shape_of(kind), 0, 1 if kind == pa.binary() else 0, 0])
        lengths = struct.pack("<BBBBI", 6, 6, 0, 0, 0) + b"".join(bytes([0xFF] * 2) for _ in range(6))
        stored = head + lengths + b"\0\2" + struct.pack("<2H", 0, 0) + bytes(8)
        with pytest.raises(CorruptSegmentError, match="out of bounds"):
            decode_node(memoryview(stored), 0, 2, kind, READ)


def test_text_that_is_not_utf_8():
    """Bytes stored as text must be UTF-8."""
    stored = encode_node(pa.array([b"\xff"]), writes())
    with pytest.raises(CorruptSegmentError, match="text is broken"):
        decode_node(memoryview(stored), 0, 1, pa.string(), READ)


def test_nesting_has_an_end():
    """Types may nest 32 levels deep; a deeper type is refused before it exhausts the stack."""
    kind, value = pa.int8(), 1
    for _ in range(32):
        kind, value = pa.list_(kind), [value]
    array = pa.array([value], kind)
    assert back(encode_node(array, writes()), 1, kind).equals(array)
    deeper = pa.array([[value]], pa.list_(kind))
    stored = encode_node(deeper, writes())
    with pytest.raises(CorruptSegmentError, match="nest too deep"):
        decode_node(memoryview(stored), 0, 1, deeper.type, READ)


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.string()),
        pa.list_(pa.struct([("a", pa.int8()), ("b", pa.list_(pa.binary()))])),
        pa.large_list(pa.decimal128(20)),
    ],
)
@pytest.mark.parametrize("valid", [None, True])
def test_lists_of_which_none_is_there(kind, valid):
    """A column of only nulls is decoded without its elements, and its end is found; empty lists are not nulls."""
    array = pa.array([valid and []] * 50, kind)
    stored = encode_node(array, writes())
    decoded, end = decode_node(memoryview(stored + b"next"), 0, 50, kind, READ)
    decoded.validate(full=True)
    assert (decoded.equals(array), end) == (True, len(stored))
    for cut in range(len(stored)):
        with pytest.raises(CorruptSegmentError):
            decode_node(memoryview(stored)[:cut], 0, 50, kind, READ)
