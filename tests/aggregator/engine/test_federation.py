"""Several catalogs read as one answer like one catalog with all the events."""

from __future__ import annotations

import contextlib
import pickle
import random
import shutil

import pytest
from effort import share_of

import aggregator
from aggregator import (
    CatalogNotFoundError,
    InvalidRequestError,
    PartitionNotFoundError,
    ReadOnlyError,
    SegmentMissingError,
    TopicNotFoundError,
)

NAMES = ("east", "north", "west")


def batch(chance, name, number):
    """Events with unique times, in spaces that the catalogs share."""
    events = []
    for row in range(chance.randrange(1, 30)):
        time = chance.randrange(1000) * 1000 + NAMES.index(name) * 300 + row
        event = {"space": f"s{chance.randrange(4)}", "timestamp": time, "data": f"{name}/{number}/{row}".encode()}
        events.append(event | {"type": chance.choice("xyz"), "n": chance.randrange(5)})
    return events


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Three catalogs with writers, and one with all of their events."""
    chance, folder = random.Random(5), tmp_path_factory.mktemp("fleet")
    with contextlib.ExitStack() as opened:
        whole = opened.enter_context(aggregator.open(folder / "whole"))
        whole.create_topic("t", indexes=["type"])
        catalogs = []
        for name in NAMES:
            catalogs.append(opened.enter_context(aggregator.open(folder / "fleet" / name)))
            topic = catalogs[-1].create_topic("t", indexes=["type"])
            for number in range(12):
                events = batch(chance, name, number)
                topic.append(events, str(number % 2))
                whole.topic("t").append(events, f"{name}/{number % 2}")
                if chance.random() < 0.4:
                    catalogs[-1].seal()
            for number in range(3):
                records = [{"ts": chance.randrange(10**6), "msg": f"{name} {row}"} for row in range(number + 2)]
                catalogs[-1].write({"app": "web", "host": name}, records)
                whole.write({"app": "web", "host": name}, records)
        with aggregator.open_many(str(folder / "fleet" / "*")) as many:
            yield many, whole, catalogs


def sets(scan):
    return sorted((event.timestamp, event.space, event.data) for event in scan)


@pytest.mark.parametrize(
    "asked",
    share_of([
        {}, {"space": "s1"}, {"space": "s2", "reverse": True}, {"start": 200_000, "end": 600_000}, {"reverse": True},
        {"space": "s0", "limit": 7}, {"limit": 11, "reverse": True}, {"space": "none"},
    ], 2),
)  # fmt: skip
def test_scans_are_those_of_one_catalog(fleet, asked):
    """Scans equal those of one catalog by time, forward and backward, with limits, in rows and counts."""
    many, whole, _ = fleet
    mine, its = many.topic("t").scan(**asked), whole.topic("t").scan(**asked)
    table = mine.to_table()
    times = table["timestamp"].cast("int64").to_pylist()
    assert times == its.to_table()["timestamp"].cast("int64").to_pylist()
    assert times == sorted(times, reverse=bool(asked.get("reverse")))
    assert mine.count() == its.count() == len(times)
    if "limit" not in asked:
        assert sets(mine) == sets(its)
        assert sorted(table.to_pylist(), key=repr) == sorted(its.to_table().to_pylist(), key=repr)


def test_indexes_spaces_and_partitions(fleet):
    """Each partition keeps its record indexes, under the name of its catalog."""
    many, whole, catalogs = fleet
    mine, its = many.topic("t"), whole.topic("t")
    assert sets(mine.scan_index("type", "y")) == sets(its.scan_index("type", "y"))
    assert mine.spaces() == its.spaces()
    assert mine.index_values("type") == its.index_values("type")
    assert sorted(mine.partitions) == sorted(its.partitions)
    for catalog, name in zip(catalogs, NAMES, strict=True):
        read = mine.read(f"{name}/1", 3, 10).to_table()
        assert read.equals(catalog.topic("t").read("1", 3, 10).to_table().select(read.column_names))
        assert mine.scan(partition=f"{name}/0").count() == catalog.topic("t").scan(partition="0").count()
    with pytest.raises(PartitionNotFoundError, match="no partition 'nobody/0'"):
        mine.scan(partition="nobody/0")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT", "SELECT FROM host = north", "SELECT FROM app = web WHERE msg CONTAINS '1' LIMIT 4",
        "SELECT COUNT, MAX(n) GROUP BY type", "SELECT ORDER BY ts DESC LIMIT 5",
    ],
)  # fmt: skip
def test_statements_are_those_of_one_catalog(fleet, text):
    """Statements equal those of one catalog, including measures and groups."""
    many, whole, _ = fleet

    def answer(catalog):
        try:
            found = catalog.query(text)
        except InvalidRequestError as error:
            return str(error)
        return (found if hasattr(found, "to_pylist") else found.to_table()).to_pylist()

    mine, its = answer(many), answer(whole)
    assert isinstance(mine, list), mine
    assert sorted(mine, key=repr) == sorted(its, key=repr)
    assert mine


def test_positions_and_tails_go_on_over_all(fleet):
    """Paging returns every record once; a tail then returns what any of the writers receives."""
    many, _, catalogs = fleet
    found, position = [], "HEAD"
    while True:
        page = many.query(f"SELECT FROM app = web POSITION {position} LIMIT 5")
        table = page.to_table()
        if not len(table):
            break
        found += table["data"].to_pylist()
        position = page.position
    assert sorted(found) == sorted(many.query("SELECT FROM app = web").to_table()["data"].to_pylist())
    arriving = many.tail("SELECT FROM app = new", timeout_s=30).batches()
    for catalog, name in zip(catalogs, NAMES, strict=True):
        catalog.write({"app": "new"}, [{"ts": 1, "msg": name}])
        assert next(arriving)["data"].to_pylist() == [name.encode()]
    assert {"app": "new"} in many.streams()
    assert len(many.streams("app = web")) == len(NAMES)


def test_sql_and_copies(fleet):
    many, whole, _ = fleet
    statement = "SELECT type, count(*) AS c, sum(n) AS s FROM t GROUP BY type ORDER BY type"
    assert many.sql(statement).to_table().equals(whole.sql(statement).to_table())
    with pickle.loads(pickle.dumps(many)) as copy:
        assert sets(copy.topic("t").scan(space="s1")) == sets(many.topic("t").scan(space="s1"))
    assert set(many.stats()) == {str(path) for path in many.paths}


def test_what_changes_is_seen(tmp_path):
    """Merges, erasures, deletions and new topics are seen, while a scan that began earlier continues."""
    with aggregator.open(tmp_path / "a") as a, aggregator.open(tmp_path / "b") as b:
        for catalog in (a, b):
            topic = catalog.create_topic("t")
            for time in range(40):
                topic.append([{"space": f"s{time % 2}", "timestamp": time}])
                catalog.seal() if time % 8 == 0 else None
        with aggregator.open_many([tmp_path / "b", tmp_path / "a"]) as many:
            assert [path.name for path in many.paths] == ["a", "b"]
            batches = many.topic("t").scan().batches()
            first = next(batches)
            a.topic("t").erase("s1")
            a.compact()
            b.delete_topic("t")
            assert len(first) + sum(map(len, batches)) == 80
            assert many.topic("t").scan().count() == 20
            a.delete_topic("t")
            assert many.topics() == ()
            with pytest.raises(TopicNotFoundError):
                many.topic("t")
            b.create_topic("u").append([{"space": "x", "timestamp": 1}])
            assert many.topic("u").spaces() == {"x": 1}


def test_a_catalog_of_a_fleet_that_is_deleted(tmp_path):
    """If a catalog's objects are deleted, open readers raise on reading them; new readers have the other catalogs."""
    stores, chance = tmp_path / "stores", random.Random(1)
    for name in NAMES:
        with aggregator.open(tmp_path / name, store=(stores / name).as_uri(), ship_interval="20ms") as catalog:
            events = [
                {"space": f"{name}-{row}", "timestamp": row, "data": chance.randbytes(40_000)} for row in range(10)
            ]
            catalog.create_topic("t").append(events)
            catalog.seal()
            catalog.topic("t").append(events[:1])
    pattern = f"{stores.as_uri()}/*"
    with aggregator.open_many(pattern) as many:
        topic = many.topic("t")
        assert topic.scan().count() == 33
        shutil.rmtree(stores / "north")
        with aggregator.open_many(pattern) as others:
            assert len(list(others.topic("t").scan())) == 22
        with pytest.raises(SegmentMissingError, match=r"north.*the object of a segment is missing"):
            list(topic.scan(space="north-3"))
        assert len(list(topic.scan(space="west-0"))) == 2
    shutil.rmtree(stores)
    with pytest.raises(CatalogNotFoundError):
        aggregator.open_many(pattern)


def test_what_is_refused(tmp_path):
    """Writes are refused, and so are topics with different keys; SHOW PIPES belongs to a single catalog."""
    with pytest.raises(CatalogNotFoundError):
        aggregator.open_many(str(tmp_path / "*"))
    with aggregator.open(tmp_path / "a") as a, aggregator.open(tmp_path / "b") as b:
        a.create_topic("t")
        b.create_topic("t", keys="binary")
        a.create_topic("u", indexes=["x", "y"])
        b.create_topic("u", indexes=["y"])
        (tmp_path / "no catalog").mkdir()
        with aggregator.open_many(f"{tmp_path}/*") as many:
            assert len(many.paths) == 2
            with pytest.raises(InvalidRequestError, match="read them separately"):
                many.topic("t").scan().count()
            assert many.topic("u").indexes == ("y",)
            with pytest.raises(ReadOnlyError):
                many.topic("u").append([{"space": "a", "timestamp": 1}])
            with pytest.raises((ReadOnlyError, InvalidRequestError)):
                many.query("CREATE PIPE p")
            with pytest.raises(InvalidRequestError, match="belong to a single catalog"):
                many.query("SHOW PIPES")
