"""Trouble between a catalog and its store: acknowledged events are safe, and nothing waits forever."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from effort import long
from shipped_catalogs import SOON, events, numbers, seen_anywhere
from waiting import PATIENCE_S, until

import aggregator
from aggregator import FencedError
from aggregator.engine.standby import Standby
from aggregator.engine.upkeep.rewrite import Stopped
from aggregator.engine.writer import WriterEngine, now_us
from aggregator.errors import LogFailedError, StoreError, StoreUnreachableError, TopicNotFoundError
from aggregator.storage.files.layout import Layout
from aggregator.storage.store.client import Store
from aggregator.storage.store.lease import Lease, Seen, Terms
from aggregator.storage.store.shipped import LOG, MANIFESTS
from esformat import ClosedError

if TYPE_CHECKING:
    from benchmarks.s3_endpoint import Request, S3Endpoint

pytestmark = pytest.mark.background
SLOWLY = {"ship_interval": "1h", "lease": "1h"}


@pytest.fixture
def address(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


def test_a_standby_that_slept(tmp_path: Path, address: str):
    """A standby that slept while objects it had not read expired takes over with everything acknowledged."""
    old = aggregator.open(tmp_path / "a", store=address, durability="store", history="1us", **SOON)
    topic = old.create_topic("t")
    topic.append(events(0))
    standby = Standby(Store(address), Layout(tmp_path / "b"), now_us)
    standby._ending.set()
    standby._thread.join()  # its machine sleeps
    shipper = old._backend.shipper
    first = shipper._sequence
    for number in range(10, 60, 10):
        topic.append(events(number))
        old.seal("t")
        shipper.publish()
    topic.append(events(60))
    shipper.clean_up()
    assert min(each.name for each in Store(address).list(LOG)) > f"{LOG}/{first:020d}"
    shipper.stop()
    for thread in shipper._threads:
        thread.join()
    standby._ending.clear()
    assert not standby._watch.is_free()
    until(standby._watch.is_free)
    standby._seen = standby._watch.seen
    assert standby.take_over()
    with pytest.raises(FencedError):
        shipper.ship() or shipper.publish()
    with aggregator.open(tmp_path / "b", durability="store") as new:
        assert numbers(new) == list(range(70))
    old.close()


def test_a_directory_that_slept(tmp_path: Path, address: str):
    """An older copy of the directory, whose next objects are deleted, continues after the last one."""
    catalog = aggregator.open(tmp_path / "a", store=address, durability="store", history="1us", **SLOWLY)
    topic = catalog.create_topic("t")
    shipper = catalog._backend.shipper
    note = (tmp_path / "a" / "store.json").read_bytes()
    for number in range(0, 50, 10):
        topic.append(events(number))
        catalog.seal("t")
        shipper.publish()
    topic.append(events(50))
    shipper.clean_up()
    last = shipper._sequence
    shipper.stop()
    shipper.close(publish=False)
    catalog.close()
    (tmp_path / "a" / "store.json").write_bytes(note)
    with aggregator.open(tmp_path / "a", durability="store") as again:
        assert again._backend.shipper._sequence > last
        again.topic("t").append(events(60))
        assert seen_anywhere(address) == list(range(70))


def test_an_opening_that_takes_longer_than_the_lease(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch):
    """Nobody takes over during an opening that outlasts the lease; a failed opening stops renewing it."""
    slowly = {"ship_interval": "20ms", "lease": "3s"}  # a busy machine may be more than a second late
    with aggregator.open(tmp_path / "a", store=address, durability="store", **slowly) as catalog:
        catalog.create_topic("t").append(events(0))
    with monkeypatch.context() as slow:
        recover = WriterEngine._recover

        def long(engine: WriterEngine) -> Any:
            standby = Standby(Store(address), Layout(tmp_path / "b"), now_us)
            assert not standby.may_take.wait(4.5)
            standby.close()
            return recover(engine)

        slow.setattr(WriterEngine, "_recover", long)
        with aggregator.open(tmp_path / "a", durability="store") as catalog:
            catalog.topic("t").append(events(10))
            assert seen_anywhere(address) == list(range(20))

        def failing(engine: WriterEngine) -> Any:
            raise OSError(errno.EIO, "the disk is of no use")

        slow.setattr(WriterEngine, "_recover", failing)
        with pytest.raises(OSError, match="of no use"):
            aggregator.open(tmp_path / "a", durability="store")
    standby = Standby(Store(address), Layout(tmp_path / "b"), now_us)
    assert standby.may_take.wait(60)
    standby.close()


def test_objects_that_were_damaged_on_their_way(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch):
    """A standby survives objects damaged in transit, as by a proxy, and takes over with everything."""
    old = aggregator.open(tmp_path / "a", store=address, durability="store", ship_interval="20ms", lease="5s")
    topic = old.create_topic("t")
    standby = Standby(Store(address), Layout(tmp_path / "b"), now_us)
    get, seen = Store.get, set[str]()

    def damaged(store: Store, name: str) -> bytes:
        found = get(store, name)
        if not name.startswith((LOG, MANIFESTS)) or name in seen:
            return found
        seen.add(name)
        return b"<html>Please log in</html>" if len(seen) % 2 else found[:-1]

    monkeypatch.setattr(Store, "get", damaged)
    for number in range(0, 50, 10):
        topic.append(events(number))
    old.create_topic("u")
    until(lambda: standby.backend.mirror.at.sequence >= old._backend.shipper._sequence)
    assert standby.backend.mirror.at.damages == {}
    assert {name.partition("/")[0] for name in seen} == {LOG, MANIFESTS}
    old.close()
    assert standby.may_take.wait(60)
    assert standby.take_over()
    with aggregator.open(tmp_path / "b", durability="store") as new:
        assert numbers(new) == list(range(50))


def test_a_damaged_segment_keeps_back_nothing_else(tmp_path: Path, address: str):
    """A segment damaged before its upload delays neither the log nor manifest copies."""
    with aggregator.open(tmp_path / "a", store=address, ship_interval="20ms", lease="1h") as catalog:
        topic = catalog.create_topic("t")
        bring, catalog._backend.shipper.push = catalog._backend.shipper.push, refuse
        catalog._backend.upkeep.tier._after = time.monotonic() + 3600
        topic.append(events(0), partition="p")
        catalog.seal("t")
        (path,) = (tmp_path / "a" / "segments").glob("*/*.esdb")
        path.write_bytes(path.read_bytes()[:-30] + bytes(30))
        topic.append(events(10))
        until(lambda: catalog._backend.shipper.shipped == catalog._backend.log.end)  # although no copy can be uploaded
        until(lambda: "no segment" in (catalog.trouble or ""))
        catalog._backend.shipper.push = bring
        topic.append(events(20))
        catalog.create_topic("u")
        report = aggregator.restore(address, tmp_path / "back")
    assert len(report.lacking) == 1
    with aggregator.open(tmp_path / "back") as back:
        assert back.topics() == ("t", "u")
        assert back.topic("t").read("0").count() == 20


def refuse(_segments: object) -> None:
    """Refuse to upload segments."""
    raise StoreUnreachableError("no segment comes through")


def test_segments_that_take_long_keep_back_no_frame(tmp_path: Path, address: str):
    """Slow segment uploads delay neither frames nor the creation of topics, even for longer than a lease."""
    go = threading.Event()
    with aggregator.open(tmp_path / "a", store=address, ship_interval="20ms", lease="1s") as catalog:
        topic = catalog.create_topic("t")
        bring = catalog._backend.shipper.push
        catalog._backend.shipper.push = lambda segments: go.wait(60) and bring(segments)
        topic.append(events(0))
        catalog.seal("t")
        topic.append(events(10))
        until(lambda: catalog._backend.shipper.shipped == catalog._backend.log.end)
        began = time.monotonic()
        catalog.create_topic("u")
        assert time.monotonic() - began < 30
        go.set()


def test_an_erasure_that_is_not_in_the_store_yet(tmp_path: Path, address: str):
    """An erasure that the store does not have yet raises an error: a successor would have the events back."""
    go = threading.Event()
    with aggregator.open(tmp_path / "a", store=address, ship_interval="20ms", lease="1s") as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        bring = catalog._backend.shipper.push
        catalog._backend.shipper.push = lambda segments: go.wait(60) and bring(segments)
        catalog.seal("t")
        with pytest.raises(StoreUnreachableError, match="hidden here"):
            topic.erase("s1")
        assert 1 not in numbers(catalog)
        with pytest.raises(StoreUnreachableError, match="hidden here"):
            topic.erase("s1")
        assert 1 in seen_anywhere(address)
        go.set()

        def again() -> bool:
            """Erase again; on a busy machine the upload may take longer than a lease."""
            with contextlib.suppress(StoreUnreachableError):
                topic.erase("s1")
                return True
            return False

        until(again)
        assert 1 not in seen_anywhere(address)


@long
def test_a_deletion_that_is_not_in_the_store_yet(tmp_path: Path, address: str):
    """A topic's deletion raises likewise; "not found" means that the topic is gone from the store as well."""
    go = threading.Event()
    with aggregator.open(tmp_path / "a", store=address, ship_interval="20ms", lease="1s") as catalog:
        catalog.create_topic("t").append(events(0))
        other = catalog.create_topic("other")
        bring = catalog._backend.shipper.push
        catalog._backend.shipper.push = lambda segments: go.wait(60) and bring(segments)
        other.append(events(0))
        catalog.seal("other")
        for _ in range(2):
            with pytest.raises(StoreUnreachableError, match="deleted here"):
                catalog.delete_topic("t")
            assert catalog.topics() == ("other",)
            assert seen_anywhere(address) == numbers(catalog, "other")
        go.set()

        def again() -> None:
            """Delete again; on a busy machine the upload may take longer than a lease."""
            with contextlib.suppress(StoreUnreachableError):
                catalog.delete_topic("t")

        with pytest.raises(TopicNotFoundError):
            until(again)
        assert seen_anywhere(address) == []


