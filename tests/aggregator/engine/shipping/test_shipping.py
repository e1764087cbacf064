"""A catalog and its store: acknowledged events are in it, and a replaced writer changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from effort import ALL, long
from shipped_catalogs import SOON, events, numbers, seen_anywhere
from waiting import until

import aggregator
from aggregator import Catalog, FencedError, InvalidRequestError, OverloadedError
from aggregator.engine.shipping.mirror import Mirror
from aggregator.engine.shipping.restoring import begin_following
from aggregator.engine.standby import Standby
from aggregator.engine.writer import UNSHIPPED, now_us
from aggregator.errors import CatalogLockedError
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.store_note import read_note
from aggregator.storage.log.file import Marks
from aggregator.storage.store.client import Store
from aggregator.storage.store.lease import Lease, new_terms, read_lease
from esformat.core.commits import CHECKING_TIME

if TYPE_CHECKING:
    from benchmarks.s3_endpoint import S3Endpoint

pytestmark = pytest.mark.background


@pytest.fixture
def address(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


def test_what_is_acknowledged_is_in_the_store(tmp_path: Path, address: str):
    """With durability="store" each batch is in the store when its append returns; otherwise soon after."""
    with aggregator.open(tmp_path / "a", store=address, durability="store", **SOON) as catalog:
        topic = catalog.create_topic("t")
        for first in range(0, 50, 10):
            topic.append(events(first), partition=f"p{first % 20}")
            assert seen_anywhere(address) == list(range(first + 10))
        catalog.seal("t")
        topic.append(events(50))
        assert seen_anywhere(address) == list(range(60))
    with aggregator.open(tmp_path / "a") as catalog:
        catalog.topic("t").append(events(60))
        until(lambda: seen_anywhere(address) == list(range(70)))


def stored(address: str) -> dict[str, bytes]:
    """Every object of a store."""
    store = Store(address)
    return {each.name: store.get(each.name) for each in store.list()}


def taken_over(address: str, root: Path, **options: Any) -> Catalog:
    """Wait for the lease to expire, then open the catalog in another directory as its writer."""
    took = False
    while not took:  # a writer last heard of that long ago may have renewed its lease since
        standby = Standby(Store(address), Layout(root), now_us)
        assert standby.may_take.wait(60)
        took = standby.take_over()
    return aggregator.open(root, **options)


def cut_off(catalog: Catalog) -> None:
    """Stop a writer's lease renewal and shipping, as if its process had paused, until it appends."""
    catalog._backend.scheduler.stop()
    shipper = catalog._backend.shipper
    shipper.stop()
    for thread in shipper._threads:
        thread.join()
    shipper._closing = shipper._stopped_waiting = False


@pytest.mark.parametrize("durability", ["store", "fsync"])
def test_an_old_writer_changes_nothing(tmp_path: Path, address: str, durability: str):
    """After a takeover, the old writer's changes fail, now and later, and the store stays unchanged."""
    old = aggregator.open(tmp_path / "old", store=address, durability=durability, **SOON)
    topic = old.create_topic("t")
    topic.append(events(0), producer="p", sequence=1)
    until(lambda: seen_anywhere(address) == list(range(10)))
    cut_off(old)
    with taken_over(address, tmp_path / "new", durability=durability) as new:
        assert numbers(new) == list(range(10))
        before = stored(address)
        for first in (10, 20):
            with pytest.raises(FencedError, match="taken over this catalog"):
                topic.append(events(first))
        for change in (lambda: old.create_topic("u"), lambda: topic.erase("s0"), lambda: old.delete_topic("t")):
            with pytest.raises(FencedError):
                change()
        old.close()
        assert {name: data for name, data in stored(address).items() if name in before and name != "lease.json"} == {
            name: data for name, data in before.items() if name != "lease.json"
        }
        assert new.topic("t").append(events(0), producer="p", sequence=1).duplicate
        new.topic("t").append(events(100))
        assert numbers(new) == [*range(10), *range(100, 110)]
        assert "u" not in new.topics()
    with pytest.raises(FencedError):
        aggregator.open(tmp_path / "old")


