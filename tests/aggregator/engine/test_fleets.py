"""Catalogs in stores read as one from any machine: found by a pattern, whatever happens to their writers."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import ALL, long
from object_store import s3  # noqa: F401 - used by bucket
from shipped_catalogs import SOON, events, numbers
from waiting import until

import aggregator
from aggregator.engine.standby import Standby
from aggregator.engine.writer import now_us
from aggregator.errors import CatalogNotFoundError, InvalidRequestError, StoreUnreachableError
from aggregator.storage.files.layout import Layout
from aggregator.storage.store.client import Store
from aggregator.storage.store.fleet import catalogs_at

pytestmark = pytest.mark.background
NAMES = ("east coast", "west 50%", "nördlich/[1]")


@pytest.fixture(params=[pytest.param("s3", marks=long), "file"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address prefix of the fleet."""
    if request.param == "s3":
        return f"s3://{request.getfixturevalue('bucket')}/a%20fleet"
    return (tmp_path / "a fleet").as_uri()


def quoted(name: str) -> str:
    """A name, escaped as in an address."""
    return "/".join(Path("/", part).as_uri().removeprefix("file:///") for part in name.split("/"))


@pytest.fixture
def fleet(base: str, tmp_path: Path) -> Iterator[dict[str, aggregator.Catalog]]:
    """The writers by name; the last has no segment."""
    with contextlib.ExitStack() as opened:
        made = {}
        for place, name in enumerate(NAMES):
            address = f"{base}/{quoted(name)}"
            catalog = aggregator.open(tmp_path / f"writer-{place}", store=address, durability="store", **SOON)
            made[name] = opened.enter_context(catalog)
            catalog.create_topic("t", indexes=["type"]).append(events(10 * place))
            catalog.write({"app": "shop"}, [{"msg": name}])
            if name != NAMES[-1]:
                catalog.seal()
                catalog._backend.shipper.publish()
        yield made


def test_a_pattern_of_a_store(fleet: dict[str, aggregator.Catalog], base: str):
    """A pattern finds names with blanks, percent signs and brackets; later acknowledged events are in the next read."""
    assert catalogs_at(f"{base}/*") == [f"{base}/east%20coast", f"{base}/west%2050%25"]
    assert catalogs_at(f"{base}/**") == sorted(f"{base}/{quoted(name)}" for name in NAMES)
    assert catalogs_at(f"{base}/*/*") == catalogs_at(f"{base}/n*/%5B?%5D") == [f"{base}/{quoted(NAMES[-1])}"]
    assert catalogs_at(f"{base}/*%25/") == [f"{base}/west%2050%25"]
    assert catalogs_at(f"{base}/?%2A") == catalogs_at(f"{base}/none/*") == []
    with aggregator.open_many(f"{base}/**") as many:
        assert numbers(many) == list(range(30))  # type: ignore[arg-type]
        assert many.topic("t").partitions == ("east coast/0", "nördlich/[1]/0", "west 50%/0")
        assert many.query("SELECT COUNT FROM app = shop").to_pylist() == [{"count": 3}]  # type: ignore[union-attr]
        assert list(many.paths) == catalogs_at(f"{base}/**") == list(many.stats())
        fleet["east coast"].topic("t").append(events(100))
        assert len(numbers(many)) == 40  # type: ignore[arg-type]
        with pickle.loads(pickle.dumps(many)) as copy:
            assert len(numbers(copy)) == 40


def test_named_one_by_one(fleet: dict[str, aggregator.Catalog], base: str):
    """Catalogs count once, however spelled, also with a directory; an address without a catalog is an error."""
    east = f"{base}/east%20coast"
    spelled = [east, f"{east}/", east.replace("%20", " "), f"{base}/e*"]
    with aggregator.open_many([*spelled, fleet["west 50%"].path]) as many:
        assert numbers(many) == list(range(20))  # type: ignore[arg-type]
    with pytest.raises(CatalogNotFoundError):
        aggregator.open_many([east, f"{base}/nowhere"])
    with pytest.raises(CatalogNotFoundError):
        aggregator.open_many(f"{base}/x*")


