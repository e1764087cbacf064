"""LQL statements failed with Arrow's messages if they counted by lists, and showed objects in Python's notation."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import aggregator
from aggregator import forward, lql

FAR = 3 * 10**17  # a time beyond Python's range, in microseconds
COLUMNS = {
    "list": (pa.list_(pa.string()), ["a", None], '["a",null]'),
    "struct": (pa.struct([("at", pa.timestamp("us", "UTC"))]), {"at": FAR}, '{"at":"11476-08-15T05:20:00.000000Z"}'),
    "map": (pa.map_(pa.string(), pa.time64("ns")), [("k", 1)], '{"k":"00:00:00.000000001"}'),
}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_with_parts(tmp_path, name, sealed):
    """Nested columns are JSON as keys, in conditions, and as fields of records."""
    kind, value, text = COLUMNS[name]
    with aggregator.open(tmp_path) as catalog:
        column = pa.array([value, None, value], kind)
        catalog.create_topic("t").append(pa.table({"space": ["a"] * 3, "timestamp": [1, 2, 3], "x": column}))
        if sealed:
            catalog.seal()
        groups = catalog.query("SELECT COUNT GROUP BY x").to_pylist()
        assert groups == [{"x": text, "count": 2}, {"x": None, "count": 1}]
        assert catalog.query("SELECT DISTINCT x WHERE x PREFIX 'n'").num_rows == 0
        assert catalog.query("SELECT COUNT(x), COUNT(DISTINCT x)").to_pylist() == [
            {"COUNT(x)": 2, "COUNT(DISTINCT x)": 1}
        ]
        found = catalog.query(f"SELECT WHERE x CONTAINS {json.dumps(text)}")
        assert [event.timestamp for event in found] == [1, 3]
        with pytest.raises(lql.LqlError, match="takes numbers"):
            catalog.query("SELECT SUM(x)")
        (batch, *_) = found.batches()
        assert json.loads(str(forward.fields_as_json(batch, forward.columns_of(batch))[0])) == {"x": text}


def test_intervals(tmp_path):
    """Intervals can be counted by, but have no order."""
    months = pa.array([(1, 2, 3), (1, 2, 3), None], pa.month_day_nano_interval())
    with aggregator.open(tmp_path) as catalog:
        catalog.create_topic("t").append(pa.table({"space": ["a"] * 3, "timestamp": [1, 2, 3], "x": months}))
        assert sorted(group["count"] for group in catalog.query("SELECT COUNT GROUP BY x").to_pylist()) == [1, 2]
        with pytest.raises(lql.LqlError, match="MAX takes numbers"):
            catalog.query("SELECT MAX(x)")
