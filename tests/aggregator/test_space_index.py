"""Spaces of many rows found by marks of their keys: the same rows as by comparing every key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.model import SchemaInfo
from aggregator.space_index import SpaceIndex
from aggregator.unsealed import ASKED_OFTEN, INDEXED_ROWS, Lookup, make_piece
from esformat.parts import default_schema


def compared(keys, key):
    return np.flatnonzero(np.asarray(pc.equal(keys, key).to_numpy(zero_copy_only=False))).tolist()


@pytest.mark.parametrize(
    ("kind", "texts"), [(pa.string(), st.text(max_size=20)), (pa.binary(), st.binary(max_size=40))]
)
def test_the_rows_of_every_space(kind, texts):
    """Any keys, empty ones and absent ones too, and slices of arrays."""

    @given(st.lists(texts, max_size=60), texts, st.integers(0, 5))
    def check(keys, other, skipped):
        array = pa.array(keys, kind).slice(skipped)
        index = SpaceIndex(array)
        for key in {*keys, other}:
            scalar = pa.scalar(key, kind)
            assert index.find(scalar).tolist() == compared(array, scalar)

    check()


def test_keys_of_the_same_mark():
    """Marks have 16 bits: among 200,000 keys many share one, and none is taken for another."""
    keys = pa.array([f"space-{n}" for n in range(200_000)])
    index = SpaceIndex(keys)
    for n in range(0, 200_000, 5000):
        assert index.find(pa.scalar(f"space-{n}")).tolist() == [n]
    assert index.find(pa.scalar("space-200000")).tolist() == []


def test_lookups_that_are_asked_often():
    """The answer does not change when the index takes over."""
    schema = SchemaInfo(1, 1, 1, default_schema((), binary_keys=False))
    spaces = [f"s{n % 997}" for n in range(INDEXED_ROWS)]
    columns = {"space": spaces, "timestamp": pa.array(range(len(spaces)), pa.timestamp("us", "UTC"))}
    lookup = Lookup((make_piece(0, schema, pa.record_batch(columns), 1, 0),))
    wanted = [n for n in range(len(spaces)) if spaces[n] == "s5"]
    for _ in range(ASKED_OFTEN + 3):
        assert lookup.find(pa.scalar("s5")).tolist() == wanted
    assert "_index" in vars(lookup)