def test_a_catalog_that_is_there_twice(fleet: dict[str, aggregator.Catalog], base: str):
    """Opening a catalog twice, by its directory and its store, is refused: its events would count twice."""
    with pytest.raises(InvalidRequestError, match="count twice"):
        aggregator.open_many([f"{base}/east%20coast", fleet["east coast"].path])


def test_a_bucket_is_named():
    """A pattern must be within one bucket."""
    with pytest.raises(InvalidRequestError, match="one bucket"):
        catalogs_at("s3://*/fleet")


@pytest.mark.parametrize("address", ["s3://bucket/a#b", "s3://bucket/a?b", "file:///a#b"])
def test_an_address_that_would_be_cut(address: str):
    """An address with # or ? is refused: the rest used to be cut off silently, which merged two catalogs."""
    with pytest.raises(InvalidRequestError, match="would be ignored"):
        Store(address)


def test_members_in_all_states(fleet: dict[str, aggregator.Catalog], base: str):
    """Catalogs without contents and with a replaced writer are read as far as the store has them."""
    store = Store(base)
    store.put("young/catalog.json", b'{"version": 1, "identity": "0123456789abcdef"}')
    store.put("young/lease.json", b"{}")
    store.put("notes/readme.txt", b"no catalog")
    with aggregator.open_many(f"{base}/**") as many:
        assert numbers(many) == list(range(30))  # type: ignore[arg-type]
        east = fleet["east coast"]
        east._backend.shipper._fail(aggregator.FencedError("another writer"))
        with pytest.raises(aggregator.FencedError):
            east.topic("t").append(events(50))
        assert numbers(many) == list(range(30))  # type: ignore[arg-type]


def test_lists_that_are_late(s3: Any, bucket: str, tmp_path: Path):  # noqa: F811
    """Acknowledged events are seen despite late listings, also after a takeover; a new catalog is found later."""
    base, late = f"s3://{bucket}/fleet", {"durability": "store", **SOON}
    east = aggregator.open(tmp_path / "east", store=f"{base}/east", **late)
    with east, aggregator.open(tmp_path / "west", store=f"{base}/west", **late) as west:
        for place, catalog in enumerate((east, west)):
            catalog.create_topic("t").append(events(10 * place))
            catalog.seal("t")
            catalog._backend.shipper.publish()
        s3.listed_late_seconds = 3600.0
        with aggregator.open_many([f"{base}/east", f"{base}/west"]) as many:
            west.topic("t").append(events(20))
            assert numbers(many) == list(range(30))  # type: ignore[arg-type]
            standby = Standby(Store(f"{base}/east"), Layout(tmp_path / "next"), now_us)
            east._backend.shipper.stop()  # as if the process hung
            assert standby.may_take.wait(60)
            assert standby.take_over()
            with aggregator.open(tmp_path / "next", **late) as following:
                following.topic("t").append(events(30))
                following.seal("t")
                following._backend.shipper.publish()
                assert numbers(many) == list(range(40))  # type: ignore[arg-type]
                assert catalogs_at(f"{base}/*") == []
                with aggregator.open_many([f"{base}/east", f"{base}/west"]) as again:
                    assert numbers(again) == list(range(40))  # type: ignore[arg-type]
                s3.listed_late_seconds = 0.0
                assert catalogs_at(f"{base}/*") == [f"{base}/east", f"{base}/west"]


def test_a_member_of_a_newer_version(fleet: dict[str, aggregator.Catalog], base: str):
    """The error for a catalog of a newer version names it."""
    store = fleet["west 50%"]._backend.shipper._store
    fleet["west 50%"].close()
    last = max(each.name for each in store.list("log"))
    stored = bytearray(store.get(last))
    stored[8] = 2
    store.put(last, bytes(stored))
    with pytest.raises(aggregator.UnknownVersionError, match="west%2050%25/log/"):
        aggregator.open_many(f"{base}/**")


