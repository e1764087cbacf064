"""Random appends, seals, retention, compaction, erasure, crashes, rebuilds and queries, compared with a list."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from crash_image import crash_image
from effort import ALL
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from still import no_background

import aggregator
from aggregator.engine.seal import sealer as sealing
from aggregator.model import DEFAULT_PARTITION
from aggregator.policy import Tuning
from aggregator.storage.manifest import Manifest

MERGING = Tuning(fan_in=2)
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
POLICIES = st.one_of(
    st.fixed_dictionaries({"segments": st.integers(0, 4)}),
    st.fixed_dictionaries({"bytes": st.integers(0, 20_000)}),
    st.fixed_dictionaries({"segments": st.integers(1, 3), "bytes": st.integers(0, 20_000)}),
)
EXAMPLES = int(os.environ.get("CATALOG_EXAMPLES") or (200 if ALL else 20))
STEPS = 20


class CatalogMachine(RuleBasedStateMachine):
    """A catalog with one topic and the list of appended rows: (partition, record index, row)."""

    @initialize()
    def start(self):
        self.folder = Path(tempfile.mkdtemp())
        self.root = self.folder / "0"
        self.given = []
        self.next = dict.fromkeys(PARTITIONS, 0)
        self.counter = 0
        self.erased = set()  # and not appended since
        with ExitStack() as patches:
            patches.enter_context(no_background())  # otherwise retention would be a step early
            patches.enter_context(  # small limits are used at times
                mock.patch.object(sealing, "sealed_at_once", lambda most, *_: most)
            )
            self.patches = patches.pop_all()
        self.catalog = aggregator.open(self.root, tuning=MERGING)
        self.topic = self.catalog.create_topic("t", indexes=["kind"])

    def teardown(self):
        if hasattr(self, "catalog"):
            self.catalog.close()
            self.patches.close()
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
        first = self.next[partition]
        self.next[partition] += len(rows)
        self.erased -= {space for space, _, _, _ in rows}
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

    @rule(policy=POLICIES, crash=st.sampled_from([None, "before", "after"]))
    def retain(self, policy, crash):
        """Retention removes whole segments, the same as a dry run reports, and no more than the policy requires."""
        self.topic.set_policy(retention=policy)
        planned = self.topic.retain(dry_run=True)
        segments = self.topic.stats()["segments"]
        with self._crash_image("retired", crash):
            report = self.topic.retain()
        assert report.removed == planned.removed
        removed = report.removed
        if crash is not None:  # each reason is a separate transaction; the image is of the first
            removed = [gone for gone in removed if crash == "after" and gone.reason == removed[0].reason]
        for gone in removed:
            spared = [item for item in self.given if not self._lies_in(item, gone)]
            hidden = gone.rows - (len(self.given) - len(spared))
            assert hidden == 0 or (hidden > 0 and self.topic.erasures())
            self.given = spared
        assert segments - len(report.removed) <= policy.get("segments", segments)
        self._after(crash)
        self.topic.set_policy(retention=aggregator.Retention())

    @staticmethod
    def _lies_in(item, segment):
        partition, index, _ = item
        return partition == segment.partition and segment.first_index <= index <= segment.last_index

    @rule(crash=st.sampled_from([None, "before", "after"]), by_itself=st.booleans())
    def compact(self, crash, by_itself):
        """Compaction changes only files and leaves nothing of erased events."""
        with self._crash_image("added", crash):
            if by_itself:
                self.catalog._backend.upkeep._compact_by_itself()
            else:
                report = self.catalog.compact()
                assert report.still_erasing == ()
        if not by_itself:
            assert self.topic.erasures() == ()
            assert all(self.topic.traces(space).gone for space in self.erased)
        self._after(crash)

    @rule(space=st.sampled_from(SPACES))
    def erase(self, space):
        erasure = self.topic.erase(space)
        assert erasure.events == sum(row[0] == space for _, _, row in self.given)
        self.given = [item for item in self.given if item[2][0] != space]
        self.erased.add(space)

    @rule(rows=st.integers(1, 10**6), policy=POLICIES, crashed=st.booleans())
    def rebuild(self, rows, policy, crashed):
        """The manifest is lost: segments, log and backup restore everything, including policies, record indexes and
        pending erasures. (Events that retention removed would come back if the log still had them, but here it does
        not.)
        """
        self.catalog.seal()
        self.catalog._backend.log.roll()
        self.catalog._backend.sealer.release_log()
        self.catalog._backend.upkeep.removal.sweep()
        self.topic.set_policy(roll={"rows": rows}, retention=policy)
        known = (self.topic._topic.info, self.topic.partitions)
        erasing = set(self.topic.erasures())
        root = self._copy() if crashed else self.root
        self.catalog.close()
        for path in root.glob("manifest.sqlite*"):
            path.unlink()
        report = aggregator.rebuild_manifest(root)
        assert (report.quarantined, report.missing) == ((), ())
        self._open(root)
        assert (self.topic._topic.info, self.topic.partitions) == known
        assert set(self.topic.erasures()) == erasing
        self.topic.set_policy(roll=aggregator.Roll(), retention=aggregator.Retention())

    @rule(crash=st.sampled_from(["before", "after"]))
    def crash_while_sealing(self, crash):
        with self._crash_image("added", crash):
            self.catalog.seal()
        self._after(crash)

    @contextmanager
    def _crash_image(self, change, when):
        """Copy the files at the first transaction with such a change: the state after a crash before or after it."""
        apply = Manifest.apply
        copies = []

        def copying(manifest, edit):
            first = when is not None and not copies and getattr(edit, change)
            if first and when == "before":
                copies.append(self._copy())
            done = apply(manifest, edit)
            if first and when == "after":
                copies.append(self._copy())
            return done

        with mock.patch.object(Manifest, "apply", copying):
            yield
        self.image = copies[0] if copies else None

    def _copy(self):
        self.copies = getattr(self, "copies", 0) + 1
        return crash_image(self.root, self.folder / f"image{self.copies}")

    def _after(self, crash):
        """Continue with the image of a crash, if there is one."""
        if crash is not None and self.image is not None:
            self.catalog.close()
            self._open(self.image)

    @rule()
    def reopen(self):
        self.catalog.close()
        self._open(self.root)

    @rule()
    def crash(self):
        """Continue with a copy of the current files; the process that wrote them never closes."""
        copy = self._copy()
        self.catalog.close()
        self._open(copy)

    def _open(self, root):
        self.root = root
        self.catalog = aggregator.open(root, tuning=MERGING)
        self.topic = self.catalog.topic("t")

    # ------------------------------------------------------------ queries

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
        ask = partial(self.topic.scan_index, "kind", asked["kind"]) if "kind" in asked else self.topic.scan
        known = self.topic.partitions or (DEFAULT_PARTITION,)
        if asked.get("partition", known[0]) not in known:
            with pytest.raises(aggregator.PartitionNotFoundError):
                ask(**question)
            return
        scan = ask(**question)
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
        if partition not in self.topic.partitions:
            with pytest.raises(aggregator.InvalidRequestError, match="no partition"):
                self.topic.read(partition, first, limit, reverse=reverse)
            return
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
TestCatalogModel.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS)
