"""Segments written elsewhere are added to a topic, each once, and are then like any others."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import pyarrow as pa
import pytest
from clicks import click_table, write_clicks

import aggregator
import esformat
from aggregator.engine import bulk_load as adding
from aggregator.engine.bulk_load import Batch, BulkLoad, find_target, stage
from aggregator.storage.files import staging
from aggregator.storage.files.layout import Layout, segment_files

KEY = Batch(("job", 1), "kept")
DAY_US = 86_400_000_000
PLAIN = Batch()


def events_of(topic, **asked):
    """Payloads by record index, in record index order."""
    scan = topic.read(columns=["data", "record_index"], **asked)
    return list(zip(*scan.to_table().to_pydict().values(), strict=True))


def payloads(table, first):
    return list(zip(table["data"].to_pylist(), range(first, first + len(table)), strict=True))


@pytest.fixture
def catalog(tmp_path):
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        catalog.create_topic("clicks", indexes=["type"])
        yield catalog


def staged(catalog, *tables, key=PLAIN, partition="0"):
    """Stage tables as a job's tasks do. Returns the load, its target and the staged segments."""
    adder = BulkLoad(catalog._backend, catalog._backend.state.topics["clicks"])
    target = find_target(catalog._backend.manifest, "clicks", partition, tables[0].schema)
    target = target or adder.prepare(partition, tables[0].schema)
    folder = staging.staging(catalog._backend.layout) / secrets.token_hex(4)
    return adder, target, [stage(folder, target, table, key) for table in tables]


def test_files_of_any_origin(catalog, tmp_path):
    """Events of plain segment files come between those appended before and after; they are found and compacted."""
    table = click_table(900)
    write_clicks(tmp_path / "a.esdb", table.slice(300, 300))
    topic = catalog.topic("clicks")
    topic.append(table.slice(0, 300))
    added = topic.add_segments([tmp_path / "a.esdb"])
    topic.append(table.slice(600))
    assert (added.segments, added.events, added.first, added.last) == (1, 300, 300, 599)
    found = topic.read(columns=["record_index", "space"]).to_table()
    assert found["record_index"].to_pylist() == list(range(900))
    assert sorted(topic.scan(columns=["data"]).to_table()["data"].to_pylist()) == sorted(table["data"].to_pylist())
    purchases = sum(kind == "purchase" for kind in table["type"].to_pylist())
    assert topic.scan_index("type", "purchase").count() == purchases
    catalog.seal()
    assert topic.compact().merged
    assert topic.read().count() == 900
    assert catalog.verify() == []
    with esformat.open(tmp_path / "a.esdb") as segment:
        assert "record_index" not in segment.schema.names


def test_files_without_an_indexed_column(catalog, tmp_path):
    """An index keeps its type if a file lacks the column; the file's events have null there."""
    topic = catalog.create_topic("codes", indexes=["code"])
    topic.append([{"space": "a", "timestamp": 1, "code": 5}])
    with esformat.create(tmp_path / "plain.esdb") as writer:
        writer.add("b", b"", timestamp=2)
    topic.add_segments([tmp_path / "plain.esdb"])
    assert topic.scan(columns=["code"]).to_table()["code"].to_pylist() == [5, None]
    assert topic.scan_index("code", 5).count() == 1


def test_staged_segments_move(catalog):
    """Staged segments are moved in without copying, in record index order, and nothing is left in staging."""
    table = click_table(600)
    adder, target, made = staged(catalog, table.slice(0, 200), table.slice(200, 400))
    before = {Path(each.path).stat().st_ino for each in made}
    added = adder.add(target, made[::-1], PLAIN)
    files = segment_files(Layout(catalog.path))
    assert {path.stat().st_ino for path in files.values()} == before
    assert (added.segments, added.first, added.last) == (2, 0, 599)
    assert events_of(catalog.topic("clicks")) == payloads(table, 0)
    assert not list(staging.staging(Layout(catalog.path)).rglob("*.esdb"))
    assert not list(staging.staging(Layout(catalog.path)).glob("*.json"))


