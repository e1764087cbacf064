"""Segments in an object store: uploaded, evicted, read, fetched and removed, and the effect of faults."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import object_store
import pytest
from breaking_proxy import BreakingProxy, Fate
from waiting import until

import aggregator
import esformat
from aggregator import StoreError, StoreUnreachableError
from aggregator.engine.upkeep import tier as tiers
from aggregator.errors import InvalidRequestError, SegmentMissingError
from aggregator.policy import Tuning
from aggregator.storage.store import objects as stored_objects
from aggregator.storage.store.client import Store
from aggregator.storage.store.objects import object_name
from esformat import CorruptSegmentError
from esformat.parts import anatomy

if TYPE_CHECKING:
    from benchmarks.s3_endpoint import S3Endpoint

pytestmark = pytest.mark.usefixtures("unshipped")
EVENTS = 200


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up on failing stores soon."""
    monkeypatch.setattr(stored_objects, "PATIENCE_S", 0.5)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory as a store."""
    return tmp_path / "bucket"


def opened(tmp_path: Path, **options: Any) -> aggregator.Catalog:
    return aggregator.open(tmp_path / "data", **options)


def filled(catalog: aggregator.Catalog, segments: int = 3, name: str = "t") -> aggregator.Topic:
    """A topic with segments of a hundred spaces."""
    topic = catalog.create_topic(name) if name not in catalog.topics() else catalog.topic(name)
    for number in range(segments):
        topic.append(
            [{"space": f"s{n % 100}", "timestamp": 1000 * number + n, "data": b"%d" % n} for n in range(EVENTS)]
        )
        catalog.seal()
    return topic


def files(tmp_path: Path) -> list[str]:
    """Segment files on disk."""
    return sorted(path.name for path in (tmp_path / "data" / "segments").glob("*/*.esdb"))


def objects(place: Path) -> list[str]:
    """Segment objects in the store."""
    return sorted(path.name[:12] for path in place.glob("segments/*/*.esdb"))


def names(catalog: aggregator.Catalog, topic: aggregator.Topic) -> list[str]:
    return [object_name(info) for info in topic._topic.segments.view()]


def rows(topic: aggregator.Topic) -> list[tuple[Any, ...]]:
    table = topic.scan(columns=["space", "timestamp", "data", "record_index"]).to_table()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


# ------------------------------------------------------------ up, down and back


@pytest.mark.usefixtures("quiet")
def test_segments_go_up_and_down_and_come_back(tmp_path, place):
    """Wherever segments are, reads are the same; the manifest knows where, also after reopening."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog)
        before = rows(topic)
        assert catalog.store.push() == 3
        assert catalog.store.push() == 0
        assert objects(place) == [f"{n:012d}" for n in (1, 2, 3)]
        assert catalog.store.evict() == []
        gone = catalog.store.evict(keep_local={"bytes": 0})
        assert [address.partition("/segments/")[2][:6] for address in gone] == ["000000"] * 3
        assert files(tmp_path) == []
        assert rows(topic) == before
    for read_only in (False, True):
        with opened(tmp_path, read_only=read_only) as catalog:
            assert rows(catalog.topic("t")) == before
            assert catalog.store.status()["evicted"]["segments"] == 3
            assert catalog.problems() == []
            assert catalog.verify() == []
            assert catalog.stats()["disk"]["segments"] == 0
    with opened(tmp_path) as catalog:
        assert len(catalog.store.fetch()) == 3
        assert len(files(tmp_path)) == 3
        assert catalog.store.status()["evicted"]["segments"] == 0
        assert (rows(catalog.topic("t")), catalog.verify()) == (before, [])


def test_it_happens_by_itself(tmp_path, place):
    """Sealed segments are uploaded and evicted in the background; a merged one replaces its sources in the store."""
    with opened(tmp_path, store=place.as_uri(), keep_local={"bytes": 0}) as catalog:
        topic = filled(catalog)
        until(lambda: len(catalog._backend.state.evicted) == 3)
        before = rows(topic)
        catalog.compact()
        assert rows(topic) == before
        until(lambda: objects(place) == [f"{4:012d}"] and files(tmp_path) == [])
        assert rows(topic) == before
        assert catalog.store.status()["since_open"]["segments"] == 4


