"""TRUNCATE removes exactly the oldest records that it reports, hides them immediately, and compaction deletes them."""

from __future__ import annotations

import pickle
import random
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from crash_image import crash_image
from effort import ALL, share_of
from waiting import until

import aggregator
from aggregator.lql import TagSet
from aggregator.model import LAST, RECORD_INDEX, Cut, with_cut
from aggregator.storage.manifest import Manifest
from aggregator.storage.state import tombstones
from aggregator.storage.state.tombstones import without_hidden
from aggregator.streams.trimming import Rows, Rules, Trimming


def messages(catalog, text="SELECT"):
    return [event.data.decode() for event in catalog.query(text)]


def sizes(catalog):
    shown = catalog.query("SHOW PARTITIONS").to_pylist()
    return {row["tags"]: (row["records"], row["bytes"]) for row in shown}


# ------------------------------------------------------------ deciding


def trim_by_hand(rules, rows, sizes):
    """The same decision, one record at a time."""
    left, settled, gone = list(sizes), set(), []
    for stream, size, time, partition, index in rows:
        if stream in settled:
            continue
        if rules.total_bytes is not None:
            unwanted = sum(left) > rules.total_bytes
        else:
            old = rules.before_us is not None and time < rules.before_us
            unwanted = old or (rules.most_bytes is not None and left[stream] > rules.most_bytes)
        if unwanted and left[stream] - size >= rules.least_bytes:
            left[stream] -= size
            gone.append((stream, time, partition, index))
        else:
            settled.add(stream)
    return gone


@pytest.mark.parametrize("seed", range(60))
def test_trimming_equals_a_loop(seed):
    """For any rules and batch sizes, the removed records equal a plain loop's, and trimming does not stop early."""
    chance = random.Random(seed)
    rows = [
        (chance.randrange(4), chance.choice([1, 2, 10]), chance.randrange(30), chance.randrange(2), index)
        for index in range(chance.randrange(1, 120))
    ]
    rows.sort(key=lambda row: row[2:])
    sizes = [float(sum(row[1] for row in rows if row[0] == stream)) for stream in range(4)]
    rules = chance.choice(
        [
            Rules(before_us=chance.randrange(30)), Rules(most_bytes=chance.randrange(100)),
            Rules(chance.randrange(30), chance.randrange(100), chance.randrange(60)),
            Rules(total_bytes=chance.randrange(300)), Rules(least_bytes=chance.randrange(50), total_bytes=40),
        ]
    )  # fmt: skip
    trimming = Trimming(rules, np.array(sizes))
    gone = []
    at = 0
    while at < len(rows):
        if trimming.done(rows[at][2]):
            break
        step = chance.randrange(1, 40)
        columns = list(zip(*rows[at : at + step], strict=True))
        kinds = (np.int64, np.float64, np.int64, np.int64, np.int64)
        given = Rows(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))
        found = trimming.take(given)
        gone += list(zip(found.streams, found.times, found.partitions, found.indexes, strict=True))
        at += step
    assert gone == trim_by_hand(rules, rows, sizes)
    for stream in range(4):
        mine = [row for row in gone if row[0] == stream]
        assert trimming.removed[stream] == len(mine)
        assert not mine or tuple(trimming.last[:, stream]) == mine[-1][1:]


def test_cuts_by_hand():
    """Events are hidden by record index and order in time; a cut covered by another is dropped."""
    table = pa.table(
        {
            "space": ["a"] * 6 + ["b"],
            "timestamp": pa.array([1, 2, 2, 3, 1, LAST, 1], pa.int64()),
            RECORD_INDEX: pa.array([0, 1, 2, 3, 9, 4, 5], pa.int64()),
        }
    )
    by_time, by_index = Cut(5, 2, 2), Cut(2)
    for cuts, left in (
        ((by_time,), [2, 3, 9, 4, 5]),
        ((by_index,), [2, 3, 9, 4, 5]),
        ((Cut(5, 3),), [9, 4, 5]),
        ((Cut(100),), [5]),
        ((by_index, Cut(10, 2, 0)), [2, 3, 4, 5]),
    ):
        assert without_hidden(table, {b"a": cuts})[RECORD_INDEX].to_pylist() == left
    assert with_cut((by_time,), Cut(6, 2, 3)) == (Cut(6, 2, 3),)
    assert with_cut((by_time,), Cut(4, 2, 2)) == (by_time,)
    assert with_cut((by_time,), by_index) == (by_time, by_index)


