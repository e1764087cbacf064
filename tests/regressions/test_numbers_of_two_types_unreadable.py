"""A topic could not be read any more once a column had held large whole numbers and then numbers of another type."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import aggregator

BIG = 2**53 + 1


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "read"),
    [
        (pa.array([BIG]), pa.array([1.5]), [float(BIG), 1.5]),
        (pa.array([BIG]), pa.array([1.5], pa.float16()), [float(BIG), 1.5]),
        (pa.array([-1], pa.int8()), pa.array([2**64 - 1], pa.uint64()), [-1, 2**64 - 1]),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([-1]), [2**64 - 1, -1]),
        (pa.array([BIG]), pa.array([Decimal("1.25")]), [BIG, Decimal("1.25")]),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([Decimal("1.25")]), [2**64 - 1, Decimal("1.25")]),
        (pa.array([Decimal("1.25")]), pa.array([0.5], pa.float16()), [1.25, 0.5]),
        (pa.array([[BIG]]), pa.array([[1.5]]), [[float(BIG)], [1.5]]),
    ],
)
def test_numbers_of_two_types(tmp_path, first, second, read, sealed):
    """Whole numbers stay exact among whole numbers and decimals; with floating-point ones they are rounded to those."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        for time, values in enumerate((first, second)):
            topic.append(pa.table({"space": ["a"], "timestamp": [time], "v": values}))
            if sealed:
                catalog.seal()
        assert topic.scan().to_table()["v"].to_pylist() == read
        assert [event.columns["v"] for event in topic.scan(space="a")] == read


def test_what_no_common_type_holds_is_said(tmp_path):
    """A time that nanoseconds do not reach is an error that names the column; the other columns can be read."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        for values in (pa.array([2**55], pa.timestamp("us")), pa.array([1], pa.timestamp("ns"))):
            topic.append(pa.table({"space": ["a"], "timestamp": [1], "v": values}))
        with pytest.raises(aggregator.InvalidRequestError, match=r"column 'v' was timestamp\[us\] before"):
            topic.scan().to_table()
        assert topic.scan(columns=["space"]).to_table().num_rows == 2