def test_a_store_that_refuses_for_a_while(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """An append waits while the store refuses, as with expired credentials, and is acknowledged when it accepts."""
    address = f"s3://{bucket}/c"
    with aggregator.open(tmp_path / "a", store=address, durability="store", ship_interval="1h", lease="1h") as catalog:
        topic = catalog.create_topic("t")
        left = iter([403] * 6)
        s3.refuse = lambda method, path, query: next(left, None)
        topic.append(events(0))
        assert next(left, None) is None
        assert catalog.trouble is not None
        topic.append(events(10))
        assert seen_anywhere(address) == list(range(20))


def test_a_store_that_refuses_is_told_of_once(
    tmp_path: Path, s3: S3Endpoint, bucket: str, caplog: pytest.LogCaptureFixture
):
    """Each thread of a writer, and a standby, logs a refusal once, although they retry five times a second."""
    address, refused, troubles = f"s3://{bucket}/c", Counter[str](), set()

    def refuse(method: str, path: str, query: str) -> int:
        refused[method] += 1
        return 403

    with aggregator.open(
        tmp_path / "a", store=address, durability="store", ship_interval="20ms", lease="5s"
    ) as catalog:
        topic = catalog.create_topic("t")
        standby = Standby(Store(address), Layout(tmp_path / "b"), now_us)
        s3.refuse = refuse
        thread = threading.Thread(target=topic.append, args=(events(0),))
        thread.start()
        while refused["GET"] < 4 or refused["PUT"] < 40:
            troubles.add(catalog.trouble)
            time.sleep(0.02)
        s3.refuse = lambda method, path, query: None
        thread.join()
        until(lambda: catalog.trouble is None)
        standby.close()
    ours = [each for each in caplog.records if each.message.startswith(("shipping failed", "following"))]
    told = Counter(each.threadName for each in ours)
    assert told["aggregator-standby"] == 1
    assert max(told.values()) == 1, told
    assert len(troubles) < 10, troubles


def test_something_that_answers_in_the_place_of_the_store(tmp_path: Path, address: str):
    """After an answer that is not the store's, as from a proxy, the lease is renewed again; an opening reports it."""
    lease, whose = tmp_path / "store" / "lease.json", tmp_path / "store" / "catalog.json"
    with aggregator.open(tmp_path / "a", store=address, **SOON) as catalog:
        topic = catalog.create_topic("t")
        stored = lease.read_bytes()
        lease.write_bytes(b"<html>")
        until(lambda: "cannot be read" in (catalog.trouble or ""))
        lease.write_bytes(stored)
        until(lambda: catalog.trouble is None and catalog.stats()["store"]["shipping"]["lease_seconds"] > 0)
        topic.append(events(0))
    known = whose.read_bytes()
    whose.write_bytes(b"<html>")
    with pytest.raises(StoreError, match="cannot read which catalog"):
        aggregator.open(tmp_path / "a")
    whose.write_bytes(known)
    with aggregator.open(tmp_path / "a") as catalog:
        assert numbers(catalog) == list(range(10))


@long
def test_changes_wait_for_no_store_at_the_end(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """With durability="store" a change waits like an append; if the catalog closes, it raises instead of succeeding."""
    address = f"s3://{bucket}/c"
    catalog = aggregator.open(tmp_path / "a", store=address, durability="store", ship_interval="20ms", lease="1s")
    topic = catalog.create_topic("t")
    topic.append(events(0))
    s3.refuse = lambda method, path, query: 503
    told: list[object] = []

    def erase() -> None:
        try:
            told.append(topic.erase("s1"))
        except LogFailedError as error:
            told.append(error)

    thread = threading.Thread(target=erase, daemon=True)
    thread.start()
    until(lambda: catalog._backend.shipper._facts > catalog._backend.shipper._published)
    time.sleep(1.5)  # longer than a lease
    assert not told
    catalog._backend.stop_background()
    thread.join(60)
    assert isinstance(told[0], LogFailedError)
    s3.refuse = lambda method, path, query: None
    catalog.close()


def test_a_change_while_the_catalog_is_being_closed(tmp_path: Path, address: str):
    """A change during closing raises ClosedError, and no trouble is reported, because the upload was only stopped."""
    with aggregator.open(tmp_path / "a", store=address, durability="store", **SOON) as catalog:
        shipper = catalog._backend.shipper
        push = shipper.push

        def stopped(segments: object) -> None:
            raise Stopped("the catalog is being closed")

        shipper.push = stopped
        shipper.stop()
        with pytest.raises(ClosedError, match="being closed") as caught:
            catalog.create_topic("t")
        assert "next opening decides" in str(caught.value)
        shipper.push = push
        assert shipper.trouble is None


def test_what_was_told_is_in_the_store_whoever_copied_it(tmp_path: Path, address: str):
    """An acknowledged erasure is in the store, even if another thread wrote it to the manifest backup."""
    with aggregator.open(tmp_path / "a", store=address, durability="store", **SLOWLY) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        manifest = catalog._backend.manifest
        keep = manifest.write_backup

        def late() -> None:
            catalog._backend.backup.try_to_write()
            keep()

        manifest.write_backup = late
        topic.erase("s1")
        assert seen_anywhere(address) == [0, 2, 3, 5, 6, 8, 9]


def test_a_copy_names_what_is_there(tmp_path: Path, address: str):
    """If a segment that a manifest copy names is gone before its upload, publishing the copy raises an error."""
    with aggregator.open(tmp_path / "a", store=address, **SLOWLY) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        catalog.seal("t")
        tier = catalog._backend.upkeep.tier
        tier._after = time.monotonic() + 3600
        (info,) = tier.live()
        tier._put = lambda info, failed: False  # as if the store failed and the segment was removed meanwhile
        with pytest.raises(StoreError, match="removed"):
            tier.bring([info])
        with pytest.raises(StoreError, match="removed"):
            catalog._backend.shipper.publish()
        del tier._put


def test_a_standby_survives_what_nobody_thought_of(tmp_path: Path, address: str):
    """A standby whose reads fail with an unforeseen error still takes over."""
    called, failed = threading.Event(), threading.Event()

    def fail() -> None:
        failed.set()
        raise ZeroDivisionError

    with aggregator.open(
        tmp_path / "a", store=address, durability="store", ship_interval="20ms", lease="5s"
    ) as catalog:
        catalog.create_topic("t").append(events(0))
        standby = Standby(Store(address), Layout(tmp_path / "b"), now_us)
        standby.call_when_free(called.set)
        standby.backend.refresh = fail
        assert failed.wait(PATIENCE_S)
    assert standby.may_take.wait(PATIENCE_S)
    assert called.wait(PATIENCE_S)
    again = threading.Event()
    standby.call_when_free(again.set)
    assert again.wait(PATIENCE_S)
    assert standby.take_over()


def test_how_far_the_store_is_behind(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """`stats` reports the lag in bytes and seconds and the trouble; without a lag they are zero."""
    address = f"s3://{bucket}/c"
    with aggregator.open(tmp_path / "a", store=address, ship_interval="50ms", lease="1h") as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        until(lambda: catalog.stats()["store"]["shipping"]["lag_bytes"] == 0)
        s3.refuse = lambda method, path, query: 403
        topic.append(events(10))
        until(lambda: catalog.stats()["store"]["shipping"]["trouble"] is not None)
        time.sleep(0.2)
        found = catalog.stats()["store"]["shipping"]
        assert found["lag_bytes"] > 0
        assert 0.2 < found["lag_seconds"] < 60
        assert (found["epoch"], found["fenced"]) == (1, False)
        s3.refuse = lambda method, path, query: None
        until(lambda: catalog.stats()["store"]["shipping"]["lag_seconds"] == 0)
    with aggregator.open(address, read_only=True) as reader:
        assert reader.stats()["store"]["shipping"]["shipped_us"] > found["shipped_us"]


def test_requests_of_opening(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """Opening reads no object twice and only the newest manifest copy; taking a lease reads it once."""
    address = f"s3://{bucket}/c"
    with aggregator.open(tmp_path / "a", store=address, ship_interval="1h", lease="1h") as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        catalog.seal("t")
        catalog._backend.shipper.publish()
        for number in range(10, 60, 10):
            topic.append(events(number))
            catalog._backend.shipper.ship()
    with s3.recorded() as reading:
        reader = aggregator.open(address, read_only=True)
    with reader:
        copies = [name for name in names(reading) if name.startswith("manifest/")]
        assert len(copies) == 1
        asked = Counter(names(reading))
        there = {each.name for each in Store(address).list("log")}
        assert {name for name, times in asked.items() if times > 1} <= asked.keys() - there - set(copies)
        assert asked.total() <= 14
        assert numbers(reader) == list(range(60))
    with s3.recorded() as writing:
        aggregator.open(tmp_path / "a", ship_interval="1h", lease="1h").close()
    assert len([each for each in writing if each.method in ("GET", "HEAD") and each.path.endswith("lease.json")]) == 1


def names(requests: list[Request]) -> list[str]:
    """Names of the requested objects within a catalog's store."""
    return [each.path.partition("/c/")[2] for each in requests if not each.query]


def test_a_reader_that_comes_while_much_is_put(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """A reader catches up with a slow store although objects are being added to it."""
    address, stop = f"s3://{bucket}/c", threading.Event()
    with aggregator.open(tmp_path / "a", store=address, durability="store", ship_interval="1h", lease="1h") as catalog:
        topic = catalog.create_topic("t")
        for number in range(40):
            topic.append(events(number, 1))

        def append() -> None:
            while not stop.is_set():
                topic.append(events(0, 1))

        s3.latency_seconds = 0.05
        thread = threading.Thread(target=append)
        thread.start()
        try:
            began = time.monotonic()
            assert len(seen_anywhere(address)) > 40
            assert time.monotonic() - began < 60
        finally:
            stop.set()
            thread.join(60)
            s3.latency_seconds = 0.0


def test_a_writer_that_was_paused_tells_of_no_change(tmp_path: Path, address: str):
    """A paused writer whose catalog was taken over does not confirm a change, whatever its durability."""
    old = aggregator.open(tmp_path / "old", store=address, **SOON)
    topic = old.create_topic("t")
    topic.append(events(0))
    shipper = old._backend.shipper
    until(lambda: shipper.shipped == old._backend.log.end)
    old._backend.scheduler.stop()
    shipper.stop()
    for thread in shipper._threads:
        thread.join()
    shipper._closing = shipper._stopped_waiting = False  # as when it resumes
    standby = Standby(Store(address), Layout(tmp_path / "new"), now_us)
    assert standby.may_take.wait(60)
    assert standby.take_over()
    with pytest.raises(FencedError):
        topic.erase("s1")
    old.close()


def test_a_disk_that_is_full_where_the_store_is_noted(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch):
    """If the disk is too full to note what was uploaded, the uploads count anyway, and the log continues."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with aggregator.open(tmp_path / "a", store=address, durability="store", **SLOWLY) as catalog:
        topic = catalog.create_topic("t")
        with monkeypatch.context() as patched:
            patched.setattr("aggregator.engine.shipping.shipper.write_note", full)
            topic.append(events(0))
            catalog._backend.shipper.publish()
            topic.append(events(10))
            assert "no space" in catalog.trouble
        topic.append(events(20))
        catalog._backend.shipper.publish()
        assert catalog.trouble is None
    with aggregator.open(tmp_path / "a") as catalog:
        assert numbers(catalog) == list(range(30))


def test_a_young_catalog_in_a_store_that_lists_late(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch):
    """A new catalog can be read before the store lists its objects."""
    with aggregator.open(tmp_path / "a", store=address, durability="store", **SLOWLY) as catalog:
        catalog.create_topic("t").append(events(0))
        monkeypatch.setattr(Store, "list", lambda self, folder="", after=None: iter(()))
        assert seen_anywhere(address) == list(range(10))


def test_a_lease_that_was_asked_for_and_came_late(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch):
    """A lease that is granted after its opening failed still belongs to this directory, also after a second attempt."""
    with aggregator.open(tmp_path / "a", store=address, durability="store", **SOON) as catalog:
        catalog.create_topic("t").append(events(0))
    asked: list[tuple[Store, Seen | None, Terms]] = []

    def unanswered(*given: Any) -> Lease:
        asked.append(given)
        raise StoreUnreachableError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr("aggregator.engine.shipping.attach.take", unanswered)
        for _ in range(2):
            with pytest.raises(StoreUnreachableError):
                aggregator.open(tmp_path / "a")
    Lease(*asked[0])
    with aggregator.open(tmp_path / "a") as catalog:
        assert numbers(catalog) == list(range(10))