# ------------------------------------------------------------ over a catalog


class Stored:
    """A catalog and the list of its records: (time, partition, record index, topic, tags, message)."""

    def __init__(self, path, seed):
        self.chance = random.Random(seed)
        self.catalog = aggregator.open(path, durability="none")
        self.rows = []

    def write(self, count):
        topic, partition = self.chance.choice(["logs", "other"]), self.chance.choice("01")
        tags = {"app": self.chance.choice(["web", "db", "it's"])}
        records = [
            {"ts": self.chance.randrange(60), "msg": f"{len(self.rows) + i} " + "x" * self.chance.randrange(80)}
            for i in range(count)
        ]
        receipt = self.catalog.write(tags, records, topic, partition=partition)
        number = self.catalog._backend.state.topics[topic].partitions[partition].number
        name = str(TagSet.of(tags))
        for index, record in enumerate(records, receipt.first):
            self.rows.append((record["ts"], number, index, topic, name, record["msg"]))

    def check(self):
        assert messages(self.catalog) == [row[5] for row in sorted(self.rows)]
        assert self.catalog.query("SELECT COUNT").to_pylist() == [{"count": len(self.rows)}]
        shown = {name: records for name, (records, _) in sizes(self.catalog).items()}
        assert shown == {n: sum(row[4] == n for row in self.rows) for n in {row[4] for row in self.rows}}

    def truncate(self, text):
        """Run the statement, and remove from the list as many of each stream's oldest records as the answer says."""
        dry = self.catalog.query(text.replace("TRUNCATE", "TRUNCATE DRYRUN")).to_pylist()
        self.check()
        told = self.catalog.query(text).to_pylist()
        assert told == dry
        for row in told:
            mine = sorted(known for known in self.rows if known[3:5] == (row["topic"], row["tags"]))
            assert len(mine) == row["removed records"] + row["records"]
            gone = set(mine[: row["removed records"]])
            self.rows = [known for known in self.rows if known not in gone]
        self.check()
        return told


@pytest.mark.usefixtures("quiet")  # otherwise sizes change between a dry run and a real one
@pytest.mark.parametrize("few", share_of([32, 0], 2))
def test_truncated_equals_a_list(tmp_path, monkeypatch, few):
    """Repeated truncations of sealed and unsealed records, with compactions and reopenings, equal a list."""
    monkeypatch.setattr(tombstones, "FEW_SPACES", few)
    monkeypatch.setattr("aggregator.streams.truncate.FEW_SPACES", few)
    stored = Stored(tmp_path / "c", few)
    removed = 0
    for number in range(7 if ALL else 4):
        for _ in range(6):
            stored.write(stored.chance.randrange(1, 30))
            if stored.chance.random() < 0.3:
                stored.catalog.seal()
        before = sizes(stored.catalog)
        total = sum(size for _, size in before.values())
        text = stored.chance.choice(
            [
                f"TRUNCATE BEFORE {stored.chance.randrange(60) * 1000}ns", "TRUNCATE app = web MAXSIZE 900",
                f"TRUNCATE MINSIZE 1k MAXSIZE 700 BEFORE {stored.chance.randrange(60) * 1000}ns",
                f"TRUNCATE MAXDBSIZE {total // 2}", f"TRUNCATE MINSIZE 500 MAXDBSIZE {total // 3}",
                f"TRUNCATE app != db MAXSIZE 2k MAXDBSIZE {total // 3}", "TRUNCATE {app=nobody} MAXSIZE 0",
            ]
        )  # fmt: skip
        told = stored.truncate(text)
        removed += sum(row["removed records"] for row in told)
        if number % 3 == 0:
            stored.catalog.compact()
            stored.check()
            assert all(not topic.tombstones for topic in stored.catalog._backend.state.topics.values())
        if number % 4 == 1:
            stored.catalog.close()
            stored.catalog = aggregator.open(tmp_path / "c", durability="none")
            stored.check()
    assert removed > 50
    stored.catalog.close()


