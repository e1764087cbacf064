"""Python rows with values of several types: Arrow uses the type of the first and converts the others."""

from __future__ import annotations

import datetime as dt

import pandas as pd
import pyarrow as pa
import pytest

import aggregator
import esformat

DAY, NOON = dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 12, 30, tzinfo=dt.UTC)


@pytest.fixture
def topic(tmp_path):
    with aggregator.open(tmp_path / "data") as catalog:
        yield catalog.create_topic("t")


def read_back(topic, *batches):
    """The values of a column, appended in these batches."""
    for number, values in enumerate(batches):
        topic.append([{"space": "a", "timestamp": 9 * number + n, "v": value} for n, value in enumerate(values)])
    return topic.scan().to_table()["v"].to_pylist()


PAIRS = [
    (DAY, NOON, ["2024-01-01", "2024-01-01T12:30:00.000000Z"]),
    (NOON, 2.5, ["2024-01-01T12:30:00.000000Z", "2.5"]),
    (NOON, 2, ["2024-01-01T12:30:00.000000Z", "2"]),
    (DAY, 7.9, ["2024-01-01", "7.9"]),
    (dt.time(1), 1.5, ["01:00:00.000000", "1.5"]),
    (dt.timedelta(days=1), 3, ["86400000000", "3"]),
]


@pytest.mark.parametrize(("one", "other", "expected"), PAIRS)
def test_one_batch_is_as_two(tmp_path, one, other, expected):
    """The result is the same in one batch or two and in any order: text if there is no common type."""
    with aggregator.open(tmp_path / "data") as catalog:
        assert read_back(catalog.create_topic("a"), [one, other]) == expected
        assert read_back(catalog.create_topic("b"), [other, one]) == expected[::-1]
        assert read_back(catalog.create_topic("c"), [one], [other]) == expected
        assert read_back(catalog.create_topic("d"), [one], [one, other]) == [expected[0], *expected]


def test_a_time_without_a_zone_is_utc(tmp_path):
    """A time without a zone is UTC, before or after one with a zone, and in a typed column."""
    east = dt.datetime(2024, 1, 1, 17, 30, tzinfo=dt.timezone(dt.timedelta(hours=5)))
    with aggregator.open(tmp_path / "data") as catalog:
        for name, values in (("a", [east, NOON.replace(tzinfo=None)]), ("b", [NOON.replace(tzinfo=None), east])):
            assert read_back(catalog.create_topic(name), values) == [NOON.replace(minute=30)] * 2
        typed = catalog.create_topic("c", pa.schema([("v", pa.timestamp("us", "UTC"))]))
        assert read_back(typed, [NOON.replace(tzinfo=None)]) == [NOON]


def test_a_value_in_a_list(topic):
    """A list of values without a common type is refused with the reason."""
    with pytest.raises(esformat.InvalidEventError, match=r"column 'v' cannot be stored: .*several types"):
        read_back(topic, [[DAY, 7.9]])
    assert read_back(topic, [[DAY, None]]) == [[DAY, None]]


def test_nanoseconds(topic):
    """Nanoseconds of pandas are kept."""
    moment = pd.Timestamp("2024-01-01T00:00:00.123456789", tz="UTC")
    assert read_back(topic, [moment, None]) == [moment, None]
    topic.append([{"space": "b", "timestamp": 1, "d": pd.Timedelta("1ns")}])
    assert topic.scan(space="b").to_table()["d"].to_pylist() == [pd.Timedelta("1ns")]


def test_a_list_is_no_object(topic):
    """An empty list in a column of objects stays a list, and is not an object without members."""
    assert read_back(topic, [{"a": 1}], [[]]) == ['{"a":1}', "[]"]
