"""Events with columns without a value were refused, or turned an index of numbers into one of text."""

from __future__ import annotations

import pyarrow as pa
import pytest

import aggregator


@pytest.fixture
def catalog(tmp_path):
    with aggregator.open(tmp_path) as catalog:
        yield catalog


def event(**columns):
    return {"space": "a", "timestamp": 1} | columns


def test_a_new_column_without_values(catalog):
    """An event is accepted despite an unknown column without a value."""
    topic = catalog.create_topic("t")
    topic.append([event(x=1)])
    topic.append([event(x=2, other=None)])
    topic.append(pa.table({"space": ["a"], "timestamp": [1], "other": pa.nulls(1)}))
    topic.append([event(other="now")])
    assert [(e.columns["x"], e.columns["other"]) for e in topic.scan()] == [
        (1, None), (2, None), (None, None), (None, "now"),
    ]  # fmt: skip


@pytest.mark.parametrize("sealed", [False, True])
def test_an_index_of_numbers_stays_one(catalog, sealed):
    """Events without a value of an index, omitted or null, do not change its type."""
    topic = catalog.create_topic("t", indexes=["code"])
    for batch in ([event(code=5)], [event()], [event(code=None)], [event(code=6, x="y")]):
        topic.append(batch)
        if sealed:
            catalog.seal()
    assert topic.scan().schema.field("code").type == pa.int64()
    assert [e.indexes.get("code") for e in topic.scan()] == [5, None, None, 6]
    assert topic.scan_index("code", 6).count() == 1


def test_an_index_without_any_value_yet(catalog):
    """The first events may have no value of an index: null is the same as an omitted column."""
    topic = catalog.create_topic("t", indexes=["type"])
    topic.append([event(type=None)])
    topic.append([event(type="page")])
    assert [e.indexes.get("type") for e in topic.scan()] == [None, "page"]