@pytest.mark.usefixtures("quiet")
def test_limits_are_kept(tmp_path):
    """MAXSIZE keeps at most its size and little less, MINSIZE at least its size; MAXDBSIZE removes the oldest."""
    with aggregator.open(tmp_path / "c") as catalog:
        for start in (0, 1000):
            for app, shift in (("old", 0), ("new", 5000)):
                records = [{"ts": shift + start + i, "msg": f"{app} {start + i} " + "x" * 90} for i in range(1000)]
                catalog.write({"app": app}, records)
                catalog.topic("logs").set_policy(
                    roll={"frame_bytes": 4096}
                )  # larger frames leave nothing of such records
            catalog.seal()
        (record,) = {size // count for count, size in sizes(catalog).values()}
        catalog.query("TRUNCATE app = old MAXSIZE 10k")
        count, size = sizes(catalog)["{app=old}"]
        assert 10_000 - record <= size <= 10_000
        assert messages(catalog, "SELECT FROM app = old LIMIT 1")[0].startswith(f"old {2000 - count} ")
        told = catalog.query("TRUNCATE MINSIZE 5k MAXSIZE 1")
        assert told["tags"].to_pylist() == ["{app=new}", "{app=old}"]
        assert all(5_000 <= size < 5_000 + 2 * record for _, size in sizes(catalog).values())
        catalog.query("TRUNCATE MAXDBSIZE 6k")  # the records of "old" are the oldest, even those written last
        left = sizes(catalog)
        assert left["{app=old}"][1] < 1_100
        assert left["{app=new}"][1] >= 5_000
        assert sum(size for _, size in left.values()) <= 6_000 + len(left) / 2  # each size is rounded to a byte
        assert len(catalog.query("TRUNCATE")) == 0
        assert sizes(catalog) == left


def test_equal_times_are_cut_between(tmp_path):
    """Records with the same time are removed by partition and record index, only as many as needed."""
    with aggregator.open(tmp_path / "c") as catalog:
        for partition in "012":
            catalog.write({"a": "1"}, [{"ts": 7, "msg": f"{partition}{i}"} for i in range(10)], partition=partition)
        catalog.seal()
        size = sizes(catalog)["{a=1}"][1]
        catalog.query(f"TRUNCATE MAXSIZE {size * 12 // 30 + 10}")
        expected = [f"1{i}" for i in (8, 9)] + [f"2{i}" for i in range(10)]
        assert messages(catalog) == expected
        catalog.compact()
        assert messages(catalog) == expected


@pytest.mark.usefixtures("quiet")
@pytest.mark.usefixtures("quiet")
def test_hidden_at_once_for_everybody(tmp_path):
    """Truncated records are hidden from scans, counts, open tails, positions and readers; later records are kept."""
    with aggregator.open(tmp_path / "c") as catalog, aggregator.open(tmp_path / "c", read_only=True) as reader:
        catalog.write({"a": "1"}, [{"ts": i, "msg": str(i)} for i in range(10)])
        tail = catalog.tail("SELECT POSITION HEAD LIMIT 6", timeout_s=0)
        first = catalog.query("SELECT LIMIT 2")
        assert messages(catalog, "SELECT LIMIT 2") == [event.data.decode() for event in first] == ["0", "1"]
        assert len(messages(reader)) == 10
        catalog.query("TRUNCATE BEFORE 5000ns")
        catalog.write({"a": "1"}, [{"ts": 2, "msg": "late"}])
        expected = ["late", "5", "6", "7", "8", "9"]
        assert messages(catalog) == messages(reader) == expected
        assert reader.query("SELECT COUNT").to_pylist() == [{"count": 6}]
        assert sorted(event.data.decode() for event in tail) == sorted(expected)
        assert messages(catalog, f"SELECT POSITION {first.position}") == [*expected[1:], "late"]
        topic = catalog.topic("logs")
        assert topic.scan(space="{a=1}").count() == topic.read("0").count() == 6
        assert topic.erasures() == ()
        image = crash_image(tmp_path / "c", tmp_path / "image")
    with aggregator.open(image) as catalog:
        assert messages(catalog) == expected


def test_space_is_freed(tmp_path):
    """Compaction deletes segments with only hidden records and rewrites the others."""
    with aggregator.open(tmp_path / "c") as catalog:
        for start in range(0, 4000, 1000):
            random_text = [random.Random(start + i).randbytes(100).hex() for i in range(1000)]
            catalog.write({"a": "1"}, [{"ts": start + i, "msg": text} for i, text in enumerate(random_text)])
            catalog.write({"b": "1"}, [{"ts": start, "msg": "other"}])
            catalog.seal()
        before = catalog.stats()["disk"]["segments"]
        catalog.query("TRUNCATE a = 1 BEFORE 2500000ns")
        assert catalog.stats()["topics"]["logs"]["erasing"] == 0
        catalog.compact()
        assert catalog.stats()["topics"]["logs"]["truncating"] == 0
        assert catalog.stats()["disk"]["segments"] < 0.5 * before
        assert {name: count for name, (count, _) in sizes(catalog).items()} == {"{a=1}": 1500, "{b=1}": 4}
        assert catalog.verify() == []
        catalog.query("TRUNCATE a = 1 MAXSIZE 0")
        assert catalog.streams() == [{"b": "1"}]
        catalog.compact()
        assert catalog.streams() == [{"b": "1"}]
        catalog.write({"a": "1"}, [{"ts": 1, "msg": "again"}])
        assert catalog.streams() == [{"a": "1"}, {"b": "1"}]
        catalog.query("TRUNCATE BEFORE 4000000000ns")
        catalog.topic("logs").erase("{b=1}")
        assert messages(catalog) == []
        catalog.compact()
        assert catalog.topic("logs").erasures() == ()


def test_dry_runs_and_readers(tmp_path):
    """A dry run changes nothing and works on a read-only catalog; a real truncation does not."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": i} for i in range(10)])
        told = catalog.query("TRUNCATE DRYRUN BEFORE 4000ns")
        assert told["removed records"].to_pylist() == [4]
        assert told.schema.metadata[b"total removed records"] == b"4"
    with aggregator.open(tmp_path / "c", read_only=True) as reader:
        assert reader.query("TRUNCATE DRYRUN BEFORE 4000ns").equals(told)
        with pytest.raises(aggregator.ReadOnlyError):
            reader.query("TRUNCATE BEFORE 4000ns")
        assert len(messages(reader)) == 10


def test_what_truncation_hides_pipes_do_not_copy(tmp_path):
    """Pipes do not copy truncated records; earlier copies stay."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": i, "msg": str(i)} for i in range(10)])
        catalog.query("TRUNCATE BEFORE 4000ns")
        catalog.query("CREATE PIPE p BACKFILL")
        while catalog.stats()["pipes"][0]["lag"]:
            pass
        catalog.query("TRUNCATE {a=1} MAXSIZE 0")
        assert messages(catalog) == [str(i) for i in range(4, 10)]
        assert catalog.streams() == [{"logrange.pipe": "p"}]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_while_space_is_freed(tmp_path, when):
    """After a crash before or after a rewritten file replaces the old one, contents are right, without a problem."""
    images = []
    apply = Manifest.apply

    def copying(manifest, edit):
        if edit.retired and when == "before":
            images.append(crash_image(tmp_path / "c", tmp_path / f"image{len(images)}"))
        done = apply(manifest, edit)
        if edit.retired and when == "after":
            images.append(crash_image(tmp_path / "c", tmp_path / f"image{len(images)}"))
        return done

    with mock.patch.object(Manifest, "apply", copying), aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": i, "msg": str(i)} for i in range(10)])
        catalog.write({"b": "1"}, [{"ts": i, "msg": f"b{i}"} for i in range(2)])
        catalog.seal()
        catalog.query("TRUNCATE a = 1 BEFORE 5000ns")
        catalog.compact()
    for image in images:
        with aggregator.open(image) as catalog:
            assert messages(catalog) == ["b0", "b1", "5", "6", "7", "8", "9"]
            catalog.compact()
            assert messages(catalog) == ["b0", "b1", "5", "6", "7", "8", "9"]
            assert catalog.problems() == []
            assert catalog.stats()["segments"] == 1
    assert images


