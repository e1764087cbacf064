"""JSON lines have no NaN and no infinity; a warning says so whenever one becomes null."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

import esformat
from aggregator.cli import root as aggregator_root
from esformat.cli import root
from esformat.convert import write_batches

NAN, INF = float("nan"), float("inf")
PAIRS = pa.map_(pa.string(), pa.float64())
COLUMNS = [
    (pa.array([NAN, None, 1.0, INF, -INF]), 3),
    (pa.array([NAN, 1.0], pa.float32()), 1),
    (pa.array([[NAN, 1.0], None, [INF]]), 2),
    (pa.array([[NAN, 1.0], None], pa.list_(pa.float64(), 2)), 1),
    (pa.array([{"a": NAN}, None, {"a": 1.0}]), 1),
    (pa.array([[("k", NAN)], None, [("k", 1.0), ("l", INF)]], PAIRS), 2),
    (pa.array([[("k", NAN)], [("k", 1.0)]], PAIRS).slice(1), 0),
    (pa.array([[{"a": [NAN]}], []]), 1),
    (pa.array([1.5, None]), 0),
    (pa.array(["NaN"]), 0),
    (pa.array([1, 2]), 0),
    (pa.nulls(2), 0),
]


@pytest.mark.parametrize(("column", "count"), COLUMNS, ids=lambda value: str(getattr(value, "type", value)))
def test_each_type(column, count):
    """One warning per column has the number of such values; without any there is none. CSV preserves them."""
    told: list[str] = []
    batch = pa.record_batch({"x": column})
    write_batches([batch], batch.schema, "jsonl", io.BytesIO(), told.append)
    assert told == (
        [f"column 'x': JSON has no NaN and no infinity; null was written for {count} of them"] if count else []
    )
    if not pa.types.is_nested(column.type):
        write_batches([batch], batch.schema, "csv", io.BytesIO(), told.append)
        assert len(told) == bool(count)


def test_the_command_tells(tmp_path, capfd):
    """`esdb scan` writes its result to stdout and the warning to stderr."""
    with esformat.create(tmp_path / "x.esdb") as writer:
        writer.add_table(pa.table({"space": ["a", "b"], "timestamp": [1, 2], "x": [NAN, 1.5]}))
    assert root.run(["scan", str(tmp_path / "x.esdb"), "--format", "jsonl"]) == 0
    told = capfd.readouterr()
    assert len(told.out.splitlines()) == 2
    assert "column 'x': JSON has no NaN and no infinity; null was written for 1 of them" in told.err


PAYLOADS = [
    ("n.parquet", ["--data-json"], {"x": [NAN, 1.5, INF], "y": [1, 2, 3]}, "column 'x': {} 2 of them"),
    ("n.csv", ["--data-json"], {"x": ["NaN", "1.5", "-inf"]}, "column 'x': {} 2 of them"),
    ("n.parquet", [], {"data": [{"a": NAN}, {"a": 1.5}, None]}, "column 'data': {} 1 of them"),
    ("n.parquet", ["--type", "x=string"], {"x": [[NAN, INF], [1.5], None]}, "column 'x': {} 2 of them"),
    ("n.parquet", ["--index", "x"], {"x": [[NAN], [1.5], None]}, "column 'x': {} 1 of them"),
    ("n.parquet", ["--data-json"], {"x": [0.5, 1.5, None]}, None),
    ("n.parquet", [], {"x": [NAN, INF, None], "data": [NAN, 1.5, None]}, None),  # nothing becomes JSON
]


@pytest.mark.parametrize(("name", "options", "columns", "told"), PAYLOADS, ids=range(len(PAYLOADS)))
def test_what_becomes_json(tmp_path, capfd, name, options, columns, told):
    """The warning also appears when columns become a JSON payload or text, for `esdb write` and `aggregator import`."""
    table = pa.table({"space": ["a"] * 3, "timestamp": [1, 2, 3], **columns})
    with (tmp_path / name).open("wb") as file:
        write_batches(table.to_batches(), table.schema, name.split(".")[1], file)
    expected = told and told.format("JSON has no NaN and no infinity; null was written for")
    assert aggregator_root.run(["init", str(tmp_path / "catalog")]) == 0
    for run in (root.run, aggregator_root.run)[: 1 if "--index" in options else 2]:  # topics have no such index
        verb = ["write", str(tmp_path / "x.esdb")] if run is root.run else ["import", str(tmp_path / "catalog"), "t"]
        assert run([*verb, str(tmp_path / name), "--timestamp-format", "s", *options]) == 0
        printed = capfd.readouterr()
        assert (expected or "") in printed.out + printed.err
        assert ("infinity" in printed.out + printed.err) == bool(expected)
