"""Random appends, seals, crashes, reopenings and questions, against a list."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import aggregator

SPACES = ["", "a", "b", "b\0", "ü", "long-space-name-1", "long-space-name-2"]
GROUPINGS = ["", "web", "app"]
KINDS = [None, "page", "buy"]
PARTITIONS = ["0", "x/../y"]
TIMES = st.one_of(st.integers(-3, 12), st.sampled_from([-(2**63), 2**63 - 1, 0]))
ROWS = st.lists(
    st.tuples(st.sampled_from(SPACES), st.sampled_from(GROUPINGS), TIMES, st.sampled_from(KINDS)),
    min_size=1,
    max_size=12,
)
QUESTIONS = st.fixed_dictionaries(
    {"reverse": st.booleans()},
    optional={
        "space": st.sampled_from([*SPACES, "absent"]), "grouping": st.sampled_from(GROUPINGS),
        "start": st.integers(-4, 13), "end": st.integers(-4, 13), "limit": st.integers(0, 6),
        "partition": st.sampled_from([*PARTITIONS, "absent"]), "kind": st.sampled_from(["page", "buy", "absent"]),
    },
)  # fmt: skip
EXAMPLES = int(os.environ.get("CATALOG_EXAMPLES", "30"))
STEPS = 20


class CatalogMachine(RuleBasedStateMachine):
    """A catalog with one topic beside the list of what it was given: (partition, record index, row)."""

    @initialize()
    def start(self):
        self.folder = Path(tempfile.mkdtemp())
        self.root = self.folder / "0"
        self.given = []
        self.counter = 0
        self.catalog = aggregator.open(self.root)
        self.topic = self.catalog.create_topic("t", indexes=["kind"])

    def teardown(self):
        if hasattr(self, "catalog"):
            self.catalog.close()
            shutil.rmtree(self.folder)

    # ------------------------------------------------------------ what happens

    @rule(rows=ROWS, partition=st.sampled_from(PARTITIONS), retry=st.booleans())
    def append(self, rows, partition, retry):
        self.counter += 1
        table = pa.table(
            {
                "space": [space for space, _, _, _ in rows],
                "grouping": [grouping for _, grouping, _, _ in rows],
                "timestamp": [time for _, _, time, _ in rows],
                "kind": pa.array([kind for _, _, _, kind in rows], pa.string()),
                "data": [b"%d.%d" % (self.counter, number) for number in range(len(rows))],
            }
        )
        receipt = self.topic.append(table, partition, producer="p", sequence=self.counter)
        first = sum(known == partition for known, _, _ in self.given)
        assert (receipt.first, receipt.last) == (first, first + len(rows) - 1)
        self.given += [
            (partition, first + number, (*row, b"%d.%d" % (self.counter, number))) for number, row in enumerate(rows)
        ]
        if retry:
            again = self.topic.append(table, partition, producer="p", sequence=self.counter)
            assert (again.first, again.last, again.duplicate) == (receipt.first, receipt.last, True)

    @rule()
    def seal(self):
        self.catalog.seal()

    @rule()
    def reopen(self):
        self.catalog.close()
        self._open(self.root)

    @rule()
    def crash(self):
        """Go on with a copy of the files as they are now; the process that wrote them never closes."""
        copy = self.folder / str(int(self.root.name) + 1)
        shutil.copytree(self.root, copy)
        self.catalog.close()
        self._open(copy)

    def _open(self, root):
        self.root = root
        self.catalog = aggregator.open(root)
        self.topic = self.catalog.topic("t")

    # ------------------------------------------------------------ what is asked

    def _facts(self, event):
        return (event.space, event.grouping, event.timestamp, event.indexes.get("kind"), event.data)

    @rule(asked=QUESTIONS)
    def scan(self, asked):
        order = {name: number for number, name in enumerate(self.topic.partitions)}
        found = [
            (partition, index, row)
            for partition, index, row in self.given
            if asked.get("space", row[0]) == row[0]
            and asked.get("grouping", row[1]) == row[1]
            and asked.get("start", -(2**63)) <= row[2]
            and ("end" not in asked or row[2] < asked["end"])
            and asked.get("kind", row[3]) == row[3]
            and asked.get("partition", partition) == partition
        ]
        found.sort(key=lambda item: (item[2][2], order[item[0]], item[1]), reverse=asked["reverse"])
        expected = [row for _, _, row in found[: asked.get("limit")]]
        question = {name: value for name, value in asked.items() if name != "kind"}
        scan = (
            self.topic.scan_index("kind", asked["kind"], **question) if "kind" in asked else self.topic.scan(**question)
        )
        assert [self._facts(event) for event in scan] == expected
        assert scan.to_table()["data"].to_pylist() == [row[4] for row in expected]
        assert scan.count() == len(expected)

    @precondition(lambda self: self.given)
    @rule(
        partition=st.sampled_from(PARTITIONS),
        first=st.none() | st.integers(0, 30),
        limit=st.none() | st.integers(0, 8),
        reverse=st.booleans(),
    )
    def read(self, partition, first, limit, reverse):
        rows = [(index, row) for known, index, row in self.given if known == partition]
        if first is not None:
            rows = [(index, row) for index, row in rows if (index <= first if reverse else index >= first)]
        expected = (rows[::-1] if reverse else rows)[:limit]
        found = self.topic.read(partition, first, limit, reverse=reverse)
        assert [(event.columns["record_index"], self._facts(event)) for event in found] == expected

    @invariant()
    def counts(self):
        if hasattr(self, "topic"):
            assert self.topic.scan().count() == len(self.given)
            assert self.catalog.problems() == []


TestCatalogModel = CatalogMachine.TestCase
TestCatalogModel.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