@pytest.mark.parametrize("sealed", [True, False])
def test_appended_meanwhile(catalog, sealed):
    """If record indexes, or segment numbers, were used since staging, the segments get new ones."""
    table = click_table(600)
    adder, target, made = staged(catalog, table.slice(0, 200))
    topic = catalog.topic("clicks")
    topic.append(table.slice(200, 400))
    if sealed:
        catalog.seal()
    added = adder.add(target, made, PLAIN)
    assert (added.first, added.last) == (400, 599)
    assert events_of(topic) == payloads(table.slice(200), 0) + payloads(table.slice(0, 200), 400)
    assert len({info.number for info in catalog._backend.state.topics["clicks"].segments.view()}) == 2


def test_same_key_is_added_once(catalog):
    """A batch with the same key is recognised, also after reopening or rebuilding."""
    table = click_table(300)
    for _ in range(2):
        adder, target, made = staged(catalog, table, key=KEY)
        added = adder.add(target, made, KEY)
    assert added.duplicate
    assert (added.segments, added.events, added.first) == (0, 300, 0)
    later = Batch(("job", 2), "kept")
    adder, target, made = staged(catalog, table.slice(0, 10), key=later)
    adder.add(target, made, later)
    assert [entry.sequence for entry in catalog._backend.manifest.producers()] == [1, 2]
    root = catalog.path
    catalog.close()
    for path in root.glob("manifest.sqlite*"):
        path.unlink()
    aggregator.rebuild_manifest(root)
    with aggregator.open(root) as again:
        adder, target, made = staged(again, table, key=KEY)
        assert adder.add(target, made, KEY).duplicate
        assert [entry.note for entry in again._backend.manifest.producers()] == ["kept", "kept"]
        topic = again.topic("clicks")
        assert events_of(topic) == payloads(table, 0) + payloads(table.slice(0, 10), 300)
        topic.append(table)
        assert topic.read(from_index=310, columns=["record_index"]).count() == 300


