"""Unsealed events: tiny batches are put together, lookups find what a plain search finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator import unsealed as module
from aggregator.model import SchemaInfo
from aggregator.unsealed import Unsealed, look_up, make_piece, newest_apart
from esformat.parts import default_schema

SCHEMAS = [SchemaInfo(number, 1, 1, default_schema([], binary_keys=False)) for number in (1, 2)]


def piece(first, spaces, schema=SCHEMAS[0]):
    batch = pa.record_batch(
        {
            "space": spaces,
            "timestamp": pa.array(range(len(spaces))).cast(pa.timestamp("us", "UTC")),
            "data": [b"%d" % (first + number) for number in range(len(spaces))],
        }
    )
    return make_piece(first, schema, batch, batch.nbytes, 7)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from("abcd"), min_size=1, max_size=4),
            st.integers(0, 1),
            st.integers(0, 2),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_lookups(steps):
    """Every event once, in order, whatever the sizes, the schemas and the gaps between record indexes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MERGED", 3)
        patch.setattr(module, "MAX_LOOKUP_ROWS", 5)
        patch.setattr(module, "FEW_RUNS", 2)
        patch.setattr(module, "MAX_FRESH_ROWS", 40)
        patch.setattr(module, "NEWEST_ROWS", 3)
        unsealed = Unsealed.empty()
        expected = []
        at = 0
        for spaces, schema, gap, look in steps:
            at += gap
            unsealed.add(piece(at, spaces, SCHEMAS[schema]))
            expected += [(at + number, space) for number, space in enumerate(spaces)]
            at += len(spaces)
            if look:
                unsealed.lookups = look_up(tuple(unsealed.pieces), unsealed.lookups)
        lookups = look_up(tuple(unsealed.pieces), unsealed.lookups)
        assert sum(lookup.rows for lookup in lookups) == unsealed.rows == len(expected)
        for space in ("a", "d", "absent"):
            found = [
                row
                for lookup in lookups
                for row in lookup.take(lookup.find(pa.scalar(space)), ["space", "data"]).to_pylist()
            ]
            assert found == [
                {"space": space, "data": b"%d" % index, "record_index": index} for index, s in expected if s == space
            ]
        apart = newest_apart(tuple(unsealed.pieces), unsealed.lookups) or lookups
        rows = [row["record_index"] for lookup in apart for row in lookup.take(None, ["space"]).to_pylist()]
        assert rows == [index for index, _ in expected]
        whole = [row["record_index"] for lookup in lookups for row in lookup.take(None, ["space"]).to_pylist()]
        assert whole == [index for index, _ in expected]
        for index in (0, at // 2, at):
            left = unsealed.after(index)
            numbers = [int(number) for p in left.pieces for number in p.record_indexes()]
            assert numbers == [number for number, _ in expected if number >= index]


def test_newest_pieces_stand_apart():
    """What came since lookups were made: the newest pieces alone, the older the more together, none of them opened."""
    unsealed = Unsealed.empty()
    for number in range(0, 60_000, 1000):
        unsealed.add(piece(number, ["a"] * 1000))
    unsealed.lookups = look_up(tuple(unsealed.pieces[:5]), ())
    found = newest_apart(tuple(unsealed.pieces), unsealed.lookups)
    assert [len(lookup.pieces) for lookup in found] == [5, 13, 32, 8, 2]
    assert found[0] is unsealed.lookups[0]
    for number in range(60_000, 70_001, 1000):
        unsealed.add(piece(number, ["a"] * 1000))
    assert newest_apart(tuple(unsealed.pieces), unsealed.lookups) is None
    assert newest_apart(tuple(unsealed.pieces), look_up(tuple(unsealed.pieces), ())) is not None


def test_tiny_batches_are_put_together():
    """Ten thousand of them are a handful of pieces, and nothing of them is lost."""
    unsealed = Unsealed.empty()
    for number in range(10_000):
        unsealed.add(piece(number, ["a"]))
    assert len(unsealed.pieces) < 200
    assert np.concatenate([p.record_indexes() for p in unsealed.pieces]).tolist() == list(range(10_000))
    assert unsealed.rows == 10_000
    assert unsealed.oldest_us == 7
