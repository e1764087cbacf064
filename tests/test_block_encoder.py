"""How sorted rows are cut into blocks and how columns are stored: decided once per file, on its own rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from clicks import click_table
from event_strategies import examples
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

from esformat import block_encoder
from esformat.block_encoder import (
    MAX_DICTIONARY_VALUES,
    SAMPLE_BYTES,
    ZSTD_DICTIONARY_BYTES,
    SortedRows,
    choose_raw,
    cut_blocks,
    may_want_codes,
    row_bytes,
    sample_rows,
    take_runs,
    train_on,
    wants_codes,
)
from esformat.codec import Codec
from esformat.schema import EventSchema, Field


@examples(100)
@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 7), st.sampled_from([1, 20, 60, 1000]))
def test_blocks_are_cut_by_rows_and_bytes(sizes, block_rows, block_bytes):
    """As many rows as both limits allow; a row that is larger than a block has one of its own."""
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
    """Every block full but the last."""
    assert cut_blocks(None, rows, 3) == edges


def values(count: int, size: int = 3) -> pa.Array:
    """Distinct texts."""
    return pa.array([f"{n:0{size}}" for n in range(count)])


CODES = [
    (values(5), 10_000, True),
    (values(0), 10_000, False),  # nothing but nulls
    (values(5), block_encoder.BLOCK_ROWS - 1, False),  # a dictionary costs more than so few rows save
    (values(5), block_encoder.BLOCK_ROWS, True),
    (values(2500), 10_000, True),
    (values(2501), 10_000, False),  # not repeated enough
    (values(MAX_DICTIONARY_VALUES), 10**6, True),
    (values(MAX_DICTIONARY_VALUES + 1), 10**6, False),
    (values(160, 100), 10**6, True),
    (values(170, 100), 10**6, False),  # too many bytes
]


@pytest.mark.parametrize(("distinct", "rows", "wanted"), CODES, ids=range(len(CODES)))
def test_text_that_is_stored_as_codes(distinct, rows, wanted):
    """Few, short and repeated values."""
    assert wants_codes(distinct, rows) == wanted


def test_types_that_may_be_stored_as_codes():
    """Text only."""
    assert may_want_codes(pa.string())
    assert may_want_codes(pa.large_string())
    assert not any(map(may_want_codes, [pa.binary(), pa.int64(), pa.bool_(), pa.list_(pa.string())]))


CLICKS = click_table(6000)["data"].combine_chunks()


def test_a_dictionary_that_pays_for_itself():
    """Payloads that share their structure get one; the same input gives the same one."""
    dictionary = train_on(CLICKS, 50 << 20, Codec.ZSTD, None)
    assert 0 < len(dictionary) <= ZSTD_DICTIONARY_BYTES
    assert train_on(CLICKS, 50 << 20, Codec.ZSTD, None) == dictionary


@pytest.mark.parametrize(
    ("sample", "byte_count", "codec"),
    [
        (CLICKS, 50 << 20, Codec.LZ4),
        (CLICKS, 50 << 20, Codec.NONE),
        (CLICKS.slice(0, 100), 5000, Codec.ZSTD),
        (pa.array([np.random.default_rng(n).bytes(100) for n in range(3000)]), 50 << 20, Codec.ZSTD),
        (pa.array([b""] * 5000), 1 << 20, Codec.ZSTD),
        (pa.array([], pa.binary()), 0, Codec.ZSTD),
    ],
    ids=["lz4", "none", "small", "noise", "empty payloads", "no rows"],
)
def test_no_dictionary_where_none_pays(sample, byte_count, codec):
    """Other codecs, small columns, noise."""
    assert train_on(sample, byte_count, codec, None) == b""


@examples(100)
@given(st.integers(0, 10**6), st.floats(0, 10**6))
def test_samples(rows, mean_bytes):
    """Short runs within the rows, ascending, apart, of about a mebibyte in all; everything where that is little."""
    runs = sample_rows(rows, mean_bytes)
    assert all(0 <= first <= last <= rows for first, last in runs)
    assert all(a[1] <= b[0] for a, b in pairwise(runs))
    taken = sum(last - first for first, last in runs)
    if rows * mean_bytes <= SAMPLE_BYTES:
        assert taken == rows
    else:
        assert taken * mean_bytes <= 2 * SAMPLE_BYTES + 2 * mean_bytes


def test_runs_are_taken_in_segment_order():
    """From rows in order of arrival."""
    array, order = pa.array([10, 11, 12, 13, 14]), np.array([4, 2, 0, 1, 3])
    assert take_runs(array, order, [(0, 2), (4, 5)]).to_pylist() == [14, 12, 13]
    assert take_runs(array, None, [(0, 2), (4, 5)]).to_pylist() == [10, 11, 14]


def test_bytes_of_rows():
    """Exact for payloads, little for codes, about right for nested columns: what blocks are cut by."""
    schema = EventSchema((Field("data", pa.binary()), Field("code", pa.string()), Field("n", pa.list_(pa.int64()))))
    nested = pa.array([[1] * 8, [], None, [2] * 8])
    sizes = row_bytes([pa.array([b"", b"x" * 100, None, b"abc"]), np.zeros(4, np.int64), nested], schema)
    assert (sizes[1] - sizes[0], sizes[3] - sizes[2]) == (100, 3)
    assert 4 * 17 < int(sizes.sum()) - 103 < 4 * 100


def test_noisy_planes_are_left_raw():
    """Numbers whose low bytes are noise keep them uncompressed; nothing is measured for codec none."""
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
