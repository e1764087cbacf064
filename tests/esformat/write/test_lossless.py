"""A value for a column of another type is stored in full or refused, however it is added."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import aggregator
import esformat
from esformat.write.lossless import are_misread, losing
from esformat.write.plain_array import plain_column as cast_exactly

NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=dt.UTC)
PAIR = pa.struct([("a", pa.int64())])
LOST = [
    (pa.int64(), 1.5),
    (pa.uint8(), Decimal("0.5")),
    (pa.float64(), False),
    (pa.float64(), np.uint64(2**64 - 1)),
    (pa.list_(pa.float32()), [1.5, True]),
    (pa.timestamp("s", "UTC"), NOON),
    (pa.timestamp("us", "UTC"), 1.5),
    (pa.date32(), NOON),
    (pa.time32("s"), NOON.time()),
    (pa.duration("ms"), dt.timedelta(microseconds=1)),
    (PAIR, {"a": 1, "other": 2}),
    (PAIR, [("a", 1.5)]),
    (pa.list_(pa.string()), "ab"),
    (pa.list_(pa.uint8()), b"ab"),
    (pa.list_(PAIR), [{"a": 1}, {"other": 2}]),
    (pa.map_(pa.string(), pa.int64()), {"k": 1.5}),
]
KEPT = [
    (pa.int64(), 2.0, 2),
    (pa.float32(), 0.1, pa.scalar(0.1, pa.float32()).as_py()),
    (pa.timestamp("ms", "UTC"), NOON, NOON),
    (pa.date32(), dt.date(2026, 3, 1), dt.date(2026, 3, 1)),
    (pa.date32(), dt.datetime(2026, 3, 1), dt.date(2026, 3, 1)),
    (pa.duration("s"), dt.timedelta(days=-1), dt.timedelta(days=-1)),
    (PAIR, {}, {"a": None}),
    (pa.list_(pa.list_(pa.int64())), [[1.0], None], [[1], None]),
    (pa.map_(pa.string(), pa.int64()), [("k", 1)], [("k", 1)]),
    (pa.decimal128(5, 2), 7, Decimal("7.00")),
]  # fmt: skip


def _type_of(value):
    return str(value) if isinstance(value, pa.DataType) else str(value.type)


def write(path, kind, value):
    with esformat.create(path, schema=pa.schema([("v", kind)])) as writer:
        writer.add("a", None, timestamp=1, columns={"v": value})
    with esformat.open(path) as segment:
        return segment.scan().to_table()["v"][0].as_py()


def append(path, kind, value):
    with aggregator.open(path) as catalog:
        catalog.create_topic("t", pa.schema([("data", pa.binary()), ("v", kind)]))
        catalog.write({"a": "1"}, [{"ts": 1, "v": value}], "t")
        (row,) = catalog.topic("t").scan().to_table().to_pylist()
        return row["v"], [name for name, _ in row.get("fields") or ()]


@pytest.mark.parametrize(("kind", "value"), LOST, ids=str)
def test_part_of_a_value_is_not_stored(tmp_path, kind, value):
    """Values of which Arrow would drop a part are refused by files; streams keep them as text beside the column."""
    assert pa.scalar(value, kind).is_valid
    assert losing(kind)(value)
    with pytest.raises(esformat.InvalidEventError):
        write(tmp_path / "a.esdb", kind, value)
    assert append(tmp_path / "c", kind, value) == (None, ["v"])


ODD = [
    (pa.list_(pa.float32()), [1.5, np.uint64(2**64 - 1)]),
    (pa.int64(), np.bool_(True)),
    (pa.timestamp("us"), np.bool_(True)),
    (pa.timestamp("us"), True),
    (pa.struct([("a", pa.float64())]), {"a": np.bool_(True)}),
    (pa.map_(pa.string(), PAIR), {"k": {"a": 1.5}}),
    (pa.map_(pa.string(), PAIR), [("k", {"b": 1})]),
    (pa.list_(pa.date32()), [None, NOON]),
    (pa.timestamp("us"), pd.Timestamp("2026-01-01T00:00:00.000000001")),
]


@pytest.mark.parametrize(("kind", "value"), [*LOST, *ODD], ids=str)
def test_what_is_lost_is_misread(kind, value):
    """Values that lose a part are also reported as misread in types that can be misread; null is neither."""
    misread = pa.types.is_nested(kind) or pa.types.is_temporal(kind) or pa.types.is_floating(kind)
    plain = kind in (pa.list_(pa.string()), pa.list_(pa.uint8()), pa.map_(pa.string(), pa.int64()))  # not misread
    assert are_misread([None, value], kind) == (misread and not plain)
    assert losing(kind)(value)
    assert not losing(kind)(None)
    assert not are_misread([None], kind)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("us"), 5),
        (pa.date32(), 5),
        (pa.time64("us"), 5),
        (pa.duration("us"), 5),
        (pa.list_(pa.timestamp("us")), [5]),
        (pa.map_(pa.string(), pa.date32()), {"k": 5}),
        (PAIR, [("a", 1)]),
        (pa.list_(PAIR), [[("a", 1)]]),
        (pa.struct([("t", pa.date32())]), {"t": 5}),
    ],
    ids=str,
)
def test_what_is_only_misread(kind, value):
    """Values that Arrow keeps in full, but in another meaning, are reported as misread only."""
    assert pa.scalar(value, kind).is_valid
    assert not losing(kind)(value)
    assert are_misread([value], kind)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("ns"), pd.Timestamp("2026-01-01T00:00:00.000000001")),
        (pa.timestamp("us"), np.datetime64("2026-01-01")),
        (pa.timestamp("us", "UTC"), pa.scalar(NOON)),
        (pa.list_(pa.timestamp("us", "UTC")), [NOON, None]),
        (pa.struct([("t", pa.date32())]), {"t": NOON.date()}),
        (pa.struct([("t", pa.date32())]), {}),
        (pa.float64(), 1),
    ],
    ids=str,
)
def test_what_is_read_as_it_is(kind, value):
    """Ordinary values are neither lost nor misread."""
    assert not losing(kind)(value)
    assert not are_misread([value], kind)


@pytest.mark.parametrize(("kind", "value", "stored"), KEPT, ids=str)
def test_whole_values_are_stored(tmp_path, kind, value, stored):
    """Values without loss are stored; in files a float becomes the nearest one."""
    assert write(tmp_path / "a.esdb", kind, value) == stored
    rounded = kind == pa.float32() and stored != value
    assert append(tmp_path / "c", kind, value) == ((None, ["v"]) if rounded else (stored, []))


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (pa.decimal128(5, 2), pa.array([1.25, 1.234])),
        (pa.list_(pa.decimal128(5, 2)), pa.array([[1.234]])),
        (PAIR, pa.array([{"a": 1, "other": 2}])),
        (PAIR, pa.array([{"other": 1}])),
        (pa.list_(PAIR), pa.array([[{"a": 1, "other": 2}]])),
        (pa.float32(), pa.array([1.5, 1e300])),
        (pa.float16(), pa.array([1e6, None], pa.float32())),
        (pa.float64(), pa.array(["inf", "1e400"])),
        (pa.bool_(), pa.array([0, 1, 5])),
        (pa.bool_(), pa.array([0.5])),
        (pa.bool_(), pa.array([float("nan")])),
        (pa.date32(), pa.array([NOON])),
        (pa.date64(), pa.array([NOON.replace(tzinfo=None)])),
        (pa.date32(), pa.array([2**62], pa.timestamp("s"))),
        (pa.date32(), pa.array([dt.datetime(2026, 3, 1)], pa.timestamp("s", "America/New_York"))),
        (pa.time64("us"), pa.array([NOON.replace(tzinfo=None)])),
    ],
    ids=_type_of,
)
def test_columns_that_would_lose(kind, column):
    """Casts of columns that would lose members, digits, days or times of day, or overflow to infinity, are refused."""
    assert column.cast(kind).type == kind
    with pytest.raises(pa.ArrowInvalid):
        cast_exactly(column, kind)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (pa.decimal128(5, 2), pa.array([1.25, 0.1, None])),
        (pa.float32(), pa.array([0.1, float("inf"), float("nan"), None])),
        (pa.float16(), pa.array([0.5, float("inf"), None])),
        (pa.float64(), pa.array(["1e308", "-inf", "Infinity", None])),
        (pa.bool_(), pa.array([0, 1, None])),
        (pa.bool_(), pa.array([-0.0, 1.0, None])),
        (pa.bool_(), pa.array(["true", "0", None])),
        (pa.date32(), pa.array([dt.datetime(2026, 3, 1), None])),
        (pa.date32(), pa.array([dt.datetime(2026, 3, 1, 5)], pa.timestamp("s", "America/New_York"))),
        (pa.time64("us"), pa.nulls(1, pa.timestamp("us"))),
        (pa.float64(), pa.array([0.5, float("inf"), None], pa.float16())),
        (pa.struct([("b", pa.string()), ("a", pa.int64())]), pa.array([{"a": 1}, None])),
        (PAIR, pa.array([{"a": 1, "other": None}, None])),
        (pa.list_(pa.int64()), pa.array([[1.0], None])),
    ],
    ids=_type_of,
)
def test_columns_that_do_not_lose(kind, column):
    """A lossless cast equals Arrow's own."""
    assert str(cast_exactly(column, kind)) == str(column.cast(kind))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("digits", [pa.decimal32(9, 2), pa.decimal128(12, 2), pa.decimal256(76, 2)], ids=str)
def test_decimals_become_the_nearest_float(kind, digits):
    """Arrow's own cast makes -99.99000000000001 of -99.99."""
    numbers = [Decimal(each).scaleb(-2) for each in (-9999, 29, 841, 123456789, *range(-5000, 5000, 7))]
    made = cast_exactly(pa.array([*numbers, None], digits), kind)
    assert made.to_pylist() == [*(pa.scalar(float(each), kind).as_py() for each in numbers), None]