def test_a_topic_that_stays(tmp_path, place):
    """Per-topic limits, which are stored with the catalog's, keep a topic local, even one created later."""
    keep = {"bytes": 0, "topics": {"orders": {}, "later": {"bytes": "1 GiB"}}}
    with opened(tmp_path, store=place.as_uri(), keep_local=keep) as catalog:
        orders, debug = filled(catalog, 2, "orders"), filled(catalog, 3, "debug")
        gone = {info.number for info in debug._topic.segments.view()}
        until(lambda: set(catalog._backend.state.evicted) == gone)
        until(lambda: len(files(tmp_path)) == 2)  # files are deleted after eviction is noted
        assert rows(orders)
        assert catalog.store.evict() == []
    with opened(tmp_path) as catalog:
        filled(catalog, 1, "later")
        catalog.store.push()
        assert catalog.store.evict() == []
        assert len(catalog.store.evict("orders", keep_local={"bytes": 0})) == 2


@pytest.mark.parametrize("topics", [7, {"t": 7}, {"t": {"topics": {"u": {}}}}, {"t": {"bytes": -1}}])
def test_limits_of_topics_that_make_no_sense(tmp_path, place, topics):
    with pytest.raises(InvalidRequestError):
        opened(tmp_path, store=place.as_uri(), keep_local={"topics": topics})


@pytest.mark.usefixtures("quiet")
def test_a_scan_goes_on_when_files_go(tmp_path, place):
    """Scans begun earlier, in this process and others, read the object once their file is gone."""
    with opened(tmp_path, store=place.as_uri()) as catalog, opened(tmp_path, read_only=True) as reader:
        topic = filled(catalog)
        catalog.store.push()
        mine, theirs = (iter(each.topic("t").scan().batches()) for each in (catalog, reader))
        first = [next(mine), next(theirs)]
        catalog.store.evict(keep_local={"bytes": 0})
        assert files(tmp_path) == []
        for begun, rest in zip(first, (mine, theirs), strict=True):
            assert len(begun) + sum(map(len, rest)) == 3 * EVENTS
        assert topic.scan().count() == 3 * EVENTS


@pytest.mark.usefixtures("quiet")
def test_an_open_scan_of_removed_segments_finishes(tmp_path, place):
    """Objects of removed segments stay until the open scan ends."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        scan = iter(topic.scan().batches())
        first = next(scan)
        topic.set_policy(retention={"segments": 0})
        topic.retain()
        tier = catalog._backend.upkeep.tier
        assert tier.remove() == 0
        assert len(first) + sum(map(len, scan)) == 3 * EVENTS
        assert tier.remove() == 3
        assert objects(place) == []
        assert catalog._backend.manifest.retired() == []


@pytest.mark.usefixtures("quiet")
def test_an_erasure_is_done_when_the_store_is_rid_of_it(tmp_path, place):
    """An erasure completes when no object contains the key, also for segments that are only in the store."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        kept = catalog._backend.upkeep.tier.kept = lambda: names
        names = {object_name(info) for info in topic._topic.segments.view()}
        topic.erase("s7")
        catalog.compact()
        assert topic.erasures() == ("s7",)
        assert len(topic.traces("s7").segments) == 3
        names = set()
        assert kept() == set()
        catalog.compact()
        assert topic.erasures() == ()
        assert topic.traces("s7").segments == ()
        assert topic.scan().count() == 3 * (EVENTS - 2)
        catalog.store.push()
        assert len(objects(place)) == 1
        for path in place.rglob("*.esdb"):
            assert b"s7\0" not in path.read_bytes()


@pytest.mark.usefixtures("quiet")
def test_a_deleted_topic_leaves_the_store(tmp_path, place):
    with opened(tmp_path, store=place.as_uri()) as catalog:
        filled(catalog)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        catalog.delete_topic("t")
        catalog._backend.upkeep.tier.work()
        assert (objects(place), catalog.stats()["disk"]["segments"]) == ([], 0)


