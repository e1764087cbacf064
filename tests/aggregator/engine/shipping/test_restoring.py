"""Catalogs restored from their store: unchanged, at any time it covers, whatever in it is damaged."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from shipped_catalogs import SOON, events, numbers, seen_anywhere
from waiting import until

import aggregator
from aggregator import CatalogNotFoundError, InvalidRequestError, ReadOnlyError
from aggregator.engine.shipping import shipper
from aggregator.engine.shipping.attach import read_object
from aggregator.engine.shipping.restoring import begin_following
from aggregator.storage.files.layout import Layout
from aggregator.storage.store.client import Store
from aggregator.storage.store.shipped import log_name

pytestmark = pytest.mark.background


@pytest.fixture
def address(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


def filled(tmp_path: Path, address: str) -> dict[str, Any]:
    """Make a catalog with everything a catalog can have. Returns what a reader sees of it."""
    with aggregator.open(tmp_path / "a", store=address, durability="store", **SOON) as catalog:
        topic = catalog.create_topic("t", indexes=["kind"], retention={"bytes": "10GiB"}, roll={"rows": 1000})
        for sequence in range(5):
            topic.append(events(sequence * 10), producer="p", sequence=sequence, partition="one")
            if sequence == 2:
                catalog.seal("t")
        topic.erase("s1")
        catalog.create_topic("empty", keys="binary")
        catalog.create_topic("gone")
        catalog.delete_topic("gone")
        catalog.write({"app": "web"}, [{"ts": number, "msg": f"line {number}"} for number in range(20)])
        catalog.query("CREATE PIPE ones FROM {app=web} WHERE msg CONTAINS '1' BACKFILL")
        until(lambda: catalog.query("DESCRIBE PIPE ones")["lag"].to_pylist() == [0])
        return seen(catalog)


def seen(catalog: aggregator.Catalog) -> dict[str, Any]:
    """What a restore must bring back."""
    facts: dict[str, Any] = {"topics": catalog.topics()}
    for name in ("t", "empty"):
        topic = catalog.topic(name)
        facts[name] = (topic.keys, topic.indexes, topic.retention, topic.roll)
    facts["rows"] = sorted(
        (row["record_index"], row["payload"]) for row in catalog.topic("t").read("one").to_table().to_pylist()
    )
    lines = catalog.query("SELECT FROM app=web OR logrange.pipe=ones LIMIT 100")
    facts["lines"] = [(event.space, event.data) for event in lines]
    facts["pipes"] = [row["name"] for row in catalog.query("SHOW PIPES LIMIT 9").to_pylist()]
    return facts


def test_a_catalog_as_it_was(tmp_path: Path, address: str):
    """Topics, policies, record indexes, producers, erasures, streams and pipes come back; the next events get the next
    record indexes, and the store is unaffected.
    """
    before = filled(tmp_path, address)
    told: list[tuple[int, int]] = []
    report = aggregator.restore(address, tmp_path / "back", progress=lambda done, total: told.append((done, total)))
    assert report.complete
    assert not report.lacking
    assert report.segments
    assert told[-1] == (report.size_bytes, report.size_bytes)
    assert time.time() * 1e6 - report.shipped_us < 3600e6
    with aggregator.open(tmp_path / "back") as back:
        assert seen(back) == before
        assert back.problems() == []
        topic = back.topic("t")
        assert topic.append(events(40), producer="p", sequence=4, partition="one").duplicate
        assert topic.append(events(50), partition="one").first == 50
        back.write({"app": "web"}, [{"ts": 100, "msg": "line 100"}])
        until(lambda: back.query("DESCRIBE PIPE ones")["lag"].to_pylist() == [0])
        assert len(seen(back)["lines"]) == len(before["lines"]) + 2
    assert len(seen_anywhere(address)) == len(before["rows"])


def test_everything_is_read_anywhere(tmp_path: Path, address: str):
    """Everything can be read from the store alone: scans, streams, LQL and stats; nothing is written."""
    before = filled(tmp_path, address)
    with aggregator.open(address, read_only=True) as reader:
        assert seen(reader) == before
        assert reader.read_only
        assert reader.streams("app=web") == [{"app": "web"}]
        assert reader.stats()["rows"] > len(before["rows"])
        with pytest.raises(ReadOnlyError):
            reader.topic("t").append(events(0))


def test_a_tail_over_a_store(tmp_path: Path, address: str):
    """A tail over a store gets later records, at a place other than the writer's."""
    with (
        aggregator.open(tmp_path / "a", store=address, durability="store", **SOON) as catalog,
        aggregator.open(address, read_only=True) as reader,
    ):
        catalog.write({"app": "web"}, [{"ts": 1, "msg": "before"}])
        tail = iter(reader.tail("SELECT FROM app=web", timeout_s=60))
        position = reader.tail("SELECT FROM app=web", timeout_s=0).position
        catalog.write({"app": "web"}, [{"ts": 2, "msg": "after"}])
        catalog.seal()
        assert next(tail).data == b"after"
        assert position


