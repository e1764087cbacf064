"""Acknowledged events come back exactly: tables of any type and layout, whatever else their topic contains.

EXACT_HISTORIES=20000 runs that many; docs/reliability.md has the full figure.
"""

from __future__ import annotations

import json
import os
import tempfile
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from arrow_layouts import exact, laid_out, same, same_json
from arrow_strategies import PLAIN_TYPES, make_array, types, values
from effort import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

import aggregator
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http
from esformat import InvalidEventError

HISTORIES = int(os.environ.get("EXACT_HISTORIES") or example_count(150))
NAMES = ["v", "w", "tags", "é\0", "V", "kind"]


class Road:
    """A catalog with one topic and its acknowledged events: a mapping of values for each record index."""

    def __init__(self, root: Path) -> None:
        self.root, self.given = root, []
        self.catalog = aggregator.open(root)
        self.topic = self.catalog.create_topic("t", indexes=["kind"])
        self.erased: set[int] = set()

    def append(self, table: pa.Table, values: dict[str, list[Any]]) -> bool:
        """Append a table with these values. Returns False if it is refused; then nothing is stored."""
        before = len(self.given)
        try:
            receipt = self.topic.append(table)
        except InvalidEventError:
            assert self.topic.scan().count() == before - len(self.erased)
            return False
        rows = len(table)
        assert (receipt.first, receipt.last) == (before, before + rows - 1)
        self.given += [{name: column[row] for name, column in values.items()} for row in range(rows)]
        return True

    def reopen(self) -> None:
        self.catalog.close()
        self.catalog = aggregator.open(self.root)
        self.topic = self.catalog.topic("t")

    def check(self) -> None:
        """Check all events, by record index and by time, as columns and as events."""
        left = [row for row in range(len(self.given)) if row not in self.erased]
        names = [name for name in NAMES if name in self.topic.scan().column_names]
        by_time = self.topic.scan(columns=["record_index", *names]).to_table()
        for table in (self.topic.read().to_table(), by_time.sort_by("record_index")):
            table.validate(full=True)
            assert table["record_index"].to_pylist() == left
            for name in table.column_names:
                if name in NAMES:
                    found = exact(table[name])
                    for row, value in zip(left, found, strict=True):
                        wanted = self.given[row].get(name)
                        assert same(wanted, value), (name, row, wanted, value, table.schema.field(name).type)
        found = self.topic.scan_index("kind", "x", columns=["record_index"]).to_table()["record_index"].to_pylist()
        assert sorted(found) == [row for row in left if self.given[row]["kind"] == ("text", "x")]
        assert self.topic.scan().count() == len(left)
        assert len(list(self.topic.scan())) == len(left)
        assert not self.catalog.problems()


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.Table, dict[str, list[Any]]]:
    """A table and its values, with columns of any type and layout."""
    rows = draw(st.integers(1, 6))
    columns: dict[str, Any] = {}
    given: dict[str, list[Any]] = {}
    for name in draw(st.lists(st.sampled_from(NAMES[:-1]), max_size=3, unique=True)):
        kind = draw(st.sampled_from(PLAIN_TYPES) | types())
        item = values(kind) if draw(st.booleans()) else st.none() | values(kind)
        array = make_array(draw(st.lists(item, min_size=rows, max_size=rows)), kind)
        given[name] = exact(array)
        laid = laid_out(draw, array)
        laid.validate(full=True)
        columns[name] = laid
        if rows > 1 and draw(st.booleans()):
            cut = draw(st.integers(0, rows))
            columns[name] = pa.chunked_array([laid.slice(0, cut), laid.slice(cut), laid.slice(0, 0)], laid.type)
    kinds = draw(st.lists(st.sampled_from(["x", "y", None]), min_size=rows, max_size=rows))
    given["kind"] = exact(pa.array(kinds, pa.string()))
    columns["kind"] = laid_out(draw, pa.array(kinds, pa.string()))
    keys = {
        "space": laid_out(draw, pa.array(draw(st.lists(st.sampled_from("abc"), min_size=rows, max_size=rows)))),
        "timestamp": pa.array(draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows)), pa.int64()),
    }
    return pa.table(keys | columns), given


STEPS = st.lists(batches() | st.sampled_from(["seal", "compact", "reopen", "erase", "check"]), min_size=1, max_size=8)


@settings(max_examples=HISTORIES)
@given(steps=STEPS)
def test_what_is_acknowledged_comes_back(steps):
    """Events come back whatever is appended, sealed, merged, erased or reopened before and after."""
    with tempfile.TemporaryDirectory() as folder:
        road = Road(Path(folder) / "data")
        spaces: list[str] = []
        try:
            for step in steps:
                if step == "seal":
                    road.catalog.seal()
                elif step == "compact":
                    road.catalog.compact()
                elif step == "reopen":
                    road.reopen()
                elif step == "erase":
                    road.topic.erase("a")
                    road.erased |= {row for row, space in enumerate(spaces) if space == "a"}
                elif step == "check":
                    road.check()
                else:
                    table, values = step
                    if road.append(table, values):
                        spaces += table["space"].to_pylist()
            road.check()
            road.catalog.seal()
            road.check()
            road.catalog.compact()
            road.reopen()
            road.check()
        finally:
            road.catalog.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    settings = Settings(http=Http(bind="127.0.0.1:0"))
    with (
        aggregator.open(tmp_path_factory.mktemp("road")) as catalog,
        RunningServer(catalog, settings) as running,
        httpx.Client() as client,
    ):
        yield catalog, client, f"{running.url}/v1/topics"


TOPICS = count()


@settings(max_examples=max(1, HISTORIES // 5))
@given(sent=st.lists(batches(), min_size=1, max_size=4))
def test_over_http(server, sent):
    """Arrow streams over HTTP come back as Arrow and as JSON lines, before and after sealing."""
    catalog, client, url = server
    url = f"{url}/t{next(TOPICS)}"
    client.put(url, json={"indexes": ["kind"]}).raise_for_status()
    stored: list[dict[str, Any]] = []
    for given_table, given_values in sent:
        table = given_table.append_column("n", pa.array(range(len(stored), len(stored) + len(given_table))))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        head = {"Content-Type": "application/vnd.apache.arrow.stream"}
        answer = client.post(f"{url}/events", content=sink.getvalue().to_pybytes(), headers=head)
        assert answer.status_code in (200, 400), answer.text
        if answer.status_code == 200:
            stored += [{name: column[row] for name, column in given_values.items()} for row in range(len(table))]
    for _ in range(2):
        answer = client.get(f"{url}/events", headers={"Accept": "application/vnd.apache.arrow.stream"})
        found = pa.ipc.open_stream(answer.raise_for_status().content).read_all()
        lines = client.get(f"{url}/events", headers={"Accept": "application/x-ndjson"}).raise_for_status().text
        read = [json.loads(line, parse_float=Decimal) for line in lines.split("\n") if line]
        assert len(found) == len(read) == len(stored)
        if not stored:
            return
        wanted = [stored[row] for row in found["n"].to_pylist()]
        for name in set(NAMES) & set(found.column_names):
            for row, value in enumerate(exact(found[name])):
                assert same(wanted[row].get(name), value), (name, value)
                if value is not None and value[0] not in ("map", "interval"):  # JSON keys are text
                    assert same_json(value, read[row][name]), (name, value, read[row][name])
        catalog.seal()