def test_limits_of_the_catalog_let_files_go_and_no_events(tmp_path, place):
    with opened(tmp_path, store=place.as_uri(), limits={"max_bytes": 2 << 20}) as catalog:
        topic = catalog.create_topic("t")
        for number in range(6):
            payload = bytes((n * 7919 + number) % 251 for n in range(1000))
            topic.append(
                [
                    {"space": f"s{n}", "timestamp": n, "data": payload + (n * 2654435761).to_bytes(8)}
                    for n in range(1500)
                ]
            )
            catalog.seal()
        until(lambda: catalog.stats()["disk"]["total"] <= 2 << 20)
        assert topic.scan().count() == 9000


@pytest.mark.usefixtures("quiet")
def test_segments_that_are_added(tmp_path, place):
    """Bulk-loaded segments are uploaded and evicted, too."""
    with esformat.create(tmp_path / "made.esdb") as writer:
        for number in range(50):
            writer.add(f"s{number % 5}", b"x", timestamp=number)
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = catalog.create_topic("t")
        topic.add_segments([tmp_path / "made.esdb"])
        assert catalog.store.push() == 1
        catalog.store.evict(keep_local={"bytes": 0})
        assert topic.scan(space="s3").count() == 10
        (segment,) = topic.segments()
        assert anatomy(topic.segment_file(segment["segment"])).size_bytes == segment["bytes"]


# ------------------------------------------------------------ settings


def test_settings_are_kept(tmp_path, place):
    with opened(tmp_path, store=place.as_uri(), keep_local={"bytes": "1 GiB", "age": "7d"}, store_cache="10 MB"):
        pass
    with opened(tmp_path) as catalog:
        status = catalog.store.status()
        assert status["address"] == place.as_uri()
        assert status["keep_local"] == {"bytes": 1 << 30, "age_us": 7 * 86_400 * 1_000_000, "topics": {}}
        assert status["cache"]["limit"] == 10_000_000
    with opened(tmp_path, keep_local={}) as catalog:
        assert catalog.store.status()["keep_local"] == {"bytes": None, "age_us": None, "topics": {}}
        assert catalog.store.status()["cache"]["limit"] == 10_000_000


def test_without_a_store(tmp_path):
    with pytest.raises(InvalidRequestError, match="require a store"):
        opened(tmp_path, keep_local={"bytes": 0})
    with opened(tmp_path) as catalog:
        filled(catalog, 1)
        assert "store" not in catalog.stats()
        for verb in ("status", "push", "evict", "fetch", "verify", "gc"):
            with pytest.raises(InvalidRequestError, match="has no store"):
                getattr(catalog.store, verb)()


@pytest.mark.parametrize("address", ["s3:bucket", "/a/directory", "http://127.0.0.1/x"])
def test_an_address_that_is_none(tmp_path, address):
    with opened(tmp_path) as catalog:
        filled(catalog, 1)
    with pytest.raises(InvalidRequestError, match="address"):
        opened(tmp_path, store=address)
    with opened(tmp_path) as catalog:
        assert catalog.topic("t").scan().count() == EVENTS


