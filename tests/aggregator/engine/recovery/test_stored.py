"""Lost or old manifests of catalogs whose segments are in a store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import aggregator
from aggregator.errors import StoreError
from aggregator.storage.store.objects import object_name
from tests.aggregator.engine.upkeep.test_tier import EVENTS, damaged, filled, objects, opened, rows

pytestmark = pytest.mark.usefixtures("quiet", "unshipped")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory as a store."""
    return tmp_path / "bucket"


def lose_manifest(tmp_path: Path) -> None:
    for path in (tmp_path / "data").glob("manifest.sqlite*"):
        path.unlink()


@pytest.mark.parametrize("evicted", [True, False])
def test_a_lost_manifest(tmp_path, place, evicted):
    """A rebuilt manifest covers files and objects and knows where each segment is."""
    with opened(tmp_path, store=place.as_uri(), keep_local={"age": "7d"}) as catalog:
        topic = filled(catalog)
        catalog.store.push()
        if evicted:
            catalog.store.evict(keep_local={"bytes": 10_000})
        before = catalog.store.status()
        filled(catalog, 1)
        expected = rows(topic)
    lose_manifest(tmp_path)
    told: list[tuple[int, int]] = []
    report = aggregator.rebuild_manifest(tmp_path / "data", progress=lambda *done: told.append(done))
    assert (report.segments, report.rows, report.quarantined, report.missing) == (4, 4 * EVENTS, (), ())
    assert told[-1][0] == told[-1][1]
    with opened(tmp_path) as catalog:
        assert rows(catalog.topic("t")) == expected
        after = catalog.store.status()
        assert [after[k] for k in ("address", "keep_local", "arrived", "evicted")] == [
            before[k] for k in ("address", "keep_local", "arrived", "evicted")
        ]
        assert after["waiting"]["segments"] == 1
        assert (catalog.problems(), catalog.store.verify(read=True)) == ([], [])
        assert not list((tmp_path / "data" / "staging").iterdir())


def test_objects_that_stayed_longer_than_what_was_made_of_them(tmp_path, place):
    """After repeated merges with old objects left, each event comes back once; the old objects are then deleted."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog, 2)
        tier = catalog._backend.upkeep.tier
        kept: set[str] = set()
        tier.kept = lambda: kept
        for _ in range(2):
            catalog.store.push()
            kept.update(object_name(info) for info in topic._topic.segments.view() if info.level == 0)
            catalog.compact()
            filled(catalog, 1)
        catalog.compact()
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        expected = rows(topic)
        assert len(objects(place)) > 1
    next(path for path in place.rglob("*.esdb") if path.name.startswith(f"{3:012d}")).unlink()
    lose_manifest(tmp_path)
    report = aggregator.rebuild_manifest(tmp_path / "data")
    assert (report.segments, report.rows) == (1, 4 * EVENTS)
    with opened(tmp_path) as catalog:
        assert rows(catalog.topic("t")) == expected
        catalog._backend.upkeep.removal.sweep()
        catalog._backend.upkeep.tier.remove()
        assert len(objects(place)) == 1


def test_an_erasure_under_way(tmp_path, place):
    """Objects that still exist do not bring back erased events."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        names = [object_name(info) for info in topic._topic.segments.view()]
        catalog._backend.upkeep.tier.kept = lambda: names
        topic.erase("s7")
        catalog.compact()
        assert topic.erasures() == ("s7",)
    lose_manifest(tmp_path)
    aggregator.rebuild_manifest(tmp_path / "data")
    with opened(tmp_path) as catalog:
        topic = catalog.topic("t")
        assert (topic.scan(space="s7").count(), topic.scan().count()) == (0, 3 * (EVENTS - 2))
        catalog.compact()
        assert topic.erasures() == ()
        assert topic.traces("s7").segments == ()


def test_without_facts_the_store_is_named(tmp_path, place):
    with opened(tmp_path, store=place.as_uri()) as catalog:
        filled(catalog)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
    lose_manifest(tmp_path)
    (tmp_path / "data" / "catalog.facts").unlink()
    assert aggregator.rebuild_manifest(tmp_path / "data").rows == 0
    lose_manifest(tmp_path)
    assert aggregator.rebuild_manifest(tmp_path / "data", store=place.as_uri()).rows == 3 * EVENTS
    with opened(tmp_path) as catalog:
        assert catalog.topic("t").scan().to_table().num_rows == 3 * EVENTS


def test_a_damaged_object_is_told_of(tmp_path, place):
    with opened(tmp_path, store=place.as_uri()) as catalog:
        filled(catalog)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
    path = min(place.rglob("*.esdb"))
    damaged(path)
    lose_manifest(tmp_path)
    report = aggregator.rebuild_manifest(tmp_path / "data")
    assert (report.rows, report.quarantined) == (2 * EVENTS, (path.as_uri(),))


def test_a_store_that_does_not_answer(tmp_path, place, s3, bucket, monkeypatch):
    """If the store does not answer, rebuilding fails and changes nothing."""
    monkeypatch.setattr("aggregator.storage.store.objects.PATIENCE_S", 0.2)
    with opened(tmp_path, store=f"s3://{bucket}/x") as catalog:
        filled(catalog)
    s3.refuse = lambda method, path, query: 503
    before = (tmp_path / "data" / "manifest.sqlite").read_bytes()
    with pytest.raises(StoreError):
        aggregator.rebuild_manifest(tmp_path / "data")
    assert (tmp_path / "data" / "manifest.sqlite").read_bytes() == before


def test_an_old_copy_of_the_manifest(tmp_path, place):
    """With an old manifest, segments evicted since are found in the store."""
    with opened(tmp_path, store=place.as_uri()) as catalog:
        topic = filled(catalog)
        expected = rows(topic)
    shutil.copy(tmp_path / "data" / "manifest.sqlite", tmp_path / "copy")
    with opened(tmp_path) as catalog:
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
    lose_manifest(tmp_path)
    shutil.copy(tmp_path / "copy", tmp_path / "data" / "manifest.sqlite")
    with opened(tmp_path) as catalog:
        assert rows(catalog.topic("t")) == expected
        assert catalog.store.status()["evicted"]["segments"] == 3
