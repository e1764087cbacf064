"""Finding the rows of a space by hashes of keys returns the same rows as comparing every key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.model import SchemaInfo
from aggregator.storage.memtable.batch import make_batch
from aggregator.storage.memtable.lookup import INDEX_AFTER, INDEXED_ROWS, Lookup
from aggregator.storage.memtable.space_index import SpaceIndex
from esformat.parts import default_schema


def compared(keys, key):
    return np.flatnonzero(np.asarray(pc.equal(keys, key).to_numpy(zero_copy_only=False))).tolist()


@pytest.mark.parametrize(
    ("kind", "texts"),
    [(pa.string(), st.text(max_size=20)), (pa.binary(), st.binary(max_size=40) | st.binary(min_size=40, max_size=70))],
)
def test_the_rows_of_every_space(kind, texts):
    """Any keys work, including empty and null ones, slices of arrays, and combined indexes."""

    @given(st.lists(texts, max_size=60), texts, st.integers(0, 5), st.integers(0, 60))
    def check(keys, other, skipped, cut):
        array = pa.array(keys, kind).slice(skipped)
        indexes = [SpaceIndex.of(array), SpaceIndex.of(array[:cut]).followed_by(SpaceIndex.of(array[cut:]))]
        for key in {*keys, other}:
            scalar = pa.scalar(key, kind)
            for index in indexes:
                assert index.find(scalar.as_buffer().to_pybytes()).tolist() == compared(array, scalar)

    check()


def test_long_keys():
    """For long keys only head, tail and length are hashed: keys that differ elsewhere are found together."""
    keys = [b"a" * 100, b"a" * 60 + b"b" + b"a" * 39, b"a" * 101, b"b" + b"a" * 99, b"a" * 99 + b"b"]
    index = SpaceIndex.of(pa.array(keys))
    assert [index.find(key).tolist() for key in keys] == [[0, 1], [0, 1], [2], [3], [4]]


def test_keys_of_the_same_hash():
    """Hashes have 32 bits: of 200,000 keys few share one, and each key finds its row."""
    keys = [b"space-%d" % n for n in range(200_000)]
    index = SpaceIndex.of(pa.array(keys))
    found = [index.find(keys[n]).tolist() for n in range(0, 200_000, 50)]
    assert all(n in rows for n, rows in zip(range(0, 200_000, 50), found, strict=True))
    assert sum(map(len, found)) < 4010


def test_lookups_that_are_asked_often():
    """The result does not change when repeated lookups build the index."""
    schema = SchemaInfo(1, 1, 1, default_schema((), binary_keys=False))
    spaces = [f"s{n % 997}" for n in range(INDEXED_ROWS)]
    columns = {"space": spaces, "timestamp": pa.array(range(len(spaces)), pa.timestamp("us", "UTC"))}
    lookup = Lookup((make_batch(0, schema, pa.record_batch(columns), 1, 0),))
    wanted = [n for n in range(len(spaces)) if spaces[n] == "s5"]
    for _ in range(INDEX_AFTER + 3):
        assert lookup.find(b"s5").tolist() == wanted
    assert "_index" in vars(lookup)