@pytest.mark.usefixtures("quiet")
def test_a_store_that_moved(tmp_path, place):
    """A new store address is accepted only if it has all objects."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        filled(catalog)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(InvalidRequestError, match="but not all of them in"):
        opened(tmp_path, store=elsewhere.as_uri())
    elsewhere.rmdir() if elsewhere.is_dir() else None
    place.rename(elsewhere)
    with opened(tmp_path, store=elsewhere.as_uri()) as catalog:
        assert catalog.topic("t").scan().count() == 3 * EVENTS


# ------------------------------------------------------------ faults


@pytest.mark.usefixtures("quiet")
def test_a_store_that_fails_is_asked_again(tmp_path, s3: S3Endpoint, bucket):
    """A failing store is retried after a pause; uploads then succeed, and nothing is lost meanwhile."""
    with opened(tmp_path, store=f"s3://{bucket}/x", keep_local={"bytes": 0}) as catalog:
        topic = filled(catalog)
        tier = catalog._backend.upkeep.tier
        s3.refuse = lambda method, path, query: 503
        with pytest.raises(StoreUnreachableError):
            tier.work()
        assert "does not answer" in tier.problem
        assert catalog.store.status()["waiting"]["segments"] == 3
        tier.work()  # the store is left alone for a while: nothing is raised
        s3.refuse = lambda method, path, query: None
        tier._after = 0.0
        tier.work()
        assert tier.problem is None
        assert (files(tmp_path), len(object_store.keys(s3, bucket))) == ([], 3)
        assert topic.scan().count() == 3 * EVENTS
        s3.refuse = lambda method, path, query: 503
        catalog._backend.objects.cache.clear()
        for info in topic._topic.segments.view():
            catalog._backend.pool.forget(info.number)
        with pytest.raises(StoreUnreachableError, match="segments/000000"):
            topic.scan().to_table()


@pytest.mark.usefixtures("quiet")
def test_puts_that_sometimes_fail(tmp_path, s3: S3Endpoint, bucket, monkeypatch):
    """With one request in three refused, uploads are retried until they succeed."""
    monkeypatch.setattr(stored_objects, "PATIENCE_S", 20.0)
    seen = [0]

    def refuse(method, path, query):
        seen[0] += 1
        return 503 if seen[0] % 3 == 0 else None

    with opened(tmp_path, store=f"s3://{bucket}/x") as catalog:
        topic = filled(catalog)
        s3.refuse = refuse
        assert catalog.store.push() == 3
        assert len(catalog.store.evict(keep_local={"bytes": 0})) == 3
        assert topic.scan().to_table().num_rows == 3 * EVENTS


@pytest.mark.usefixtures("quiet")
def test_connections_that_break(tmp_path, s3: S3Endpoint, bucket, monkeypatch):
    """Over broken or slow connections, transfers are retried and arrive complete."""
    monkeypatch.setattr(stored_objects, "PATIENCE_S", 20.0)
    fates = [Fate(up_bytes=2000), Fate(down_bytes=300), Fate(delay_s=0.05), Fate(down_bytes=5000), Fate()]
    with BreakingProxy(s3.url, lambda number: fates[number % len(fates)]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with opened(tmp_path, store=f"s3://{bucket}/x") as catalog:
            topic = filled(catalog)
            before = rows(topic)
            assert catalog.store.push() == 3
            assert len(catalog.store.evict(keep_local={"bytes": 0})) == 3
            catalog._backend.objects.cache.clear()
            assert rows(topic) == before
            assert len(catalog.store.fetch()) == 3
            assert catalog.verify() == []
        assert proxy.connections > 5


class Killed(BaseException):
    """The process ends here."""


@contextlib.contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> Iterator[None]:
    """End the current work when a function is called."""

    def end(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(where, name, end)
        with pytest.raises(Killed):
            yield


@pytest.mark.usefixtures("quiet")
def test_a_crash_between_arrival_and_note(tmp_path, place, monkeypatch):
    """After a crash between upload and note, the segment is uploaded or adopted; there is one object."""
    catalog = opened(tmp_path, store=place.as_uri())
    topic = filled(catalog)
    with killed_at(monkeypatch, tiers.StoredRows, "add"):
        catalog.store.push()
    assert len(objects(place)) > 0
    catalog.close()
    with opened(tmp_path) as catalog:
        topic = catalog.topic("t")
        assert catalog.store.status()["arrived"]["segments"] == 0
        assert catalog.store.push() == 3
        assert len(objects(place)) == 3
        assert topic.scan().count() == 3 * EVENTS


@pytest.mark.usefixtures("quiet")
def test_a_crash_between_note_and_deletion(tmp_path, place, monkeypatch):
    """After a crash between note and deletion, the file counts as local again and is evicted later."""
    catalog = opened(tmp_path, store=place.as_uri())
    filled(catalog)
    catalog.store.push()
    with killed_at(monkeypatch, stored_objects.Objects, "keep_end"):
        catalog.store.evict(keep_local={"bytes": 0})
    assert len(files(tmp_path)) == 3
    catalog.close()
    with opened(tmp_path) as catalog:
        assert catalog.store.status()["evicted"]["segments"] == 0
        assert catalog.stats()["disk"]["segments"] > 0
        assert len(catalog.store.evict(keep_local={"bytes": 0})) == 3
        assert (files(tmp_path), catalog.topic("t").scan().count()) == ([], 3 * EVENTS)


@pytest.mark.usefixtures("quiet")
def test_a_file_that_somebody_deleted(tmp_path, place):
    """A segment file that was deleted is read from the store."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        filled(catalog)
        catalog.store.push()
    next((tmp_path / "data" / "segments").rglob("*.esdb")).unlink()
    with opened(tmp_path) as catalog:
        assert catalog.problems() == []
        assert catalog.topic("t").scan().to_table().num_rows == 3 * EVENTS
        assert len(catalog.store.fetch()) == 1


