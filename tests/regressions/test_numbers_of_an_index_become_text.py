"""Numbers of an indexed column became text permanently if the first events had none."""

from __future__ import annotations

import pyarrow as pa
import pytest

import aggregator

WITHOUT = {
    "absent": [{"space": "a", "timestamp": 1}],
    "null": [{"space": "a", "timestamp": 1, "status": None}],
    "Arrow": pa.table({"space": ["a"], "timestamp": [1], "status": pa.nulls(1)}),
}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("how", WITHOUT)
def test_events_without_a_value_first(tmp_path, how, sealed):
    """The first value determines the type, and is found, whichever segment has the events without a value."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t", indexes=["status"])
        topic.append(WITHOUT[how])
        if sealed:
            catalog.seal()
        assert topic.scan_index("status", 500).count() == topic.scan_index("status", "n/a").count() == 0
        assert topic.index_values("status") == {}
        topic.append([{"space": "a", "timestamp": 2, "status": 500}, {"space": "a", "timestamp": 3}])
        if sealed:
            catalog.seal()
        topic.append([{"space": "a", "timestamp": 4}, {"space": "b", "timestamp": 5, "status": 404}])
        assert topic.scan().schema.field("status").type == pa.int64()
        assert [event.timestamp for event in topic.scan_index("status", 500)] == [2]
        assert topic.index_values("status") == {404: 1, 500: 1}
        assert catalog.sql("SELECT status, count(*) FROM t GROUP BY 1 ORDER BY 1").fetchall() == [
            (404, 1),
            (500, 1),
            (None, 3),
        ]
        assert catalog.sql("SELECT space FROM t WHERE status >= 500").fetchall() == [("a",)]
        assert catalog.query("SELECT FROM topic = t WHERE status < 500").count() == 1
