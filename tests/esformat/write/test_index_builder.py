"""An index has the same bytes whether written from all rows or from chunks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

from esformat.format.codec import Codec
from esformat.format.data_block import Runs
from esformat.format.directory import BlockSpan
from esformat.format.metadata import Metadata
from esformat.format.order import Ranked
from esformat.format.schema import EventSchema, Field
from esformat.write.block_encoder import BlockFormat, EncodedBlock
from esformat.write.builder import SegmentBuilder
from esformat.write.index_builder import IndexRows, blocks_of

KINDS = {"text": pa.string(), "numbers": pa.int64()}


class Sink(bytearray):
    """Collects the written bytes."""

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self.extend(data)


def built(kind: pa.DataType, block_rows: list[int], add) -> bytes:
    """A file with empty data blocks and the index that `add` writes."""
    schema = EventSchema((Field("x", kind, indexed=True),))
    sink = Sink()
    builder = SegmentBuilder(sink, Metadata(schema, "none", None, {}), BlockFormat(schema, Codec.NONE, None, {}, {}))
    builder.start()
    for number, rows in enumerate(block_rows):
        runs = Runs(pa.array([b"a"]), pa.array([b""]), np.array([rows]))
        builder.add_block(EncodedBlock(b"block", BlockSpan(rows, 5, 0, 0, 0), runs, number > 0))
    add(builder)
    builder.finish()
    return bytes(sink)


def cut(values: pa.Array, codes: np.ndarray, edges: list[int]) -> list[IndexRows]:
    """The rows of each value, in chunks that end at `edges` of all rows in order of value."""
    order = np.argsort(codes, kind="stable")
    order = order[codes[order] >= 0]
    chunks = []
    for first, last in zip([0, *edges], [*edges, len(order)], strict=True):
        rows = order[first:last]
        found, counts = np.unique(codes[rows], return_counts=True)
        chunks.append(IndexRows(values.take(pa.array(found, pa.int64())), counts, rows))
    return chunks


@examples(150)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.sampled_from(sorted(KINDS)),
    st.data(),
)
def test_streamed_index_has_the_same_bytes(block_rows, kind, data):
    """The bytes are the same wherever chunks end: within a value, several times in one, or empty."""
    count = sum(block_rows)
    codes = np.array(data.draw(st.lists(st.integers(-1, 5), min_size=count, max_size=count)), np.int64)
    values = pa.array([10, 20, 30, 40, 50, 60], pa.int64())
    values = values.cast(pa.string()) if kind == "text" else values
    there = int((codes >= 0).sum())
    edges = sorted(data.draw(st.lists(st.integers(0, there), max_size=6)))
    sizes = Pieces(chunk_entries=data.draw(st.sampled_from([1, 3, 100])), page_values=data.draw(st.integers(1, 4)))
    with cut_small(sizes):
        whole = built(KINDS[kind], block_rows, lambda builder: builder.add_index(0, Ranked(codes, values)))
        chunks = cut(values, codes, edges)
        streamed = built(KINDS[kind], block_rows, lambda builder: builder.add_index_stream(0, iter(chunks)))
    assert streamed == whole


@pytest.mark.parametrize(
    ("rows", "blocks"), [([0], [0]), ([0, 1, 2], [0, 1]), ([2, 3, 9], [1, 2]), ([5, 6, 7], [2])], ids=str
)
def test_blocks_of_rows(rows, blocks):
    """Each block is listed once, ascending."""
    assert blocks_of(np.array(rows), np.array([0, 2, 5])).tolist() == blocks