@pytest.mark.usefixtures("quiet")
def test_a_manifest_rebuilt_while_space_is_freed(tmp_path):
    """If both a file and its rewritten version exist, a rebuilt manifest counts one."""
    apply = Manifest.apply
    images = []

    def copying(manifest, edit):
        done = apply(manifest, edit)
        if edit.retired:
            images.append(crash_image(tmp_path / "c", tmp_path / f"image{len(images)}"))
        return done

    with mock.patch.object(Manifest, "apply", copying), aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": i, "msg": str(i)} for i in range(10)])
        catalog.seal()
        catalog.query("TRUNCATE BEFORE 5000ns")
        catalog.compact()
    for path in images[0].glob("manifest.sqlite*"):
        path.unlink()
    assert aggregator.rebuild_manifest(images[0]).superseded == 1
    with aggregator.open(images[0]) as catalog:
        assert messages(catalog) == ["5", "6", "7", "8", "9"]


@pytest.mark.parametrize("names", [["data"], ["data", "timestamp"]])
def test_spark_reads_without_what_is_hidden(tmp_path, names):
    """Spark tasks omit truncated records, sealed or not, whatever columns they read."""
    plan = pytest.importorskip("aggregator.spark.plan")
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": i, "msg": str(i)} for i in range(10)])
        catalog.write({"b": "1"}, [{"ts": 0, "msg": "b"}])
        catalog.seal()
        catalog.write({"a": "1"}, [{"ts": i, "msg": f"u{i}"} for i in range(3, 8)])
        backend = catalog._backend
        with backend.upkeep._compacting:  # nothing is deleted meanwhile
            catalog.query("TRUNCATE a = 1 BEFORE 5000ns")
            snapshot, pin = backend.snapshot(backend.state.topics["logs"], None)
            union = plan.with_catalog_columns(plan.catalog_schema(snapshot.schemas, (), binary_keys=False).arrow)
            wanted = pa.schema([plan.readable(union).field(name) for name in names])
            request = plan.Request(wanted, union)
            tasks = pickle.loads(pickle.dumps(plan.plan_tasks(backend.layout, snapshot, request, partition_bytes=1)))
            batches = [batch for task in tasks for batch in plan.read_task(task, request, backend.layout)]
            pin.release()
    found = [data.decode() for batch in batches for data in batch.column("data").to_pylist()]
    assert sorted(found) == ["5", "6", "7", "8", "9", "b", "u5", "u6", "u7"]


