"""The facts of a segment's columns failed with status 500 if a column had a type that Arrow hardly compares."""

from __future__ import annotations

from decimal import Decimal

import httpx
import numpy as np
import pyarrow as pa
import pytest
from served import served

from aggregator.server.services.column_facts import _Seen

FAR = 2**62


@pytest.mark.parametrize(("first", "second", "kind", "expected"), [
    ([5, None, 7], [-3, 6], pa.duration("ns"), ("-3", "7")),
    ([np.float16(1.5), np.float16("nan")], [np.float16(-2), np.float16("inf")], pa.float16(), ("-2", "inf")),
    ([(1, 2, 3)], [(0, 40, 0)], pa.month_day_nano_interval(), (None, None)),
    ([0], [-(2**31)], pa.date32(), ("-2147483648", "1970-01-01")),
    ([0], [FAR], pa.timestamp("us"), ("1970-01-01T00:00:00.000000", str(FAR))),
    ([-FAR], [0], pa.timestamp("us", "Europe/Berlin"), (str(-FAR), "1970-01-01T00:00:00.000000Z")),
    ([FAR], [0], pa.timestamp("ns", "UTC"), ("1970-01-01T00:00:00.000000000Z", "2116-02-20T23:53:38.427387904Z")),
    ([Decimal(100)], [Decimal(200)], pa.decimal128(10, -2), ("1E+2", "2E+2")),
    ([b""], [b""], pa.binary(0), ("", "")),
    ([b"\xffa"], [b"z"], pa.binary(), ("z", "\ufffda")),
    ([None], [None], pa.duration("s"), (None, None)),
], ids=lambda each: str(each) if isinstance(each, pa.DataType) else "")  # fmt: skip
def test_facts_of_any_column(tmp_path, first, second, kind, expected):
    """Every column has its facts, with the least and greatest value as text if the type is ordered."""
    with served(tmp_path) as server:
        topic = server.catalog.create_topic("t")
        for values in (first, second):
            column = pa.array(values, pa.int32()).cast(kind) if kind == pa.date32() else pa.array(values, kind)
            topic.append(pa.table({"space": ["a"] * len(values), "timestamp": range(len(values)), "v": column}))
        server.catalog.seal("t")
        answer = httpx.get(f"{server.url}/v1/topics/t/segments/{topic.segments()[0]['segment']}/columns")
        assert answer.status_code == 200, answer.text
    (found,) = (each for each in answer.json()["columns"] if each["name"] == "v")
    assert (found["least"], found["greatest"]) == expected
    assert found["nulls"] == sum(value is None for value in (*first, *second))


@pytest.mark.parametrize("kind", [pa.int64(), pa.duration("us"), pa.float16(), pa.decimal128(20, -1)], ids=str)
def test_ends_of_several_batches(kind):
    """The least and greatest value are those of all batches."""
    seen = _Seen(kind)
    for values in ([20, 30], [10], [None], [40, 20]):
        given = [Decimal(each) if pa.types.is_decimal(kind) and each else each for each in values]
        seen.add(pa.array(given, pa.float32()).cast(kind) if kind == pa.float16() else pa.array(given, kind))
    summary = seen.summary("v", 6)
    assert [float(summary[name]) for name in ("least", "greatest")] == [10, 40]
    assert summary["nulls"] == 1