class Stop(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", ["note", "_name", "apply", "forget_note"])
def test_crash_on_the_way(catalog, monkeypatch, step):
    """Wherever the process dies, either the whole batch is there or nothing, and the batch can be sent again."""
    table = click_table(400)
    adder, target, made = staged(catalog, table.slice(0, 100), table.slice(100), key=KEY)
    monkeypatch.setattr(adding, "undo", lambda *_: None)  # a dead process cleans nothing up

    def dies(*given):
        if step == "_name":  # one segment already has its name
            given[0].segment(made[0].info.number).parent.mkdir(parents=True, exist_ok=True)
            Path(made[0].path).rename(given[0].segment(made[0].info.number))
        raise Stop

    owner = catalog._backend.manifest if step == "apply" else adding
    monkeypatch.setattr(owner, step, dies)
    with pytest.raises(Stop):
        adder.add(target, made, KEY)
    monkeypatch.undo()
    root = catalog.path
    catalog._backend.lock.release()
    with aggregator.open(root) as again:
        topic = again.topic("clicks")
        assert again.problems() == []
        committed = step == "forget_note"
        assert topic.scan().count() == (400 if committed else 0)
        assert len(segment_files(Layout(root))) == (2 if committed else 0)
        adder, target, made = staged(again, table, key=KEY)
        assert adder.add(target, made, KEY).duplicate == committed
        assert sorted(topic.scan(columns=["data"]).to_table()["data"].to_pylist()) == sorted(table["data"].to_pylist())


def test_a_note_that_stays(catalog, monkeypatch):
    """If the note of an added batch cannot be deleted, the batch is there, and a retry is recognised."""
    table = click_table(100)

    def fails(_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(adding, "forget_note", fails)
        adder, target, made = staged(catalog, table, key=KEY)
        assert adder.add(target, made, KEY).events == 100
    adder, target, made = staged(catalog, table, key=KEY)
    assert adder.add(target, made, KEY).duplicate
    root = catalog.path
    catalog.close()
    with aggregator.open(root) as again:
        assert again.topic("clicks").scan().count() == 100


def test_failed_transaction_changes_nothing(catalog, monkeypatch):
    """A failure is undone immediately, leaving no file or event, and the next attempt succeeds."""
    table = click_table(100)
    adder, target, made = staged(catalog, table)

    def fails(edit):
        raise aggregator.ManifestFailedError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(catalog._backend.manifest, "apply", fails)
        with pytest.raises(aggregator.ManifestFailedError):
            adder.add(target, made, PLAIN)
    assert segment_files(Layout(catalog.path)) == {}
    adder, target, made = staged(catalog, table)
    assert adder.add(target, made, PLAIN).events == 100


def test_erased_before_added_after(catalog):
    """An erased space stays erased; events of it that are added later are kept."""
    table = click_table(500)
    topic = catalog.topic("clicks")
    topic.append(table)
    topic.erase("customer-1")
    adder, target, made = staged(catalog, table)
    adder.add(target, made, PLAIN)
    ones = sum(space == "customer-1" for space in table["space"].to_pylist())
    assert ones
    assert topic.scan(space="customer-1").count() == ones


@pytest.mark.parametrize("ahead_us", [-DAY_US, DAY_US])
def test_the_clock_of_a_task(catalog, monkeypatch, ahead_us):
    """Whatever the task's clock shows, retention removes the oldest additions and keeps the newest."""
    table, topic = click_table(600), catalog.topic("clicks")
    steps = [("appended", table.slice(0, 200)), ("added", table.slice(200, 200)), ("appended", table.slice(400))]
    monkeypatch.setattr(adding, "now_us", lambda: time.time_ns() // 1000 + ahead_us)
    for number, (how, part) in enumerate(steps):
        if how == "added":
            adder, target, made = staged(catalog, part)
            adder.add(target, made, PLAIN)
        else:
            topic.append(part)
            catalog.seal()
        topic.set_policy(retention={"segments": 1})
        topic.retain()
        assert events_of(topic) == payloads(part, 200 * number)


def test_another_process_follows(catalog):
    """A reader in another process sees the added segments once, in addition to all others."""
    table = click_table(300)
    with aggregator.open(catalog.path, read_only=True) as reader:
        topic = catalog.topic("clicks")
        topic.append(table.slice(0, 100))
        assert reader.topic("clicks").scan().count() == 100
        adder, target, made = staged(catalog, table.slice(100))
        adder.add(target, made, PLAIN)
        assert events_of(reader.topic("clicks")) == payloads(table, 0)


def test_mistakes(catalog, tmp_path):
    """Files that do not fit together and events that cannot be stored are refused; nothing is left in staging."""
    table = click_table(10)
    write_clicks(tmp_path / "a.esdb", table)
    with esformat.create(tmp_path / "b.esdb") as writer:
        writer.add_table(table.select(["space", "timestamp"]))
    topic = catalog.topic("clicks")
    with pytest.raises(esformat.UsageError, match="columns differ"):
        topic.add_segments([tmp_path / "a.esdb", tmp_path / "b.esdb"])
    with pytest.raises(esformat.UsageError, match="no segment"):
        topic.add_segments([])
    with pytest.raises(esformat.InvalidEventError, match="passed together"):
        topic.add_segments([tmp_path / "a.esdb"], producer="x")
    nothing = pa.table({"space": pa.array([None], pa.string()), "timestamp": pa.array([1], pa.int64())})
    with pytest.raises(esformat.InvalidEventError):
        staged(catalog, nothing)
    assert topic.scan().count() == 0


def test_limit_of_bytes(tmp_path):
    """Segments beyond the catalog's limit are refused."""
    write_clicks(tmp_path / "a.esdb", click_table(90_000))
    assert (tmp_path / "a.esdb").stat().st_size > 1 << 20
    with aggregator.open(tmp_path / "data", durability="none", limits={"disk_bytes": 1 << 20}) as catalog:
        catalog.create_topic("clicks")
        with pytest.raises(aggregator.OverloadedError, match="disk_bytes"):
            catalog.topic("clicks").add_segments([tmp_path / "a.esdb"])
        assert segment_files(Layout(catalog.path)) == {}
