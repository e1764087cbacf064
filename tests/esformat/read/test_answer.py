"""Queries and results are the same for every container of events."""

from __future__ import annotations

import inspect

import pyarrow as pa
import pytest

import esformat
from esformat import customerio
from esformat.read.answer import Answer


@pytest.fixture(params=["segment", "space", "files", "space of files", "archive", "space of an archive"])
def place(request, tmp_path):
    """Three events in two spaces, in an open container."""
    files = esformat.create(tmp_path / "a.esdb", indexes=["kind"]), customerio.create(tmp_path / "a.go")
    for file in files:
        with file as writer:
            for n in range(3):
                kind = "odd" if n % 2 else "even"
                writer.add("aab"[n], b"%d" % n, timestamp=1_000_000 * n, indexes={"kind": kind})
    opened = {
        "segment": lambda: esformat.open(tmp_path / "a.esdb"),
        "files": lambda: esformat.open_many([tmp_path / "a.esdb"]),
        "archive": lambda: customerio.open(tmp_path / "a.go"),
    }
    kind = request.param.removeprefix("space of ").removeprefix("an ")
    with opened["segment" if kind == "space" else kind]() as file:
        yield file["a"] if "space" in request.param else file


def test_one_signature(place):
    """`scan` and `scan_index` have the same signature everywhere."""
    for verb in ("scan", "scan_index"):
        wanted = inspect.signature(getattr(esformat.Segment, verb)).parameters
        assert inspect.signature(getattr(type(place), verb)).parameters == wanted


def test_one_answer(place):
    """Every form of a result has the same events, also when read again."""
    for scan in (place.scan(), place.scan_index("kind", "even"), place.scan(reverse=True, limit=1)):
        assert isinstance(scan, Answer)
        events = [(event.timestamp, event.data) for event in scan]
        table = scan.to_table()
        assert table.schema == scan.schema == pa.table(scan).schema
        assert scan.column_names == tuple(table.schema.names)
        rows = list(zip(table["timestamp"].cast(pa.int64()).to_pylist(), table["data"].to_pylist(), strict=True))
        assert events == rows
        assert scan.count() == len(events) == len(scan.to_reader().read_all()) == len(scan.to_pandas())
        assert table.schema.names[0] in scan._repr_html_()


def test_questions_are_checked_at_once(place):
    """A wrong argument is refused immediately, not when the result is read."""
    for wrong in ({"limit": -1}, {"limit": True}, {"columns": "data"}, {"columns": []}, {"columns": ["x"]},
                  {"columns": ["data", "data"]}, {"grouping": 7}):  # fmt: skip
        with pytest.raises(esformat.UsageError):
            place.scan(**wrong)
    with pytest.raises(esformat.UnknownIndexError):
        place.scan_index("missing", "x")
    with pytest.raises(esformat.UsageError, match="not both"):
        place.scan_index({"kind": "odd"}, "odd")
