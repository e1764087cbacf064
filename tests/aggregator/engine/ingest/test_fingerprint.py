"""Which batches are equal: by their values alone, in any types and layouts."""

from __future__ import annotations

import datetime as dt
import itertools
import json

import numpy as np
import pyarrow as pa
import pytest

import aggregator
from aggregator.engine.ingest.batch import BatchAdapter
from aggregator.engine.ingest.fingerprint import fingerprint
from esformat.parts import make_schema

UTC = dt.UTC
MOMENT = dt.datetime(2026, 3, 1, 12, 0, 0, 1000, tzinfo=UTC)
NANS = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
ALIKE = {
    "whole numbers": [pa.array([1, None, 7], kind) for kind in (
        pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal256(50, 0))],
    "large whole numbers": [pa.array([2**63 + 5], pa.uint64()), pa.array([2**63 + 5], pa.decimal128(20, 0)),
                            pa.array([2**63 + 5], pa.decimal128(30, 4))],
    "floats": [pa.array([1.5, 0.25], kind) for kind in (pa.float32(), pa.float64())],
    "decimals": [pa.array([1, 2.5, -10.25], pa.float64()).cast(pa.decimal128(9, scale)) for scale in (2, 3, 6)],
    "NaN": [pa.array([1.5, value]) for value in NANS],
    "moments": [pa.array([MOMENT], pa.timestamp(unit, zone)) for unit in ("ms", "us", "ns")
                for zone in ("UTC", "Europe/Paris", "+05:30")],
    "naive times": [pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp(unit)) for unit in ("ms", "us", "ns")],
    "times of day": [pa.array([dt.time(1, 2, 3)], kind) for kind in (pa.time32("s"), pa.time64("us"))],
    "dates": [pa.array([dt.date(2026, 3, 1)], kind) for kind in (pa.date32(), pa.date64())],
    "durations": [pa.array([dt.timedelta(seconds=5)], pa.duration(unit)) for unit in ("s", "ms", "us", "ns")],
    "lists": [pa.array([[1, 2], None, [3, 4]], kind) for kind in (
        pa.list_(pa.int64()), pa.large_list(pa.float32()), pa.list_(pa.int8(), 2))],
    "structs": [
        pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}], PAIR),
        pa.array([{"a": 1, "b": "x"}, {"a": 2}], pa.struct([("b", pa.string()), ("a", pa.float64())])),
        pa.array([{"a": 1, "b": "x"}, {"a": 2}], pa.struct([("a", pa.int8()), ("b", pa.string()), ("c", pa.int8())])),
    ],
    "empty structs": [pa.array([{}, None], pa.struct([])), pa.array([{"a": None}, None], PAIR)],
    "bytes": [pa.array([b"ab"], kind) for kind in (pa.binary(), pa.binary(2), pa.large_binary())],
    "maps": [pa.array([[("k", 1)]], pa.map_(pa.string(), kind)) for kind in (pa.int64(), pa.float64())],
}  # fmt: skip
APART = [
    pa.array([True]), pa.array([1]), pa.array([1.5]), pa.array(["1"]), pa.array([b"1"]), pa.array([""]), pa.array([0]),
    pa.array([-0.0]), pa.array([False]), pa.array([[]], pa.list_(pa.int64())), pa.array([[None]], pa.list_(pa.int64())),
    pa.array([[1]]), pa.array([[True]]), pa.array([{"a": 1}]), pa.array([{"a": True}]), pa.array([{"b": 1}]),
    pa.array([{}], pa.struct([])), pa.array(["{}"]), pa.array([1], pa.timestamp("us")),
    pa.array([1], pa.timestamp("us", "UTC")), pa.array([1], pa.timestamp("ms", "UTC")), pa.array([1], pa.date32()),
    pa.array([1], pa.time64("ns")), pa.array([1], pa.duration("us")), pa.array([float("nan")]),
    pa.array([float("inf")]), pa.array([float("-inf")]), pa.array([1.5]).cast(pa.decimal128(5, 2)),
    pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), pa.array([[]], pa.map_(pa.string(), pa.int64())),
    pa.array([2**63], pa.uint64()), pa.array([-(2**63)]), pa.array([None], pa.int64()), pa.array([0.1]),
    pa.array([0.1], pa.float32()), pa.array([MOMENT.replace(microsecond=1001)], pa.timestamp("us", "UTC")),
    pa.array([1], pa.timestamp("ns", "UTC")), pa.array([1], pa.duration("ns")),
]  # fmt: skip


def of(column: pa.Array) -> int:
    key = pa.array(["a"] * len(column))
    batch = pa.record_batch({"space": key, "x": column})
    return fingerprint(batch, batch.serialize())


@pytest.mark.parametrize("column", [*APART, *itertools.chain.from_iterable(ALIKE.values())], ids=str)
def test_messages_are_told_as_batches_are(column):
    """The fingerprint of a message equals that of its batch, whether computed from bytes or from columns."""
    times = pa.array([1] * len(column), pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"space": ["a"] * len(column), "timestamp": times, "x": column})
    schema = make_schema(batch.schema, [], binary_keys=False)
    adapter = BatchAdapter(batch.schema, schema)
    message, checked = adapter.message(batch), adapter.apply(batch)
    assert message.fingerprint(schema) == fingerprint(checked, checked.serialize())
    if message.column_key is not None:
        assert not column.null_count
        assert column.type not in (pa.bool_(), pa.float64(), pa.int8(), pa.timestamp("ns", "UTC"), PAIR)
    else:
        assert column.null_count or column.type not in (pa.int64(), pa.string(), pa.binary())


@pytest.mark.parametrize("what", ALIKE)
def test_the_same_values(what):
    """Types, units, zones, order of struct members and kinds of lists make no difference."""
    assert len({of(column) for column in ALIKE[what]}) == 1


def test_other_values():
    """Values that look alike in bytes or are equal in Python differ."""
    found = [of(column) for column in APART]
    pairs = [(APART[i], APART[j]) for i, j in itertools.combinations(range(len(found)), 2) if found[i] == found[j]]
    assert not pairs


def test_names_and_nothing():
    """A renamed column changes the fingerprint; an all-null column does not."""
    first = pa.record_batch({"space": ["a"], "x": [1]})
    other = pa.record_batch({"space": ["a"], "y": [1]})
    more = pa.record_batch({"space": ["a"], "x": [1], "z": pa.nulls(1, pa.string())})
    one, two, three = (fingerprint(batch, batch.serialize()) for batch in (first, other, more))
    assert one == three != two


VALUES = ["1", "1.0", "true", '"1"', "null", "0.0", "-0.0"]
SAME = {frozenset(("1", "1.0"))}


def test_retries_of_json_values(tmp_path):
    """In either order, true is never a retry of 1, and 1.0 always is."""
    with aggregator.open(tmp_path, durability="none") as catalog:
        for number, (first, again) in enumerate(itertools.permutations(VALUES, 2)):
            topic = catalog.create_topic(f"t{number}")

            def append(value, topic=topic):
                row = {"space": "a", "timestamp": 1, "x": json.loads(value)}
                return topic.append([row], producer="p", sequence=1)

            append(first)
            if frozenset((first, again)) in SAME:
                assert append(again).duplicate
            else:
                with pytest.raises(aggregator.SequenceConflictError):
                    append(again)
            assert append(first).duplicate
