"""A topic became unreadable once a column had contained large integers and then numbers of another type."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import aggregator
from esformat import InvalidEventError

BIG = 2**53 + 1


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "read"),
    [
        (pa.array([BIG - 1]), pa.array([1.5]), [float(BIG - 1), 1.5]),
        (pa.array([5]), pa.array([1.5], pa.float16()), [5.0, 1.5]),
        (pa.array([BIG]), pa.array([float(BIG - 1)]), [BIG, BIG - 1]),
        (pa.array([1.5]), pa.array([BIG - 1]), [1.5, float(BIG - 1)]),
        (pa.array([-1], pa.int8()), pa.array([2**64 - 1], pa.uint64()), [-1, 2**64 - 1]),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([-1]), [2**64 - 1, -1]),
        (pa.array([BIG]), pa.array([Decimal("1.25")]), [BIG, Decimal("1.25")]),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([Decimal("1.25")]), [2**64 - 1, Decimal("1.25")]),
        (pa.array([Decimal("1.25")]), pa.array([0.5], pa.float16()), [Decimal("1.25"), Decimal("0.50")]),
        (pa.array([[BIG]]), pa.array([[1.5]]), [f"[{BIG}]", "[1.5]"]),
        (pa.array([[5]]), pa.array([[1.5]]), [[5.0], [1.5]]),
        (pa.array([2**40], pa.duration("s")), pa.array([2 * 10**9], pa.duration("ns")), [2**40, 2]),
        (pa.array([2**40], pa.timestamp("s")), pa.array([7], pa.timestamp("us")), [2**40 * 10**6, 7]),
    ],
)
def test_numbers_of_two_types(tmp_path, first, second, read, sealed):
    """Every value stays exact, in a common type or in the column's own."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        for time, values in enumerate((first, second)):
            topic.append(pa.table({"space": ["a"], "timestamp": [time], "v": values}))
            if sealed:
                catalog.seal()
        found = topic.scan().to_table()["v"]
        if pa.types.is_temporal(found.type):
            assert found.cast(pa.int64()).to_pylist() == read
            return
        assert found.to_pylist() == read
        assert [event.columns["v"] for event in topic.scan(space="a")] == read


REFUSED = [
    (pa.array([BIG]), pa.array([1.5])),
    (pa.array([1.5]), pa.array([BIG])),
    (pa.array([1.5]), pa.array([Decimal("99999999.99")])),
    (pa.array([1.5], pa.float32()), pa.array([Decimal(10) ** 60])),
    (pa.array([Decimal("1.25")]), pa.array([0.123])),
    (pa.array([Decimal(10) ** 70]), pa.array([Decimal(1).scaleb(-70)])),
    (pa.array([2**40], pa.duration("s")), pa.array([1], pa.duration("ns"))),
    (pa.array([1], pa.duration("ns")), pa.array([2**40], pa.duration("s"))),
    (pa.array([2**55], pa.timestamp("us")), pa.array([1], pa.timestamp("ns"))),
]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(("first", "second"), REFUSED, ids=[f"{a.type}-{b.type}" for a, b in REFUSED])
def test_values_that_no_type_holds_beside_the_others_are_refused(tmp_path, first, second, sealed):
    """Values without a common exact type are refused, not rounded; nothing is stored, and the column stays readable."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        topic.append(pa.table({"space": ["a"], "timestamp": [1], "v": first}))
        if sealed:
            catalog.seal()
        with pytest.raises(InvalidEventError, match="column 'v'"):
            topic.append(pa.table({"space": ["b"], "timestamp": [2], "v": second}))
        assert topic.scan().to_table()["v"].combine_chunks().equals(first)
        assert len(topic._topic.schemas) == 1


LATER = [
    (pa.array([1]), pa.array([0.5]), pa.array([BIG])),
    (pa.array([1]), pa.array([0.5]), pa.array([BIG], pa.uint64())),
    (pa.array([1], pa.duration("us")), pa.array([1], pa.duration("ns")), pa.array([2**62], pa.duration("us"))),
    (pa.array([1], pa.timestamp("s")), pa.array([1], pa.timestamp("ns")), pa.array([2**40], pa.timestamp("s"))),
]


@pytest.mark.parametrize(("first", "second", "third"), LATER, ids=[f"{c.type}" for _, _, c in LATER])
def test_a_value_beyond_the_common_type_of_two_families(tmp_path, first, second, third):
    """A value that fits the column's first type, but not the type in which all are read, is refused, also as a row."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        topic.append(pa.table({"space": ["a"], "timestamp": [1], "v": first}))
        topic.append(pa.table({"space": ["a"], "timestamp": [2], "v": second}))
        before = topic.scan().to_table()
        with pytest.raises(InvalidEventError, match="column 'v'"):
            topic.append(pa.table({"space": ["b"], "timestamp": [3], "v": third}))
        assert topic.scan().to_table().equals(before)
        if pa.types.is_integer(third.type):
            with pytest.raises(InvalidEventError, match="column 'v'"):
                topic.append([{"space": "b", "timestamp": 3, "v": BIG}])
            assert topic.scan().to_table().equals(before)