@pytest.mark.usefixtures("quiet")
def test_a_damaged_file_that_is_in_the_store(tmp_path, place):
    """A damaged file is quarantined, and its segment is read from the store."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        filled(catalog)
        catalog.store.push()
        path = next((tmp_path / "data" / "segments").rglob("*.esdb"))
        stored = bytearray(path.read_bytes())
        stored[len(stored) // 2] ^= 1
        path.write_bytes(stored)
        (problem,) = catalog.verify()
        assert "read from the store from now on" in problem.action
        assert catalog.topic("t").scan().to_table().num_rows == 3 * EVENTS
        assert len(catalog.store.fetch()) == 1
    with opened(tmp_path) as catalog:
        assert catalog.verify() == []


@pytest.mark.usefixtures("quiet")
def test_a_damaged_file_does_not_go_up(tmp_path, place):
    with opened(tmp_path, store=place.as_uri()) as catalog:
        filled(catalog)
        path = next((tmp_path / "data" / "segments").rglob("*.esdb"))
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        with pytest.raises(CorruptSegmentError, match="was not uploaded to the store"):
            catalog.store.push()
        assert len(objects(place)) == 2


def damaged(path: Path) -> None:
    stored = bytearray(path.read_bytes())
    for at in range(40, len(stored) // 2):
        stored[at] ^= 255
    path.write_bytes(stored)


@pytest.mark.usefixtures("quiet")
def test_a_damaged_object_is_not_relied_on(tmp_path, place):
    """A file is evicted only after its object was verified; a damaged object is uploaded again."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog, 1)
        catalog.store.push()
        damaged(next(place.rglob("*.esdb")))
        assert catalog.store.verify() == []
        (found,) = catalog.store.verify(read=True)
        assert found.action == "uploaded again from the disk"
        assert catalog.store.push() == 1
        assert catalog.store.verify(read=True) == [] == catalog.problems()
        damaged(next(place.rglob("*.esdb")))
        assert catalog.store.evict(keep_local={"bytes": 0}) == []
        assert len(files(tmp_path)) == 1
        assert catalog.store.push() == 1
        assert len(catalog.store.evict(keep_local={"bytes": 0})) == 1
        assert topic.scan().count() == EVENTS


@pytest.mark.usefixtures("quiet")
def test_a_damaged_object_is_told_of(tmp_path, place):
    """`verify` and reads name a damaged object and say what to do; other objects can be read."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        path = min(place.rglob("*.esdb"))
        whole = path.read_bytes()
        damaged(path)
        catalog._backend.objects.cache.clear()
        with pytest.raises(CorruptSegmentError) as failed:
            topic.scan().to_table()
        assert path.as_uri() in str(failed.value)
        assert "`aggregator store verify`" in str(failed.value)
        assert catalog.store.verify() == []
        (problem,) = catalog.store.verify(read=True)
        assert (problem.subject, problem.action) == (path.as_uri(), "reported")
        assert topic.scan(start=1000).count() == 2 * EVENTS
        path.write_bytes(whole)
        assert catalog.store.verify(read=True) == [] == catalog.problems()
        assert topic.scan().to_table().num_rows == 3 * EVENTS


@pytest.mark.usefixtures("quiet")
def test_a_missing_object(tmp_path, place):
    """A missing object is reported until its loss is accepted."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        catalog._backend.objects.cache.clear()
        path = min(place.rglob("*.esdb"))
        path.unlink()
        with pytest.raises(SegmentMissingError, match=path.name):
            topic.scan().to_table()
        with pytest.raises(StoreError, match=path.name):
            catalog.store.fetch()
        assert len(files(tmp_path)) == 2
        (problem,) = catalog.store.verify()
        assert problem.subject == path.as_uri()
        assert len(catalog.accept_losses()) == 1
        assert topic.scan().to_table().num_rows == 2 * EVENTS


