"""What the store keeps of a catalog's past, and what it deletes."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log_poison import LONG, log_by_hand, newest_columns, stored_anywhere
from log_poison import events as poison
from shipped_catalogs import events, numbers, seen_anywhere

import aggregator
from aggregator.engine.shipping.history import Kept, outdated
from aggregator.storage.store.client import Store, Stored
from aggregator.storage.store.shipped import LOG, MANIFESTS, manifest_name, quarantined_object
from tests.soak.store_owned import ownerless

if TYPE_CHECKING:
    from benchmarks.s3_endpoint import S3Endpoint

pytestmark = pytest.mark.background
QUIET: dict[str, Any] = {"ship_interval": "1h", "lease": "1h", "durability": "store"}


def copies(*ages_s: float) -> list[Stored]:
    """Manifest copies of these ages."""
    return [
        Stored(manifest_name(number + 1, 1), 10, "", 10**12 - round(age * 1e6)) for number, age in enumerate(ages_s)
    ]


@pytest.mark.parametrize(
    ("ages_s", "gone", "oldest"),
    [
        ((), 0, None),
        ((1000, 500), 0, 1),
        ((1000, 500, 0), 1, 2),
        ((1000, 500, 50, 0), 2, 3),
        ((90, 80, 70, 0), 0, 1),
    ],
)
def test_which_copies_go(ages_s: tuple[float, ...], gone: int, oldest: int | None):
    """Copies older than the history are deleted, except for the newest two."""
    known = copies(*ages_s)
    going, first = outdated(known, 100_000_000, "")
    assert going == [each.name for each in known[:gone]]
    assert first == oldest


def test_copies_of_one_second():
    """Without a history only the newest two copies stay, also if the store's clock has whole seconds."""
    known = copies(0, 0, 0, 0)
    assert outdated(known, 0, "") == ([known[0].name, known[1].name], 3)
    assert outdated(known, 1, "") == ([], 1)


def test_copies_that_nobody_announced():
    """The last announced copy stays, however many newer copies exist."""
    known = copies(1000, 900, 800, 700, 600)
    going, first = outdated(known, 100_000_000, known[1].name)
    assert going == [known[0].name, known[2].name]
    assert first == 2


def test_which_objects_are_named():
    """Objects of the newest copy are kept; those of older copies for a period; unknown ones for the first period."""
    now = [0.0]
    kept = Kept(100, lambda: now[0])
    assert "a" in kept
    kept.published(["a", "b"])
    now[0] = 90
    kept.published(["b"])
    assert ("a" in kept, "b" in kept, "unknown" in kept) == (True, True, True)
    now[0] = 101
    assert ("a" in kept, "b" in kept, "unknown" in kept) == (True, True, False)
    now[0] = 191
    assert ("a" in kept, "b" in kept) == (False, True)


def test_the_past_is_let_go(tmp_path: Path):
    """Old manifest copies, log objects and erased events are deleted, and the rest can still be restored."""
    address = (tmp_path / "store").as_uri()
    store = Store(address)
    with aggregator.open(tmp_path / "a", store=address, history="0s", **QUIET) as catalog:
        topic = catalog.create_topic("t")
        for first in range(0, 60, 10):
            topic.append(events(first))
            catalog.seal("t")
            catalog._backend.shipper.publish()
        topic.erase("s0")
        before = {each.name for each in store.list("segments")}
        catalog.compact()
        assert topic.traces("s0").segments == ()
        assert not {each.name for each in store.list("segments")} & before
        catalog._backend.shipper.publish()
        topic.append(events(60))
        time.sleep(0.01)
        catalog._backend.shipper.clean_up()
        assert len(list(store.list(MANIFESTS))) == 2
        assert len(list(store.list(LOG))) < 6
        expected = numbers(catalog)
        assert seen_anywhere(address) == expected
        assert not any(number % 3 == 0 for number in expected if number < 60)
        aggregator.restore(address, tmp_path / "back")
    with aggregator.open(tmp_path / "back") as back:
        assert numbers(back) == expected
        assert back.problems() == []


def test_what_a_crash_left_is_collected(tmp_path: Path):
    """Unannounced manifest copies and objects that only they need are deleted by `gc` or, in time, automatically."""
    address = (tmp_path / "store").as_uri()
    store = Store(address)
    with aggregator.open(tmp_path / "a", store=address, history="0s", **QUIET) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        catalog.seal("t")
        stray = manifest_name(1, 1)
        store.put(stray, b"half a copy")
        for _ in range(3):
            catalog._backend.shipper.publish()
        time.sleep(0.01)
        before = {each.name for each in store.list()}
        told = catalog.store.gc(grace="0s", dry_run=True).names
        assert {each.name for each in store.list()} == before
        assert stray in told
        assert catalog.store.gc(grace="0s").names == told
        assert {each.name for each in store.list()} == before - set(told)
        assert ownerless(store) == []
        assert catalog.store.gc(grace="0s").names == ()
        assert seen_anywhere(address) == list(range(10))
        for name in (stray, quarantined_object(7, 7), "segments/000000/000000000099-0000000000000007.esdb", "odd"):
            store.put(name, b"")
            assert ownerless(store) == [name]
            store.delete([name])