def test_a_late_put_of_an_old_writer(tmp_path: Path, address: str):
    """A late upload of the old writer is refused if it comes after the fence, and counts if it comes before."""
    old = aggregator.open(tmp_path / "old", store=address, durability="store", **SOON)
    old.create_topic("t").append(events(0))
    cut_off(old)
    standby = Standby(Store(address), Layout(tmp_path / "new"), now_us)
    assert standby.may_take.wait(60)
    shipper = old._backend.shipper
    shipper.lease.until += 3600  # it believes that it still has the lease
    old.topic("t").append(events(10))  # before the fence
    assert standby.take_over()
    with pytest.raises(FencedError):
        old.topic("t").append(events(20))
    with aggregator.open(tmp_path / "new", durability="store") as new:
        assert numbers(new) == list(range(20))
    old.close()


@pytest.mark.parametrize(("durability", "holes"), [("store", False), ("fsync", True)])
def test_record_indexes_are_never_given_twice(tmp_path: Path, address: str, durability: str, holes: bool):
    """Indexes of the old writer's unshipped events are not reused; if everything was shipped, none is skipped."""
    old = aggregator.open(tmp_path / "old", store=address, durability=durability, **SOON)
    topic = old.create_topic("t")
    topic.append(events(0))
    until(lambda: seen_anywhere(address) == list(range(10)))
    cut_off(old)
    if holes:
        old._backend.shipper.lease.until += 3600
        assert topic.append(events(10)).last == 19  # acknowledged here only
    with taken_over(address, tmp_path / "new", durability=durability) as new:
        assert new.topic("t").append(events(50)).first == (10 + UNSHIPPED if holes else 10)
        assert numbers(new) == [*range(10), *range(50, 60)]
        new.seal("t")
        new.compact()
        assert [event["record_index"] for event in new.topic("t").read().to_table().to_pylist()][:10] == list(range(10))
    with aggregator.open(tmp_path / "new") as new:
        assert new.topic("t").append(events(60)).first == (20 + UNSHIPPED if holes else 20)
    old.close()


def killed(root: Path, address: str, code: str, **options: str) -> None:
    """Run code with a catalog `c` and a topic `t` in another process, which exits without closing anything."""
    program = f"""
import os, sys, aggregator
from shipped_catalogs import events
from esformat.parts import hide_pandas
hide_pandas()
c = aggregator.open({str(root)!r}, store={address!r}, **{SOON | options!r})
t = c.topic("t") if "t" in c.topics() else c.create_topic("t")
{textwrap.dedent(code)}
os._exit(0)
"""
    paths = os.pathsep.join([str(Path(aggregator.__file__).parents[1]), *filter(None, sys.path)])
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"PYTHONPATH": paths})


def test_the_same_machine_again(tmp_path: Path, address: str):
    """After a crash the machine still owns its lease: it opens immediately and ships the rest."""
    count = 30 if ALL else 10
    for first in range(0, count, 10):
        killed(tmp_path / "a", address, f"t.append(events({first}))", ship_interval="1h", lease="1h")
    began = time.monotonic()
    with aggregator.open(tmp_path / "a") as catalog:
        assert time.monotonic() - began < 30
        assert numbers(catalog) == list(range(count))
        assert catalog.topic("t").append(events(count)).first == count
    assert seen_anywhere(address) == list(range(count + 10))


def test_a_crash_behind_a_copy_that_needed_nothing(tmp_path: Path, address: str):
    """After a crash, the next manifest copy does not need the start of the log file, which readers skip."""
    code = """
    t.append(events(0))
    c._backend.shipper.ship()
    c.seal("t")
    c._backend.shipper.publish()
    t.append(events(10))
    c._backend.shipper.ship()
    """
    killed(tmp_path / "a", address, code, ship_interval="1h", lease="1h")
    with aggregator.open(tmp_path / "a") as catalog:
        catalog._backend.shipper.publish()
        with aggregator.open(address, read_only=True) as reader:
            assert numbers(reader) == list(range(20))
            assert reader.problems() == []


