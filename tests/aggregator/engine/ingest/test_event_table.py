"""Events and mappings take the types of the topic's columns: a narrower value does not start a new schema family."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import aggregator
import esformat

DECLARED = pa.schema(
    [
        ("byte", pa.int8()), ("count", pa.uint64()), ("share", pa.float32()), ("at", pa.timestamp("ms", "Asia/Tokyo")),
        ("price", pa.decimal128(20, 4)), ("list", pa.list_(pa.int8())), ("clock", pa.time32("s")),
        ("of", pa.struct([("a", pa.int64()), ("b", pa.string())])), ("id", pa.binary(2)),
        ("fields", pa.map_(pa.string(), pa.string())),
    ]
)  # fmt: skip
VALUES = {
    "byte": 5, "count": 2**64 - 1, "share": 0.5, "at": dt.datetime(2026, 3, 1, tzinfo=dt.UTC), "price": Decimal("1.5"),
    "list": [1, None], "clock": dt.time(1, 2, 3), "of": {"a": 1, "b": None}, "id": b"xy", "fields": [("k", "v")],
}  # fmt: skip


@pytest.fixture
def catalog(tmp_path):
    with aggregator.open(tmp_path) as opened:
        yield opened


def row(**values):
    return {"space": "a", "timestamp": 1, **values}


def test_declared_types_stay(catalog):
    """Declared types stay for each column alone, for all together, and for events returned by a scan."""
    topic = catalog.create_topic("t", DECLARED)
    for name, value in VALUES.items():
        topic.append([row(**{name: value})])
    topic.append([row(**VALUES), row()])
    topic.append(list(topic.scan()))
    assert len({info.family for info in topic._topic.schemas.values()}) == 1
    table = topic.scan().to_table()
    assert table.select(DECLARED.names).schema == DECLARED
    for name, value in VALUES.items():
        assert [each for each in table[name].to_pylist() if each is not None] == [value] * 4


def test_values_that_do_not_fit_are_kept(catalog):
    """A value that does not fit its column goes to a wider one, as a table column of that type would."""
    topic = catalog.create_topic("t", pa.schema([("n", pa.int8()), ("at", pa.timestamp("s", "UTC"))]))
    late = dt.datetime(2026, 3, 1, microsecond=7, tzinfo=dt.UTC)
    for values in ({"n": 5}, {"n": 300}, {"n": 1.5}, {"at": late}):
        topic.append([row(**values)])
    table = topic.read().to_table()
    assert table["n"].to_pylist() == [5.0, 300.0, 1.5, None]
    assert table["at"].to_pylist() == [None, None, None, late]


def test_rows_of_a_frame(catalog):
    """Rows from `to_dict("records")`, with pandas' nulls, store what the frame stores, also if a column is all null."""
    pandas = pytest.importorskip("pandas")
    times = pandas.to_datetime(["2026-03-01", "2026-03-02"], utc=True)
    frame = pandas.DataFrame({"space": ["a", "b"], "timestamp": times, "seen": [times[0], pandas.NaT]})
    frame = frame.assign(n=pandas.array([1, None], dtype="Int64"), took=pandas.to_timedelta([1, None], unit="s"))
    catalog.create_topic("frame").append(frame)
    catalog.create_topic("rows").append(frame.to_dict("records"))
    catalog.create_topic("one").append(frame.to_dict("records")[1:])
    catalog.topic("one").append(frame.to_dict("records")[:1])
    whole = catalog.topic("frame").scan().to_table()
    for name in ("rows", "one"):
        assert catalog.topic(name).scan().to_table().equals(whole)


def test_a_map_in_a_family_of_its_own(catalog):
    """Only the declared column marks pairs as a map, also if another column starts a new schema family."""
    topic = catalog.create_topic("t", pa.schema([("m", pa.map_(pa.string(), pa.int64())), ("n", pa.int64())]))
    topic.append([row(m=[("k", 1)], n="text")])
    assert topic.scan(columns=["m", "n"]).to_table().to_pylist() == [{"m": [("k", 1)], "n": "text"}]
    with pytest.raises(esformat.InvalidEventError, match="'m' cannot be stored"):
        catalog.create_topic("of no columns").append([row(m=[("k", 1)])])


def test_a_retry_after_another_family_came(catalog):
    """A retry of mappings is recognised even if a later schema family would take their values without conversion."""
    topic = catalog.create_topic("t", pa.schema([("n", pa.int8())]))
    topic.append([row(n=5)], producer="p", sequence=1)
    topic.append(pa.table({key: [value] for key, value in row(n=5).items()}))
    assert len(topic._topic.schemas) == 2
    assert topic.append([row(n=5)], producer="p", sequence=1).duplicate
    with pytest.raises(aggregator.SequenceConflictError):
        topic.append([row(n=6)], producer="p", sequence=1)
    assert topic.scan().count() == 2


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ([1, 1.5, True], ["1", "1.5", "true"]),
        ([np.bool_(False), 1.5], ["false", "1.5"]),
        ([1.5, None, False], ["1.5", None, "false"]),
        ([[1.5, True]], ["[1.5,true]"]),
        ([{"a": 1.5}, {"a": True}], ['{"a":1.5}', '{"a":true}']),
    ],
)
def test_truth_is_no_number(catalog, values, read):
    """Booleans among the numbers of a batch are read as text, as across batches; Arrow would turn them into ones."""
    topic = catalog.create_topic("t")
    topic.append([row(n=value) for value in values])
    assert topic.read().to_table()["n"].to_pylist() == read


@pytest.mark.parametrize(("other", "read"), [(b"x", b"x"), ("x", b"x"), (1, b"1"), ([1], b"[1]")])
def test_an_id_among_other_values(catalog, other, read):
    """A UUID beside values of another kind in one batch is its 16 bytes, as in separate batches."""
    topic, apart = catalog.create_topic("t"), catalog.create_topic("apart")
    id_ = uuid.UUID(int=2**128 - 1)
    topic.append([row(n=id_), row(n=other)])
    for value in (id_, other):
        apart.append([row(n=value)])
    assert topic.read().to_table()["n"].to_pylist() == [id_.bytes, read]
    assert topic.read().to_table() == apart.read().to_table()


def test_times_and_numbers_of_numpy(catalog):
    """A batch may have NumPy's times and numbers in one column; `pa.array` ends the process for these."""
    topic = catalog.create_topic("t")
    values = (np.datetime64("2026-03-01T08:00:00"), np.float32(0.5), np.datetime64("NaT", "s"))
    topic.append([row(n=value) for value in values])
    assert topic.read().to_table()["n"].to_pylist() == ["2026-03-01T08:00:00", "0.5", None]


@pytest.mark.parametrize("given", [row(), "text", 5])
def test_no_events(catalog, given):
    """A single mapping instead of a list of events is refused with the accepted types."""
    with pytest.raises(esformat.InvalidEventError, match=r"cannot read events from \w+; pass a list of events: \[\{"):
        catalog.create_topic("t").append(given)