@pytest.mark.parametrize("sealed", share_of(["nothing", "all", "half"], 2))
@pytest.mark.parametrize("read", [0, 3, 9])
def test_a_position_tells_how_many_are_gone(tmp_path, sealed, read):
    """A position reports records truncated before the reader got them, while hidden and after their deletion."""
    with aggregator.open(tmp_path) as catalog:
        for partition in "01":
            for begin in (0, 10):
                records = [{"ts": n, "msg": str(n)} for n in range(begin, begin + 10)]
                catalog.write({"app": "a"}, records[:5], partition=partition)
                catalog.write({"app": "b"}, records[5:], partition=partition)
                if sealed == "all" or (sealed == "half" and not begin):
                    catalog.seal()
        first = catalog.query(f"SELECT LIMIT {2 * read}")
        list(first)
        position = first.position
        catalog.query("TRUNCATE {app=a} BEFORE '1970-01-01T00:00:00.000013Z'")
        left = [n for n in range(read, 20) if not (n < 5 or 10 <= n < 13)]
        gone = 2 * (20 - read - len(left)) if read else 0
        for _ in range(3):
            answer = catalog.query(f"SELECT POSITION {position}")
            assert [int(event.data) for event in answer] == sorted([*left, *left])
            assert answer.gone == gone
            catalog.seal()
            catalog.compact()
        catalog.topic("logs").erase("{app=b}")
        assert catalog.query(f"SELECT POSITION {position}").gone == (2 * (20 - read - 2) if read else 0)


def test_a_pipe_tells_how_many_were_truncated(tmp_path):
    """Records that a pipe copied before their truncation do not count as gone."""
    with aggregator.open(tmp_path) as catalog:
        catalog.query("CREATE PIPE p")
        catalog.write({"app": "a"}, [{"ts": n, "msg": str(n)} for n in range(4)])
        assert len(list(catalog.tail("SELECT FROM logrange.pipe = p POSITION HEAD LIMIT 4", timeout_s=120))) == 4
        catalog.query("TRUNCATE {app=a} BEFORE '1970-01-01T00:00:01Z'")
        catalog.write({"app": "a"}, [{"ts": 9, "msg": "9"}])
        assert len(list(catalog.tail("SELECT FROM logrange.pipe = p POSITION HEAD LIMIT 5", timeout_s=120))) == 5
        until(lambda: [(pipe["copied"], pipe["gone"]) for pipe in catalog.stats()["pipes"]] == [(5, 0)])