def test_a_log_that_lost_what_the_store_has(tmp_path: Path, address: str):
    """A log that lost what the store has, as in a power cut without syncs, gets it back and continues after it."""
    killed(tmp_path / "a", address, "t.append(events(0)); c._backend.shipper.publish()", durability="none")
    log = sorted((tmp_path / "a" / "log").glob("*.log"))[-1]
    kept = log.read_bytes()
    code = "t.append(events(10)); c._backend.shipper.publish(); t.append(events(20)); c._backend.shipper.ship()"
    killed(tmp_path / "a", address, code, durability="none")
    newest = sorted((tmp_path / "a" / "log").glob("*.log"))[-1]
    os.truncate(newest, 60)
    (tmp_path / "a" / "log" / "acknowledged").unlink()
    assert kept == log.read_bytes()
    with aggregator.open(tmp_path / "a") as catalog:
        assert numbers(catalog) == list(range(30))
        catalog.topic("t").append(events(30))
    assert seen_anywhere(address) == list(range(40))


def test_copies_of_a_directory_do_not_both_write(tmp_path: Path, address: str):
    """Of two copies of a directory, the first to open continues; the other is refused."""
    with aggregator.open(tmp_path / "a", store=address, **SOON) as catalog:
        catalog.create_topic("t").append(events(0))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with aggregator.open(tmp_path / "b") as copy:
        copy.topic("t").append(events(10))
    with pytest.raises(FencedError):
        aggregator.open(tmp_path / "a")


