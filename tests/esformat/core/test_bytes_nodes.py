"""Nodes of strings that are read as a whole, as the encoder wrote them, and cut short."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.bytes_nodes import end_of_values, read_values
from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.encoding import encode_node
from esformat.format.node import EncodeContext

ZSTD = make_compressor(Codec.ZSTD)
CONTEXT = EncodeContext(ZSTD, ZSTD, frame_bytes=8)
PLAIN = Decompressor()


@examples(100)
@given(st.lists(st.binary(max_size=9), max_size=20))
def test_texts_come_back(texts):
    """With edges, and with the byte behind them."""
    body = memoryview(b".." + encode_node(pa.array(texts, pa.binary()), CONTEXT) + b".")
    edges, data, end = read_values(body, 2, len(texts), PLAIN, PLAIN)
    assert [data[a:b] for a, b in itertools.pairwise(edges)] == texts
    assert end == end_of_values(body, 2, len(texts)) == len(body) - 1


def test_nodes_cut_short():
    """At each length; and where there is no such node."""
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
