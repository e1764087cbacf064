"""Nodes of strings read as a whole, as the encoder wrote them and cut short."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
import read_esdb
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.bytes_nodes import end_of_front_coded, end_of_values, front_coded, read_values
from esformat.errors import CorruptSegmentError, EsdbError
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.encoding import encode_node, encode_texts
from esformat.format.node import EncodeContext, Shape
from esformat.format.packing import encode_ints

ZSTD = make_compressor(Codec.ZSTD)
CONTEXT = EncodeContext(ZSTD, ZSTD, frame_bytes=8)
PLAIN = Decompressor()


@examples(100)
@given(st.lists(st.binary(max_size=9), max_size=20))
def test_texts_come_back(texts):
    """Texts are read with their edges and the end of the node."""
    body = memoryview(b".." + encode_node(pa.array(texts, pa.binary()), CONTEXT) + b".")
    edges, data, end = read_values(body, 2, len(texts), PLAIN, PLAIN)
    assert [data[a:b] for a, b in itertools.pairwise(edges)] == texts
    assert end == end_of_values(body, 2, len(texts)) == len(body) - 1


def test_nodes_cut_short():
    """A node cut short at any length, and a position or count outside the bytes, is refused."""
    body = encode_node(pa.array([b"one", b"three", b""], pa.binary()), CONTEXT)
    for size in range(len(body)):
        assert end_of_values(body[:size], 0, 3) == -1
        with pytest.raises(CorruptSegmentError):
            read_values(memoryview(body[:size]), 0, 3, PLAIN, PLAIN)
    for at, count in ((-1, 3), (1, 3), (1 << 62, 3), (0, -1), (0, 1 << 62)):
        assert end_of_values(body, at, count) == -1
        with pytest.raises(CorruptSegmentError):
            read_values(memoryview(body), at, count, PLAIN, PLAIN)
    with_null = encode_node(pa.array([b"one", None], pa.binary()), CONTEXT)
    assert end_of_values(with_null, 0, 2) == -1
    with pytest.raises(CorruptSegmentError, match="is null"):
        read_values(memoryview(with_null), 0, 2, PLAIN, PLAIN)


ALIKE = st.lists(st.text("ab", max_size=9).map(lambda text: b"user-" + text.encode()), max_size=20)
"""Texts with a common prefix."""


def _texts_of(read):
    edges, data, _ = read
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@examples(100)
@given(ALIKE | ALIKE.map(sorted) | st.lists(st.binary(max_size=9), max_size=20))
def test_front_coded_texts_come_back(texts):
    """Both readers return the same texts and the end of the node; shared prefixes are not stored twice."""
    node = encode_texts(pa.array(texts, pa.binary()), CONTEXT)
    body = memoryview(b".." + node + b".")
    read = read_values(body, 2, len(texts), PLAIN, PLAIN)
    assert (_texts_of(read), read[2]) == (texts, len(body) - 1)
    assert end_of_front_coded(body, 2, len(texts)) == len(body) - 1
    assert read_esdb.read_texts(read_esdb.Cursor(node), len(texts)) == texts
    for slack in (5, 32):
        edges, data, _ = read_values(body, 2, len(texts), PLAIN, PLAIN, slack)
        assert (data, edges) == (b"".join(texts) + bytes(slack), read[0])
    if len(texts) > 3 and all(text.startswith(b"user-") for text in texts):
        shared, ends, rest = front_coded(np.cumsum([0, *map(len, texts)]), b"".join(texts))
        assert min(list(shared)[1:]) >= 5
        assert sum(shared) + len(rest) == sum(map(len, texts)) == sum(shared) + ends[-1]


@examples(300)
@given(ALIKE, st.data())
def test_any_byte_of_front_coded_texts_may_be_wrong(texts, data):
    """Any changed byte is refused, or read as the independent reader reads it."""
    node = bytearray(encode_texts(pa.array(texts, pa.binary()), CONTEXT))
    node[data.draw(st.integers(0, len(node) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = read_values(memoryview(bytes(node)), 0, len(texts), PLAIN, PLAIN)
    except EsdbError:
        return
    assert end_of_front_coded(bytes(node), 0, len(texts)) in (-1, read[2])
    try:
        assert read_esdb.read_texts(read_esdb.Cursor(bytes(node)), len(texts)) == _texts_of(read)
    except (read_esdb.Corrupt, read_esdb.TooNew):
        return


def _front_coded(shared, rest, head=b"\x09\0\0\0"):
    node = encode_node(pa.array(rest, pa.binary()), CONTEXT)
    return head + encode_ints(np.array(shared, np.int64), make_compressor(Codec.NONE)) + node


def test_lengths_of_front_coded_texts():
    """Every combination of shared and remaining length is read right: short pieces are copied 16 bytes at a time."""
    texts, shared, before = [], [0], bytes(range(36))
    for same, more in itertools.product(range(36), repeat=2):
        texts += [before, before[:same] + bytes(range(100, 100 + more))]
        shared += [same, same]  # shared with the text before it, and by the next text with it
    rest = [text[same:] for text, same in zip(texts, shared, strict=False)]
    found, ends, data = front_coded(np.cumsum([0, *map(len, texts)]), b"".join(texts))
    assert (list(found), data) == (shared[:-1], b"".join(rest))
    assert list(ends) == np.cumsum([0, *map(len, rest)]).tolist()
    body = memoryview(_front_coded(found, rest))
    assert _texts_of(read_values(body, 0, len(texts), PLAIN, PLAIN)) == texts
    assert read_esdb.read_texts(read_esdb.Cursor(bytes(body)), len(texts)) == texts


@pytest.mark.parametrize(
    ("texts", "shape"), [([b"ab", b"ab"], Shape.FRONT_CODED), ([b"ab", b"abc"], Shape.BYTES), ([b""], Shape.BYTES)]
)
def test_which_texts_are_front_coded(texts, shape):
    """Texts are front-coded if at least half of all bytes are shared."""
    assert encode_texts(pa.array(texts, pa.binary()), CONTEXT)[0] == shape


def test_which_front_coded_texts_are_compressed():
    """Remaining bytes are compressed if that saves enough: half is not enough."""
    digits = b"".join(b"%08x" % (i * 2_654_435_761 % (1 << 32)) for i in range(30))  # compression would save half
    assert digits in encode_texts(pa.array([digits, digits], pa.binary()), CONTEXT)
    assert len(encode_texts(pa.array([b"x" * 1000, b"x" * 1000], pa.binary()), CONTEXT)) < 100


def test_frames_of_another_size():
    """A decompressor that returns too few bytes is refused; nothing beyond them is read."""

    class Short:
        def decompress(self, codec, frame, size):
            return PLAIN.decompress(codec, frame, size)[:-1]

    with pytest.raises(CorruptSegmentError, match="a different size"):
        read_values(memoryview(_front_coded([0, 1], [b"ab", b"c"])), 0, 2, Short(), Short())


def test_front_coded_nodes_cut_short():
    """A front-coded node cut short at any length is refused."""
    body = _front_coded([0, 2, 1], [b"one", b"", b"e"])
    assert _texts_of(read_values(memoryview(body), 0, 3, PLAIN, PLAIN)) == [b"one", b"on", b"oe"]
    for size in range(len(body)):
        assert end_of_front_coded(body[:size], 0, 3) == -1
        with pytest.raises(CorruptSegmentError):
            read_values(memoryview(body[:size]), 0, 3, PLAIN, PLAIN)


@pytest.mark.parametrize(
    "body",
    [_front_coded([1, 0], [b"a", b"b"]), _front_coded([0, 2], [b"a", b"b"]), _front_coded([0, -1], [b"a", b"b"]),
     _front_coded([0, 1 << 62], [b"a", b"b"]), _front_coded([0, 1], [b"a", None]),
     _front_coded([0, 0], [b"a", b"b"], b"\x09\1\0\0"), _front_coded([0, 0], [b"a", b"b"], b"\x09\0\1\0"),
     _front_coded([0, 0], [b"a", b"b"], b"\x09\0\0\1"),
     b"\x09\0\0\0" + encode_ints(np.array([0, 0]), ZSTD) + _front_coded([0, 0], [b"a", b"b"])],
)  # fmt: skip
def test_front_coded_nodes_that_break_the_format(body):
    """Both readers refuse too long a shared prefix, a null, an unknown head and a nested front-coded node."""
    assert body[0] == Shape.FRONT_CODED
    with pytest.raises(CorruptSegmentError):
        read_values(memoryview(body), 0, 2, PLAIN, PLAIN)
    with pytest.raises((read_esdb.Corrupt, read_esdb.TooNew)):
        read_esdb.read_texts(read_esdb.Cursor(body), 2)


def test_what_front_coded_texts_may_take():
    """Front-coded texts above the size of a frame are refused before memory is allocated."""
    count = 1 << 16
    body = _front_coded([0] + [1 << 16] * (count - 1), [b"x" * (1 << 16)] + [b""] * (count - 1))
    with pytest.raises(CorruptSegmentError, match="out of bounds"):
        read_values(memoryview(body), 0, count, PLAIN, PLAIN)


@pytest.mark.parametrize("edges", [[], [1, 2], [0, 3], [0, 2, 1, 2], [0, -1, 2]])
def test_texts_outside_of_their_bytes(edges):
    """Edges that do not fit the bytes are refused."""
    with pytest.raises(ValueError, match="outside"):
        front_coded(np.array(edges, np.int64), b"ab")
