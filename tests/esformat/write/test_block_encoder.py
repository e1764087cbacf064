"""The division of sorted rows into blocks, and the encoding of columns, which is chosen once per file."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

from esformat.format.codec import Codec, Decompressor
from esformat.format.data_block import DataBlock
from esformat.format.dictionary import ColumnDictionary, with_null
from esformat.format.frame import decode_block
from esformat.format.layout import BlockKind
from esformat.format.node import DecodeContext, Shape
from esformat.format.schema import EventSchema, Field
from esformat.write import block_encoder
from esformat.write.block_encoder import (
    MAX_DICTIONARY_VALUES,
    NULL,
    UNKNOWN,
    BlockEncoder,
    BlockFormat,
    Coded,
    SortedRows,
    choose_raw,
    cut_blocks,
    cut_tasks,
    may_want_codes,
    row_bytes,
    rows_are_small,
    wants_codes,
)


@examples(100)
@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 7), st.sampled_from([1, 20, 60, 1000]))
def test_blocks_are_cut_by_rows_and_bytes(sizes, block_rows, block_bytes):
    """A block has as many rows as both limits allow; a row larger than a block gets its own."""
    with cut_small(Pieces(block_bytes=block_bytes)):
        edges = cut_blocks(np.array(sizes, np.int64), len(sizes), block_rows)
    assert edges[0] == 0
    assert edges[-1] == len(sizes)
    for first, last in pairwise(edges):
        assert 0 < last - first <= block_rows
        assert last - first == 1 or sum(sizes[first:last]) <= block_bytes
        if last < len(sizes):
            assert last - first == block_rows or sum(sizes[first : last + 1]) > block_bytes


@pytest.mark.parametrize(("rows", "edges"), [(0, [0]), (1, [0, 1]), (3, [0, 3]), (4, [0, 3, 4]), (6, [0, 3, 6])])
def test_small_rows_are_cut_by_number_alone(rows, edges):
    """Small rows fill every block except the last."""
    assert cut_blocks(None, rows, 3) == edges


def values(count: int, size: int = 3) -> pa.Array:
    """Distinct texts."""
    return pa.array([f"{n:0{size}}" for n in range(count)])


CODES = [
    (values(5), 10_000, True),
    (values(0), 10_000, False),  # only nulls
    (values(5), block_encoder.BLOCK_ROWS - 1, False),  # a dictionary costs more than so few rows save
    (values(5), block_encoder.BLOCK_ROWS, True),
    (values(2500), 10_000, True),
    (values(2501), 10_000, False),  # too few repetitions
    (values(MAX_DICTIONARY_VALUES), 10**6, True),
    (values(MAX_DICTIONARY_VALUES + 1), 10**6, False),
    (values(160, 100), 10**6, True),
    (values(170, 100), 10**6, False),  # too many bytes
]


@pytest.mark.parametrize(("distinct", "rows", "wanted"), CODES, ids=range(len(CODES)))
def test_text_that_is_stored_as_codes(distinct, rows, wanted):
    """Few, short and repeated values are stored as codes."""
    assert wants_codes(distinct, rows) == wanted


def test_types_that_may_be_stored_as_codes():
    """Only text may be stored as codes."""
    assert may_want_codes(pa.string())
    assert may_want_codes(pa.large_string())
    assert not any(map(may_want_codes, [pa.binary(), pa.int64(), pa.bool_(), pa.list_(pa.string())]))


def test_bytes_of_rows():
    """The size of a row depends on the row alone: payloads, elements of lists, one byte for each known code."""
    nested = pa.array([[1] * 8, [], None, [2] * 8])
    pairs = pa.array([{"a": "xy", "b": 1}, None, {"a": None, "b": None}, {"a": "", "b": 2}])
    fixed = pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int16(), 2))
    coded = Coded(np.array([0, UNKNOWN, NULL, 1]), pa.array(["a", "x" * 50, None, "b"]))
    columns = [pa.array([b"", b"x" * 100, None, b"abc"]), coded, nested, pairs, fixed, pa.nulls(4)]
    expected = [
        16 + 0 + 1 + 4 + 64 + 2 + 8 + 4,
        16 + 100 + 1 + 50 + 4 + 0 + 8 + 0,
        16 + 0 + 1 + 4 + 0 + 8 + 4,
        16 + 3 + 1 + 4 + 64 + 0 + 8 + 4,
    ]
    assert row_bytes(columns, 4).tolist() == expected
    for first in range(4):
        part = [Coded(c.codes[first:], c.values.slice(first)) if isinstance(c, Coded) else c[first:] for c in columns]
        assert row_bytes(part, 4 - first).tolist() == expected[first:]


@examples(100)
@given(
    st.lists(st.integers(1, 50), max_size=60), st.integers(1, 4), st.sampled_from([20, 60, 1000]), st.integers(1, 60)
)
def test_tasks_do_not_depend_on_what_comes_later(sizes, blocks, task_bytes, known):
    """Every task except the last is the same if only the first rows are known."""
    with cut_small(Pieces(block_bytes=40, task_blocks=blocks, task_bytes=task_bytes)):

        def tasks(some):
            edges = cut_blocks(np.array(some, np.int64), len(some), 5)
            return [(edges[a], edges[b]) for a, b in cut_tasks(edges, np.array(some, np.int64))]

        some = tasks(sizes[:known])
        assert some[:-1] == tasks(sizes)[: max(0, len(some) - 1)]
        for first, last in tasks(sizes):
            assert last - first <= 5 * blocks
            assert sum(sizes[first:last]) <= max(task_bytes, 50)


def test_small_rows_make_the_same_tasks():
    """Small rows have the same tasks whether or not their sizes are computed."""
    with cut_small(Pieces(block_rows=4, task_blocks=3, task_bytes=120, block_bytes=40)):
        assert rows_are_small(10)
        assert not rows_are_small(11)
        sizes = np.full(50, 10)
        assert cut_blocks(sizes, 50) == cut_blocks(None, 50)
        assert cut_tasks(cut_blocks(None, 50), sizes) == cut_tasks(cut_blocks(None, 50), None)


def test_values_that_a_dictionary_lacks():
    """A block with values outside the dictionary stores values, other blocks codes; both are read back."""
    schema = EventSchema((Field("x", pa.string()),))
    known = pa.array(["a", "b"])
    column = pa.array(["a", None, "b", "b", "new", "a", None, "a"])
    codes = np.array([0, NULL, 1, 1, UNKNOWN, 0, NULL, 0])
    form = BlockFormat(schema, Codec.ZSTD, None, {0: ColumnDictionary(0, values=known)}, {})
    rows = SortedRows(
        np.arange(8), np.array([0]), pa.array([b"k"]), pa.array([b""]), [Coded(codes, column)], continues=False
    )
    plain = Decompressor()
    context = DecodeContext(plain, plain, with_null(known))
    found, shapes = [], []
    for encoded in BlockEncoder(form).encode(rows, [0, 2, 4, 6, 8]):
        block = DataBlock(decode_block(encoded.stored, BlockKind.DATA, None, 0), 1)
        found += block.column(0, pa.string(), context).to_pylist()
        shapes.append(block.body[block.start_of(2)])
    assert found == column.to_pylist()
    assert shapes == [Shape.CODES, Shape.CODES, Shape.BYTES, Shape.CODES]


def test_noisy_planes_are_left_raw():
    """Numbers with random low bytes keep those uncompressed; for codec none nothing is measured."""
    rng = np.random.default_rng(1)
    schema = EventSchema((Field("noise", pa.int64()), Field("calm", pa.int64()), Field("text", pa.string())))
    columns = [
        pa.array(rng.integers(0, 256, 3000) + (np.arange(3000) // 100 << 8)),
        pa.array(np.arange(3000) // 1000),
        pa.array(["a"] * 3000),
    ]
    times = np.sort(rng.integers(0, 10**9, 3000))
    rows = SortedRows(
        times, np.array([0, 1500]), pa.array([b"a", b"b"]), pa.array([b"", b""]), columns, continues=False
    )
    chosen = choose_raw(rows, schema, Codec.ZSTD, None)
    assert chosen[0] == 1
    assert chosen[1] == 0
    assert chosen[-1] >= 1
    assert 2 not in chosen
    assert choose_raw(rows, schema, Codec.NONE, None) == {}