def test_a_store_that_refuses_meanwhile(fleet: dict[str, aggregator.Catalog]):
    """If one store refuses, the read fails instead of omitting a catalog; afterwards it is complete."""
    with aggregator.open_many([catalog._backend.store.address for catalog in fleet.values()]) as many:
        broken = many._engine._members[1]
        real = broken.mirror._store.get
        broken.mirror._store.get = refuse
        with pytest.raises(StoreUnreachableError):
            numbers(many)  # type: ignore[arg-type]
        broken.mirror._store.get = real
        assert numbers(many) == list(range(30))  # type: ignore[arg-type]


def refuse(name: str) -> Any:
    """A store that answers 503 until the caller gives up."""
    raise StoreUnreachableError("busy", path=name)


def test_members_are_asked_side_by_side(s3: Any, bucket: str, tmp_path: Path):  # noqa: F811
    """Catalogs 50 ms away are opened and read in parallel."""
    count = 12 if ALL else 5
    for number in range(count):
        with aggregator.open(tmp_path / str(number), store=f"s3://{bucket}/fleet/{number}", durability="store") as made:
            made.create_topic("t").append(events(10 * number))
    addresses = [f"s3://{bucket}/fleet/{number}" for number in range(count)]
    s3.latency_seconds = 0.05
    with s3.recorded() as opening:
        many = aggregator.open_many(addresses)
    with many, s3.recorded() as reading:
        assert numbers(many) == list(range(10 * count))  # type: ignore[arg-type]
    assert members_at_once(opening) > 2
    assert members_at_once(reading) > 2


def members_at_once(requests: list[Any]) -> int:
    """The maximum number of catalogs with requests in flight at the same time."""
    asked = [(each.began, each.ended, (each.path + each.query).partition("fleet")[2][:6]) for each in requests]
    return max(len({who for began, ended, who in asked if began <= at < ended}) for at, _, _ in asked)


def test_a_statement_looks_once(fleet: dict[str, aggregator.Catalog], base: str):
    """A statement refreshes each store once, whatever it reads; the next statement sees what arrived since."""
    with aggregator.open_many(f"{base}/**") as many:
        stores = [member.mirror._store for member in many._engine._members]
        for expected in (3, 4):
            before = [store.traffic.gets for store in stores]
            table = many.query("SELECT COUNT FROM app = shop")
            assert table.to_pylist() == [{"count": expected}]  # type: ignore[union-attr]
            assert max(store.traffic.gets - had for store, had in zip(stores, before, strict=True)) <= 6
            fleet["east coast"].write({"app": "shop"}, [{"msg": "more"}])
        assert many._engine.look_s == 0.5


def test_opening_brings_a_copy_once(fleet: dict[str, aggregator.Catalog], monkeypatch: pytest.MonkeyPatch):
    """Opening reads one manifest copy, which can be large."""
    writer = fleet["east coast"]._backend.shipper
    until(lambda: not writer.facts()["changes_waiting"])  # otherwise another copy comes
    asked: list[str] = []
    get = Store.get
    monkeypatch.setattr(Store, "get", lambda store, name: asked.append(name) or get(store, name))  # type: ignore[func-returns-value]
    with aggregator.open(fleet["east coast"]._backend.store.address, read_only=True) as reader:
        assert numbers(reader) == list(range(10))
    assert len([name for name in asked if name.startswith("manifest/")]) == 1


def test_what_a_killed_reader_leaves(
    fleet: dict[str, aggregator.Catalog], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The directory of a killed reader is removed with the next one that is created; those in use stay."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    address = fleet["east coast"]._backend.store.address
    child = multiprocessing.get_context("spawn").Process(target=open_and_wait, args=(address, str(tmp_path)))
    child.start()
    until((tmp_path / "open").exists)
    child.kill()
    child.join()
    assert len(list(tmp_path.glob("aggregator-*"))) == 1
    with aggregator.open(address, read_only=True) as one, aggregator.open(address, read_only=True) as other:
        assert {one.path, other.path} == set(tmp_path.glob("aggregator-*"))
        assert numbers(one) == numbers(other) == list(range(10))
    assert list(tmp_path.glob("aggregator-*")) == []


def open_and_wait(address: str, directory: str) -> None:
    """Open a catalog until this process is killed."""
    tempfile.tempdir = directory
    with aggregator.open(address, read_only=True):
        Path(directory, "open").touch()
        time.sleep(600)
