"""A list with null for a column of maps crashed the process, even that of a server: Arrow aborts on it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import aggregator
import esformat

PAIRS = pa.map_(pa.string(), pa.int64())
KINDS = [
    (PAIRS, [None]),
    (PAIRS, [("a", 1), None]),
    (pa.list_(PAIRS), [None, [None]]),
    (pa.struct([("m", PAIRS)]), {"m": [None]}),
    (pa.map_(pa.string(), PAIRS), {"a": [None]}),
]


@pytest.mark.parametrize(("kind", "value"), KINDS, ids=str)
def test_files_refuse_it(tmp_path, kind, value):
    """Files refuse it like any value that does not fit the column."""
    with esformat.create(tmp_path / "a.esdb", schema=pa.schema([("m", kind)])) as writer:
        with pytest.raises(esformat.InvalidEventError, match=r"column 'm' must be .*not null"):
            writer.add("a", None, timestamp=1, columns={"m": value})
        writer.add("a", None, timestamp=2, columns={"m": None})


@pytest.mark.parametrize(("kind", "value"), KINDS, ids=str)
def test_topics_keep_it(tmp_path, kind, value):
    """Topics keep it like any other JSON value."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("logs", pa.schema([("data", pa.binary()), ("m", kind)]))
        catalog.write({"app": "a"}, [{"ts": 1, "msg": "x", "m": value}])
        if ("a", 1) in value:
            with pytest.raises(esformat.InvalidEventError, match="column 'm' cannot be stored"):
                topic.append([{"space": "{app=a}", "timestamp": 2, "m": value}])
        else:
            topic.append([{"space": "{app=a}", "timestamp": 2, "m": value}])
            assert topic.scan().count() == 2
        assert "null" in str(topic.scan().to_table().to_pylist())