@pytest.mark.usefixtures("quiet")
def test_what_nobody_names_is_collected(tmp_path, place):
    """Old objects that nothing names are deleted; named objects and other files never."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog, 2)
        catalog.store.push()
        stray = place / "segments" / "000000" / f"{99:012d}-{7:016x}.esdb"
        stray.write_bytes(b"left over")
        (place / "segments" / "notes.txt").write_bytes(b"somebody's")
        assert catalog.store.gc().names == ()
        found = catalog.store.gc(grace="0s", dry_run=True)
        assert (found.names, found.size_bytes) == ((f"segments/000000/{stray.name}",), 9)
        assert stray.exists()
        assert catalog.store.gc(grace="0s").names == found.names
        assert not stray.exists()
        assert (place / "segments" / "notes.txt").exists()
        assert len(objects(place)) == 2
        assert topic.scan().count() == 2 * EVENTS


@pytest.mark.usefixtures("quiet")
def test_a_segment_that_is_merged_while_it_is_let_go(tmp_path, place, monkeypatch):
    """A segment merged during its eviction causes no error."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog)
        catalog.store.push()
        tier = catalog._backend.upkeep.tier
        evict = tier._evict

        def merge_first(info):
            catalog.compact()
            evict(info)

        with monkeypatch.context() as slowly:
            slowly.setattr(tier, "_evict", merge_first)
            catalog.store.evict(keep_local={"bytes": 0})
        assert topic.scan().to_table().num_rows == 3 * EVENTS
        assert (len(files(tmp_path)), catalog.store.status()["evicted"]["segments"]) == (1, 0)


@pytest.mark.usefixtures("quiet")
def test_a_segment_that_is_merged_while_it_goes_up(tmp_path, place, monkeypatch):
    """The object of a segment merged during its upload is removed."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        filled(catalog)
        tier = catalog._backend.upkeep.tier
        note = tier._note

        def merge_first(segments):
            catalog.compact()
            return note(segments)

        with monkeypatch.context() as slowly:
            slowly.setattr(tier, "_note", merge_first)
            catalog.store.push()
        catalog.store.push()
        assert objects(place) == [f"{4:012d}"]


def test_a_store_that_lists_late(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch):
    """Segments that the store has but does not list yet are not reported as lost."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        filled(catalog)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        monkeypatch.setattr(Store, "list", lambda self, folder="", after=None: iter(()))
        assert catalog.store.verify() == []
        assert catalog._backend.upkeep.tier.missing() == []


def test_puts_that_failed_are_tried_one_by_one(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """After a failure, uploads run one at a time, so that all arrive over a slow connection."""
    with opened(tmp_path, store=f"s3://{bucket}/x", tuning=Tuning(tick_s=3600, fan_in=99)) as catalog:
        s3.refuse = lambda method, path, query: 503
        filled(catalog, 6)
        with pytest.raises(StoreError):
            catalog.store.push()
        s3.refuse = lambda method, path, query: None
        s3.latency_seconds = 0.02
        with s3.recorded() as requests:
            assert catalog.store.push() == 6
        puts = sorted((each.began, each.ended) for each in requests if each.method == "PUT")
        assert len(puts) == 6
        assert all(ended <= began for (_, ended), (began, _) in pairwise(puts))
