"""Events were acknowledged that no segment could store: their partition was never sealed again. Others were changed."""

from __future__ import annotations

import json
import urllib.request

import pyarrow as pa
import pytest
from effort import long

import aggregator
import esformat
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http

NULLS = {
    "list of nulls": [None, None],
    "lists of nulls": [[None], [None, None]],
    "structs of nulls": [{"a": None}],
    "empty struct with an empty list": {"a": {}, "b": []},
}


@pytest.mark.parametrize("value", NULLS.values(), ids=NULLS)
def test_json_lines_without_values(tmp_path, value):
    """JSON lines with empty values are accepted over HTTP, sealed, and read back unchanged."""
    line = json.dumps({"space": "a", "timestamp": 1, "tags": value}).encode()
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        with RunningServer(catalog, Settings(http=Http(bind="127.0.0.1:0"))) as server:
            url = f"{server.url}/v1/topics/t/events"
            head = {"Content-Type": "application/x-ndjson"}
            for _ in range(2):
                with urllib.request.urlopen(urllib.request.Request(url, line, head)) as answer:
                    assert answer.status == 200
            catalog.seal()
            assert topic.stats()["unsealed_rows"] == 0
            asked = urllib.request.Request(url, headers={"Accept": "application/x-ndjson"})
            with urllib.request.urlopen(asked) as answer:
                found = [json.loads(row) for row in answer.read().splitlines()]
        assert [row["tags"] for row in found] == [value, value]
        assert [event.columns["tags"] for event in topic.scan()] == [value, value]
        topic.erase("a")
        catalog.compact()
        assert topic.traces("a").gone


@long
def test_more_columns_than_a_segment_has(tmp_path):
    """Batches that together have too many columns are sealed separately."""
    names = [f"c{number}" for number in range(4200)]
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        for first in range(0, 4200, 1400):
            table = pa.table({"space": ["a"], "timestamp": [first]} | {n: [n] for n in names[first : first + 1400]})
            topic.append(table)
        catalog.seal()
        assert topic.stats()["unsealed_rows"] == 0
        assert topic.scan(columns=["c0", "c4199"]).to_table().to_pylist() == [
            {"c0": "c0", "c4199": None}, {"c0": None, "c4199": None}, {"c0": None, "c4199": "c4199"},
        ]  # fmt: skip


@pytest.mark.parametrize("columns", [4093, pytest.param(4092, marks=long)])
def test_the_record_index_is_a_column_too(tmp_path, columns):
    """A batch with the maximum number of columns, which leaves none for the record index, is refused."""
    table = pa.table({"space": ["a"], "timestamp": [1]} | {f"c{number}": [number] for number in range(columns)})
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        if columns == 4093:
            with pytest.raises(esformat.InvalidEventError, match=r"4096 columns, .* exceed the limit of 4095"):
                topic.append(table)
            assert topic.stats()["unsealed_rows"] == 0
        else:
            topic.append(table)
            catalog.seal()
            assert topic.scan(columns=["c0", "c4091"]).to_table().to_pylist() == [{"c0": 0, "c4091": 4091}]


def test_lists_that_are_views_within_a_slice(tmp_path):
    """List views within a slice are stored right; Arrow's cast returned `[[12, 13], [14], []]`."""
    kind = pa.struct([("v", pa.list_view(pa.int64()))])
    views = pa.array([{"v": [10, 11]}, {"v": [12, 13]}, {"v": [14]}, {"v": [15]}], kind).slice(1)
    views.validate(full=True)
    wanted = [{"v": [12, 13]}, {"v": [14]}, {"v": [15]}]
    table = pa.table({"space": ["a"] * 3, "timestamp": [1, 2, 3], "x": views})
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        topic.append(table)
        assert [event.columns["x"] for event in topic.scan()] == wanted
    with esformat.create(tmp_path / "a.esdb", schema=table.schema) as writer:
        writer.add_table(table)
    with esformat.open(tmp_path / "a.esdb") as segment:
        assert segment.scan().to_table()["x"].to_pylist() == wanted


def test_views_within_maps(tmp_path):
    """Views within maps are stored; Arrow's cast sometimes crashed the process, depending on memory contents."""
    kind = pa.map_(pa.binary(), pa.large_list_view(pa.list_(pa.int64())))
    maps = pa.array([[(b"a", [[1], [2, 3]])], None, [(b"c", None), (b"d", [])]], kind)
    table = pa.table({"space": ["a"] * 3, "timestamp": [1, 2, 3], "x": maps}).slice(1)
    with esformat.create(tmp_path / "a.esdb", schema=table.schema) as writer:
        writer.add_table(table)
    with esformat.open(tmp_path / "a.esdb") as segment:
        assert segment.scan().to_table()["x"].to_pylist() == maps.to_pylist()[1:]


CHANGES = [
    ([{"a": 1, "b": ["x", None]}], '{"a":1,"b":["x",null]}'),
    ([{"a": {}, "b": []}], '{"a":{},"b":[]}'),
    ([[[], [{}]]], "[[],[{}]]"),
    ([[1.5, None]], "[1.5,null]"),
]


@pytest.mark.parametrize(("first", "read"), CHANGES, ids=[read for _, read in CHANGES])
def test_nested_values_of_a_column_that_became_text(tmp_path, first, read):
    """Nested values of a column that became text are read as JSON, not in Python's notation."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        topic.append([{"space": "a", "timestamp": 1, "x": first[0]}])
        topic.append([{"space": "a", "timestamp": 2, "x": "text"}])
        for _ in range(2):
            assert topic.scan().to_table()["x"].to_pylist() == [read, "text"]
            catalog.seal()


def test_fixed_lists_of_a_slice_of_fixed_lists(tmp_path):
    """Fixed-size lists in a slice of such lists are copied first: `take` and `filter` of Arrow 26 misread them."""
    kind = pa.list_(pa.list_(pa.int64(), 2), 2)
    values = [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]]
    longer = pa.array([[0, 0], *(pair for value in values for pair in value)], pa.list_(pa.int64(), 2))
    sliced = pa.Array.from_buffers(kind, 3, [None], children=[longer.slice(1)])
    sliced.validate(full=True)
    assert sliced.to_pylist() == values
    table = pa.table({"space": ["b", "a", "b"], "timestamp": pa.array([3, 1, 2]), "v": sliced})
    with aggregator.open(tmp_path / "catalog") as catalog:
        topic = catalog.create_topic("t")
        topic.append(table)
        for _ in range(2):
            assert topic.read().to_table()["v"].to_pylist() == values
            assert topic.scan(space="b").to_table()["v"].to_pylist() == [values[2], values[0]]
            catalog.seal()
    with esformat.create(tmp_path / "events.esdb") as writer:
        writer.add_table(table)
    with esformat.open(tmp_path / "events.esdb") as segment:
        assert [event.columns["v"] for event in segment.scan()] == [values[1], values[2], values[0]]