def test_as_it_was_at_a_time(tmp_path: Path, address: str):
    """A restore to any time since the first manifest copy has what was shipped by then and nothing later."""
    times: list[tuple[int, int]] = []
    with aggregator.open(tmp_path / "a", store=address, durability="store", **SOON) as catalog:
        topic = catalog.create_topic("t")
        for first in range(0, 60, 10):
            topic.append(events(first))
            times.append((time.time_ns() // 1000, first + 10))
            if first == 20:
                catalog.seal("t")
                time.sleep(0.3)
        topic.erase("s0")
    for number, (at, end) in enumerate(times):
        aggregator.restore(address, tmp_path / f"at{number}", at=at)
        with aggregator.open(tmp_path / f"at{number}") as back:
            assert numbers(back) == list(range(end))
            assert back.problems() == []
    with pytest.raises(CatalogNotFoundError, match="did not exist at that time"):
        aggregator.restore(address, tmp_path / "before", at=times[0][0] - 3600_000_000)


@pytest.mark.parametrize("damage", ["deleted", "flipped"])
@pytest.mark.parametrize("kind", ["segments", "manifest", "log"])
def test_what_of_the_store_is_damaged(tmp_path: Path, address: str, kind: str, damage: str):
    """A damaged object is reported by name, and the rest comes back."""
    with aggregator.open(tmp_path / "a", store=address, durability="store", ship_interval="1h", lease="1h") as catalog:
        topic = catalog.create_topic("t")
        shipper = catalog._backend.shipper
        shipped: list[int] = []
        for first in range(0, 50, 10):
            shipped.append(shipper._sequence)
            topic.append(events(first), partition=f"p{first}")
            if first in (0, 10):
                catalog.seal("t")
                catalog._backend.shipper.publish()
    store = Store(address)
    name = {
        "segments": max(each.name for each in store.list("segments")),
        "manifest": max(each.name for each in store.list("manifest")),
        "log": log_name(next(each for each in range(shipped[3], shipped[4]) if read_object(store, each).pieces)),
    }[kind]
    data = store.get(name)
    store.delete([name])
    if damage == "flipped":
        store.put(name, data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    report = aggregator.restore(address, tmp_path / "back")
    assert [each.name for each in report.lacking] == [name]
    assert report.complete is (kind == "segments")  # otherwise a manifest change or frames may be missing
    lost = {"segments": set(range(10, 20)), "manifest": set(), "log": set(range(30, 40))}[kind]
    with aggregator.open(tmp_path / "back") as back:
        if kind != "manifest":
            assert back.problems()
        if kind == "segments":
            assert back.topic("t").read("p0").count() == 10
            assert back.topic("t").read("p20").count() == 10
        else:
            assert set(numbers(back)) == set(range(50)) - lost


def test_a_frame_over_two_objects(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch):
    """If the manifest copy needs only what follows a frame over two objects, the frame's end is not damage."""
    monkeypatch.setattr(shipper, "OBJECT_BYTES", 10_000)
    tuning = aggregator.policy.Tuning(log_file_bytes=4096)
    with aggregator.open(tmp_path / "a", store=address, ship_interval="1h", lease="1h", tuning=tuning) as catalog:
        topic = catalog.create_topic("t")
        topic.append([one | {"payload": b"%15000d" % one["timestamp"]} for one in events(0, 1)])
        catalog.seal("t")
        topic.append(events(1))
        catalog._backend.shipper.ship()
        catalog._backend.shipper.publish()
        needed = catalog._backend.shipper._note.needs
        last = read_object(Store(address), needed[0])
        assert [position for position, _ in last.pieces][1] == needed[1]
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
    address = (tmp_path / "copy").as_uri()
    assert seen_anywhere(address) == list(range(11))
    aggregator.restore(address, tmp_path / "back")
    with aggregator.open(tmp_path / "back") as back:
        assert numbers(back) == list(range(11))
        assert back.problems() == []


def test_a_file_of_the_log_that_is_gone_on_with(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch):
    """Log objects that one manifest copy does not need, the next does not need either: they may have been deleted."""
    monkeypatch.setattr(shipper, "OBJECT_BYTES", 10_000)
    with aggregator.open(tmp_path / "a", store=address, ship_interval="1h", lease="1h") as catalog:
        topic, ship = catalog.create_topic("t"), catalog._backend.shipper
        topic.append([one | {"payload": b"%15000d" % one["timestamp"]} for one in events(0, 1)])
        ship.ship()
        catalog.seal("t")
        ship.publish()
        needed = ship._note.needs
        topic.append([one | {"payload": b"%15000d" % one["timestamp"]} for one in events(1, 1)])
        ship.ship()
        ship.publish()
        assert ship._note.needs[1] == needed[1]
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
    aggregator.restore((tmp_path / "copy").as_uri(), tmp_path / "back")
    with aggregator.open(tmp_path / "back") as back:
        assert numbers(back) == [0, 1]
        assert back.problems() == []


def test_a_restore_that_was_interrupted(tmp_path: Path, address: str):
    """An interrupted restore continues with the existing files; until it is complete the directory cannot be opened."""
    before = filled(tmp_path, address)
    begin_following(Layout(tmp_path / "back"), Store(address))
    aggregator.restore(address, tmp_path / "whole")
    for path in (tmp_path / "whole" / "segments").glob("*/*.esdb"):
        place = tmp_path / "back" / path.relative_to(tmp_path / "whole")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes()[: None if path.stem.endswith("1") else 100])
    with pytest.raises(InvalidRequestError, match="follows"):
        aggregator.open(tmp_path / "back", store=address)
    aggregator.restore(address, tmp_path / "back")
    with aggregator.open(tmp_path / "back") as back:
        assert seen(back) == before


def test_a_directory_with_a_lock_and_nothing_else(tmp_path: Path, address: str):
    """A directory with only a lock, as left by creating a catalog on a full disk, can be restored into."""
    before = filled(tmp_path, address)
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "writer.lock").write_text("{}")
    aggregator.restore(address, tmp_path / "locked")
    with aggregator.open(tmp_path / "locked") as catalog:
        assert seen(catalog) == before


def test_a_directory_with_something_in_it(tmp_path: Path, address: str):
    """A directory with contents is left alone; a prefix without a catalog is reported."""
    filled(tmp_path, address)
    with pytest.raises(InvalidRequestError, match="not empty"):
        aggregator.restore(address, tmp_path / "a")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(InvalidRequestError, match="not empty"):
        aggregator.restore(address, tmp_path / "other")
    for ask in (lambda: aggregator.restore(address + "/nothing", tmp_path / "b"),
                lambda: aggregator.open(address + "/nothing", read_only=True)):  # fmt: skip
        with pytest.raises(CatalogNotFoundError):
            ask()


def test_an_address_is_only_read(address: str):
    """An address is refused for writing, which needs a directory."""
    with pytest.raises(InvalidRequestError, match="directory"):
        aggregator.open(address)


def test_reading_makes_no_directory(tmp_path: Path):
    """Reading a store whose directory does not exist does not create it."""
    address = (tmp_path / "store").as_uri()
    for ask in (
        lambda: aggregator.open(address, read_only=True), lambda: aggregator.restore(address, tmp_path / "back"),
        lambda: aggregator.open_many(f"{address}/*"),
    ):  # fmt: skip
        with pytest.raises(CatalogNotFoundError):
            ask()
    assert not (tmp_path / "store").exists()