def test_log_files_stay_until_they_are_shipped(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """Log files stay until shipped, although their events are sealed: a store that fails for a while loses nothing."""
    address = f"s3://{bucket}/c"
    tuning = aggregator.policy.Tuning(log_file_bytes=4096, tick_s=0.05)
    with aggregator.open(tmp_path / "a", store=address, ship_interval="50ms", lease="1h", tuning=tuning) as catalog:
        topic = catalog.create_topic("t")
        s3.refuse = lambda method, path, query: 503
        for first in range(0, 1000, 100):
            topic.append(events(first, 100))
            catalog.seal("t")
        log = catalog._backend.log
        assert log.start < catalog._backend.shipper.shipped + 4096 < log.newest
        s3.refuse = lambda method, path, query: None
        until(lambda: catalog._backend.shipper.shipped == log.end)
        until(lambda: log.start == log.newest)
    assert seen_anywhere(address) == list(range(1000))


@long
def test_a_store_that_does_not_answer_for_a_lease(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """If the store fails for longer than a lease, another writer may take over, so appends wait for its answer."""
    address = f"s3://{bucket}/c"
    with aggregator.open(tmp_path / "a", store=address, **SOON) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        s3.refuse = lambda method, path, query: 503
        until(lambda: catalog._backend.shipper.lease.left_s < 0)
        with pytest.raises(OverloadedError, match="does not answer"):
            topic.append(events(10))
        s3.refuse = lambda method, path, query: None
        until(lambda: catalog._backend.shipper.lease.left_s > 0)
        topic.append(events(10))
    assert seen_anywhere(address) == list(range(20))


def test_a_sync_that_outlasts_the_lease(tmp_path: Path, s3: S3Endpoint, bucket: str, monkeypatch: pytest.MonkeyPatch):
    """An append admitted earlier is written, but neither acknowledged nor marked until the lease is renewed."""
    with aggregator.open(tmp_path / "a", store=f"s3://{bucket}/c", **SOON) as catalog:
        topic, log = catalog.create_topic("t"), catalog._backend.layout.log
        topic.append(events(0))
        shipper, marked = catalog._backend.shipper, Marks.read(log).position
        s3.refuse = lambda method, path, query: 503
        until(lambda: shipper.lease.left_s < 0)
        monkeypatch.setattr(shipper, "admit", lambda: None)
        appending = Thread(target=topic.append, args=(events(10),))
        appending.start()
        until(lambda: catalog._backend.log._commits.reached == CHECKING_TIME)
        appending.join(0.3)
        assert appending.is_alive()
        assert Marks.read(log).position == marked
        s3.refuse = lambda method, path, query: None
        appending.join(60)
        assert Marks.read(log).position > marked
        assert numbers(catalog) == list(range(20))


def test_no_append_asks_while_the_lease_lasts(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch):
    """With "fsync" no append renews the lease while it lasts: writing the mark checks the clock."""
    with aggregator.open(tmp_path / "a", store=address) as catalog:
        topic, asked = catalog.create_topic("t"), []
        monkeypatch.setattr(catalog._backend.shipper, "hold", asked.append)
        topic.append(events(0))
        assert asked == []


def test_an_append_waits_for_its_store(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """With durability="store" an append waits for a busy store and is acknowledged once, when it is there."""
    address = f"s3://{bucket}/c"
    with aggregator.open(tmp_path / "a", store=address, durability="store", ship_interval="1h", lease="1h") as catalog:
        topic = catalog.create_topic("t")
        refusals = iter([503, 503])
        s3.refuse = lambda method, path, query: next(refusals, None)
        topic.append(events(0))
        assert next(refusals, None) is None
        assert seen_anywhere(address) == list(range(10))


def test_what_was_erased_is_not_restored(tmp_path: Path, address: str):
    """Once an erasure is acknowledged, erased events are not restored, although nothing ships in the background."""
    slow = {"ship_interval": "1h", "lease": "1h"}
    with aggregator.open(tmp_path / "a", store=address, durability="store", **slow) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        topic.erase("s1")
        assert seen_anywhere(address) == [0, 2, 3, 5, 6, 8, 9]
        aggregator.restore(address, tmp_path / "back")
    with aggregator.open(tmp_path / "back") as back:
        assert numbers(back) == [0, 2, 3, 5, 6, 8, 9]


def test_one_prefix_one_catalog(tmp_path: Path, address: str):
    """A prefix belongs to one catalog: another one is refused, and so is a directory that only follows."""
    aggregator.open(tmp_path / "a", store=address, **SOON).close()
    with pytest.raises(InvalidRequestError, match="another catalog"):
        aggregator.open(tmp_path / "b", store=address)
    begin_following(Layout(tmp_path / "c"), Store(address))
    with pytest.raises(InvalidRequestError, match="follows the catalog"):
        aggregator.open(tmp_path / "c", store=address)


def test_objects_of_others_below_the_prefix(tmp_path: Path, address: str):
    """Objects with other names, such as notes of copying tools, are ignored and kept."""
    others = ["log/.keep", "log/_SUCCESS", "log/1.md5", "manifest/_SUCCESS", "segments/_SUCCESS", "notes.txt"]
    for name in others:
        Store(address).put(name, b"of another")
    for first in (0, 10):
        with aggregator.open(tmp_path / "a", store=address, durability="store", **SOON) as catalog:
            topic = catalog.topic("t") if first else catalog.create_topic("t")
            topic.append(events(first))
            catalog.seal()
            assert seen_anywhere(address) == list(range(first + 10))
    aggregator.restore(address, tmp_path / "b")
    with aggregator.open(tmp_path / "b", read_only=True) as back:
        assert numbers(back) == list(range(20))
    assert {each.name for each in Store(address).list()} >= set(others)


def test_a_store_that_cannot_be_taken_changes_nothing(tmp_path: Path, address: str):
    """If the prefix belongs to another catalog, the opened one keeps having no store, or its own."""
    aggregator.open(tmp_path / "a", store=address, **SOON).close()
    with aggregator.open(tmp_path / "b") as catalog:
        catalog.create_topic("t").append(events(0))
    own = f"{address}-of-b"
    for store in (None, own):
        aggregator.open(tmp_path / "b", store=store).close()
        with pytest.raises(InvalidRequestError, match="another catalog"):
            aggregator.open(tmp_path / "b", store=address)
        with aggregator.open(tmp_path / "b") as catalog:
            assert (catalog._backend.store and catalog._backend.store.address) == store
            assert numbers(catalog) == list(range(10))
    assert seen_anywhere(own) == list(range(10))


def test_the_store_is_kept(tmp_path: Path, address: str):
    """Reopening a catalog needs no store argument."""
    aggregator.open(tmp_path / "a", store=address, **SOON).close()
    with aggregator.open(tmp_path / "a") as catalog:
        assert catalog._backend.shipper is not None
        assert catalog._backend.shipper._settings.lease_us == 1_000_000


def test_a_catalog_gets_a_store_later(tmp_path: Path, address: str):
    """A catalog that gets a store later ships all it has, sealed or not."""
    with aggregator.open(tmp_path / "a") as catalog:
        catalog.create_topic("t").append(events(0))
        catalog.seal("t")
        catalog.topic("t").append(events(10))
    with aggregator.open(tmp_path / "a", store=address, **SOON) as catalog:
        until(lambda: catalog._backend.shipper._published)
        assert seen_anywhere(address) == list(range(20))


def test_settings_that_make_no_sense(tmp_path: Path, address: str):
    """Contradictory settings are refused before anything is written to the store."""
    with pytest.raises(InvalidRequestError, match="needs a store"):
        aggregator.open(tmp_path / "a", durability="store")
    for wrong in ({"lease": "1ms"}, {"ship_interval": 0}, {"store": "ftp://x"}):
        with pytest.raises(InvalidRequestError):
            aggregator.open(tmp_path / "b", **({"store": address} | wrong))
    assert stored(address) == {}


def test_two_standbys(tmp_path: Path, address: str):
    """Of two standbys, one takes over, and the other starts over and follows it."""
    with aggregator.open(tmp_path / "a", store=address, durability="store", **SOON) as catalog:
        catalog.create_topic("t").append(events(0))
    standbys = [Standby(Store(address), Layout(tmp_path / name), now_us) for name in "bc"]
    for standby in standbys:
        assert standby.may_take.wait(60)
    assert [standby.take_over() for standby in standbys] == [True, False]
    with aggregator.open(tmp_path / "b", durability="store") as catalog:
        catalog.topic("t").append(events(10))
        again = Standby(Store(address), Layout(tmp_path / "c"), now_us)
        with aggregator.Catalog(again.backend) as reading:
            assert numbers(reading) == list(range(20))
        again.close()


@pytest.mark.parametrize("opened", [False, True])
def test_a_take_over_that_takes_longer_than_the_lease(
    tmp_path: Path, address: str, opened: bool, monkeypatch: pytest.MonkeyPatch
):
    """If a takeover outlasts the lease, for example because the machine slept, another server takes over and keeps the
    catalog; the late one follows again.

    opened: whether the other server has opened the catalog by then or has only taken the lease.
    """
    with aggregator.open(tmp_path / "a", store=address, **SOON) as catalog:
        catalog.create_topic("t").append(events(0))
    late = Standby(Store(address), Layout(tmp_path / "b"), now_us)
    assert late.may_take.wait(60)
    others: list[Catalog] = []

    def poll(mirror: Mirror) -> bool:
        monkeypatch.undo()
        if opened:
            others.append(taken_over(address, tmp_path / "c"))
            others[0].topic("t").append(events(10))
        else:
            seen = read_lease(Store(address))
            Lease(Store(address), seen, new_terms(seen, 60, in_store=False))
        return mirror.poll()

    monkeypatch.setattr(Mirror, "poll", poll)
    assert not late.take_over()
    note = read_note(Layout(tmp_path / "b"))
    assert note is not None
    assert note.following
    for other in others:
        other.topic("t").append(events(20))
        other.close()
        assert seen_anywhere(address) == list(range(30))


@pytest.mark.parametrize("closed", [False, True])
def test_a_take_over_where_all_is_sealed(tmp_path: Path, address: str, closed: bool):
    """If everything is sealed, no frame is fetched; the log continues at the old end, so appends reach the store."""
    catalog = aggregator.open(tmp_path / "a", store=address, durability="store", **SOON)
    catalog.create_topic("t").append(events(0))
    catalog.seal("t")
    catalog._backend.shipper.publish()
    if closed:
        catalog.close()
    else:
        cut_off(catalog)
    with taken_over(address, tmp_path / "b", durability="store") as other:
        assert other._backend.log.end >= other._backend.shipper.shipped
        other.topic("t").append(events(10))
        assert seen_anywhere(address) == list(range(20))
        assert other.problems() == []
    assert seen_anywhere(address) == list(range(20))
    catalog.close()


def test_a_take_over_within_a_frame(tmp_path: Path, address: str):
    """If a writer dies while shipping a frame, its successor continues before that frame, and readers follow."""
    old = aggregator.open(tmp_path / "a", store=address, ship_interval="1h", lease="1s")
    topic, ship = old.create_topic("t"), old._backend.shipper
    topic.append(events(0))
    ship.ship()
    topic.append([one | {"payload": b"%15000d" % one["timestamp"]} for one in events(10)])
    pieces = old._backend.log.read(ship.shipped, old._backend.log.end, 10_000)
    ship._put(ship._object(pieces, ship.shipped + 10_000, None, whole=False))
    cut_off(old)
    with aggregator.open(address, read_only=True) as reader:
        assert numbers(reader) == list(range(10))
        with taken_over(address, tmp_path / "b", durability="store") as new:
            assert new._backend.shipper.shipped == new._backend.log.end
            new.topic("t").append(events(20))
            new.topic("t").append([one | {"payload": b"%15000d" % one["timestamp"]} for one in events(30)])
            wanted = [*range(10), *range(20, 40)]
            assert numbers(reader) == seen_anywhere(address) == wanted
            assert new.problems() == []
            shutil.copytree(tmp_path / "store", tmp_path / "copy")
    aggregator.restore((tmp_path / "copy").as_uri(), tmp_path / "back")
    for root in ("b", "back"):
        with aggregator.open(tmp_path / root) as again:
            assert numbers(again) == wanted
            assert again.problems() == []
    old.close()


def test_a_standby_that_died_on_the_way(tmp_path: Path, address: str):
    """A standby that died after taking the lease need not wait for its own lease to expire."""
    with aggregator.open(
        tmp_path / "a", store=address, durability="store", ship_interval="20ms", lease="1h"
    ) as catalog:
        catalog.create_topic("t").append(events(0))
    standby = Standby(Store(address), Layout(tmp_path / "b"), now_us)
    assert standby.may_take.wait(60)
    assert standby.take_over()
    begin_following_again(tmp_path / "b")
    with taken_over(address, tmp_path / "b", durability="store") as catalog:
        assert numbers(catalog) == list(range(10))
    seen = read_lease(Store(address))
    assert seen is not None
    assert seen.terms.released


def begin_following_again(root: Path) -> None:
    """Act as if it had died before its note said that it was done."""
    note = (root / "store.json").read_text()
    (root / "store.json").write_text(note.replace('"following": false', '"following": true'))


def test_who_was_quicker_is_named(tmp_path: Path, address: str):
    """A directory that is open for writing cannot be opened by another writer."""
    with aggregator.open(tmp_path / "a", store=address, **SOON), pytest.raises(CatalogLockedError):
        aggregator.open(tmp_path / "a")