def test_a_cleanup_that_was_cut_short(tmp_path: Path):
    """If cleanup stops between old manifest copies and the log objects that only they need, `gc` deletes these."""
    address = (tmp_path / "store").as_uri()
    store = Store(address)
    with aggregator.open(tmp_path / "a", store=address, history="0s", **QUIET) as catalog:
        topic = catalog.create_topic("t")
        for number in range(0, 40, 10):
            topic.append(events(number))
            catalog.seal("t")
            catalog._backend.shipper.publish()
        time.sleep(0.01)
        copies = sorted(each.name for each in store.list(MANIFESTS))
        store.delete(copies[:-2])
        left = ownerless(store)
        assert left
        assert set(left) <= set(catalog.store.gc(grace="0s").names)
        assert ownerless(store) == []
        assert seen_anywhere(address) == list(range(40))


def test_an_erased_space_in_quarantine(tmp_path: Path):
    """An erasure is not complete while the store still has the original quarantined batch."""
    address, bad = (tmp_path / "store").as_uri(), "secret" + "x" * LONG
    with aggregator.open(tmp_path / "a") as catalog:
        catalog.create_topic("t").append(events(0))
    rows = [{"space": bad, "timestamp": 1, "payload": b"erase-me"}, {"space": "s1", "timestamp": 2, "payload": b"1"}]
    log_by_hand(tmp_path / "a", "t", poison(newest_columns(tmp_path / "a", "t"), rows))
    with aggregator.open(tmp_path / "a", store=address, history="0s", **QUIET) as catalog:
        topic, shipper = catalog.topic("t"), catalog._backend.shipper
        catalog.seal("t")
        shipper.publish()
        assert len(stored_anywhere(tmp_path / "store" / "quarantine", b"erase-me")) == 1
        topic.erase(bad)
        catalog.compact()
        shipper.publish()
        catalog.compact()
        assert topic.erasures() == (bad,)
        for _ in range(3):
            shipper.publish()
        time.sleep(0.01)
        catalog.store.gc(grace="0s")
        assert catalog.compact().erased == (bad,)
        assert topic.erasures() == ()
        assert stored_anywhere(tmp_path / "store", b"erase-me") == []
        assert ownerless(Store(address)) == []


def test_an_erased_space_in_objects_of_the_log(tmp_path: Path):
    """An erasure is complete once the store has none of its earlier log and manifest objects, even if nothing new
    arrives; after that no more copies are uploaded.
    """
    address = (tmp_path / "store").as_uri()

    def there() -> set[str]:
        return {each.name for kind in (LOG, MANIFESTS) for each in Store(address).list(kind)}

    with aggregator.open(tmp_path / "a", store=address, history="0s", **QUIET) as catalog:
        topic, shipper = catalog.create_topic("t"), catalog._backend.shipper
        topic.append(events(0))
        shipper.publish()
        before = there()
        topic.erase("s1")
        for _ in range(10):
            catalog.compact()
            if not topic.erasures():
                break
            shipper.announce()  # which uploads no copy if nothing changed
            time.sleep(0.01)
            shipper.clean_up()
        assert topic.erasures() == ()
        assert not before & there()
        shipper.announce()
        catalog.compact()
        assert shipper._noted == shipper._published


def test_a_reader_that_was_away(tmp_path: Path):
    """A reader that was away starts over from a copy that needs none of the deleted objects."""
    address = (tmp_path / "store").as_uri()
    with aggregator.open(tmp_path / "a", store=address, history="0s", **QUIET) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        with aggregator.open(address, read_only=True) as reader:
            assert numbers(reader) == list(range(10))
            for first in range(10, 60, 10):
                topic.append(events(first))
                catalog.seal("t")
                catalog._backend.shipper.publish()
            time.sleep(0.01)
            catalog._backend.shipper.clean_up()
            topic.append(events(60))
            for _ in range(40):
                reader._backend.refresh()
            assert numbers(reader) == list(range(70))
            assert reader.problems() == []


def test_copies_that_go_while_somebody_begins(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """A reader succeeds if manifest copies are deleted between listing them and its first read of the log."""
    address = f"s3://{bucket}/c"
    with aggregator.open(tmp_path / "a", store=address, history="1us", **QUIET) as catalog:
        topic, shipper = catalog.create_topic("t"), catalog._backend.shipper
        topic.append(events(0))
        catalog.seal("t")
        shipper.publish()
        store = shipper._store

        def look(method: str, path: str, _query: str) -> None:
            if method == "GET" and "/c/log/" in path:
                s3.refuse = lambda method, path, query: None
                old = [each.name for folder in (MANIFESTS, LOG) for each in store.list(folder)]
                shipper.publish()
                store.delete(old)  # like cleanup, which reads the log itself
                gone.set()

        gone = threading.Event()
        s3.refuse = look
        assert seen_anywhere(address) == list(range(10))
        assert gone.is_set()


def test_cleanup_during_cleanup(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """Manual and automatic cleanup do not overlap: each would miss what the other deletes."""
    with aggregator.open(tmp_path / "a", store=f"s3://{bucket}/c", history="1us", **QUIET) as catalog:
        topic, shipper = catalog.create_topic("t"), catalog._backend.shipper

        def age() -> None:
            for _ in range(3):
                topic.append(events(0))
                catalog.seal("t")
                shipper.publish()
            time.sleep(1.0)  # the store's times are whole seconds
            shipper.publish()

        def meanwhile() -> None:
            age()
            shipper.clean_up()

        other = threading.Thread(target=meanwhile)

        def look(method: str, path: str, _query: str) -> None:
            if method == "GET" and "/c/log/" in path:
                s3.refuse = lambda method, path, query: None
                other.start()
                other.join(1.5)

        age()
        s3.refuse = look
        assert shipper.clean_up()
        other.join()
        assert len(list(shipper._store.list(MANIFESTS))) <= 3
