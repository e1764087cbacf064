"""What is acknowledged comes back exactly: tables of any type in any layout, whatever else their topic holds.

EXACT_HISTORIES=20000 runs that many; the full figure is in docs/reliability.md.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from arrow_layouts import exact, laid_out, same
from arrow_strategies import PLAIN_TYPES, make_array, types, values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aggregator
from esformat import InvalidEventError

HISTORIES = int(os.environ.get("EXACT_HISTORIES", "150"))
NAMES = ["v", "w", "tags", "é\0", "V"]
SETTINGS = settings(
    max_examples=HISTORIES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


class Road:
    """A catalog with one topic, and what it acknowledged: a mapping of values for each record index."""

    def __init__(self, root: Path, indexes: list[str]) -> None:
        self.root, self.given = root, []
        self.catalog = aggregator.open(root)
        self.topic = self.catalog.create_topic("t", indexes=indexes)
        self.erased: set[int] = set()

    def append(self, table: pa.Table, values: dict[str, list[Any]]) -> bool:
        """Append a table that holds these values; False where it was refused, and then nothing is stored."""
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
        """Everything, by record index and by time, as columns and as events."""
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
        assert self.topic.scan().count() == len(left)
        assert len(list(self.topic.scan())) == len(left)
        assert not self.catalog.problems()


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.Table, dict[str, list[Any]]]:
    """A table and its values; columns of any type and layout."""
    rows = draw(st.integers(1, 6))
    columns: dict[str, Any] = {}
    given: dict[str, list[Any]] = {}
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True)):
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
    keys = {
        "space": laid_out(draw, pa.array(draw(st.lists(st.sampled_from("abc"), min_size=rows, max_size=rows)))),
        "timestamp": pa.array(draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows)), pa.int64()),
    }
    return pa.table(keys | columns), given


STEPS = st.lists(batches() | st.sampled_from(["seal", "compact", "reopen", "erase", "check"]), min_size=1, max_size=8)


@SETTINGS
@given(steps=STEPS)
def test_what_is_acknowledged_comes_back(steps):
    """Whatever was appended before and after it, sealed, merged, erased beside it, or opened again."""
    with tempfile.TemporaryDirectory() as folder:
        road = Road(Path(folder) / "data", [])
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
