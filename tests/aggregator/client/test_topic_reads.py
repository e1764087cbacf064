"""Streams, LQL, positions, tails and upkeep over HTTP, compared with the catalog behind the server."""

from __future__ import annotations

import threading
import time
from itertools import islice

import pyarrow as pa
import pytest
from breaking_proxy import BreakingProxy, Fate

from aggregator import InvalidRequestError, Retention, Roll, TopicExistsError
from aggregator.base.result import Answer
from aggregator.client import Client, Retry


def records(first, count):
    return [
        {"ts": 1000 + n, "msg": f"message {n}", "level": "ERROR" if n % 5 else "INFO"}
        for n in range(first, first + count)
    ]


def test_topics(catalog, client):
    """Topics are created, listed, and accepted again with the same settings."""
    client.create_topic("web", indexes=["type"], retention={"age": "7d"})
    client.create_topic("web", indexes=["type"], retention={"age": "7d"})
    assert client.topics() == catalog.topics() == ("activity", "web")
    assert catalog.topic("web").retention.age_us == 7 * 86_400_000_000
    with pytest.raises(TopicExistsError):
        client.create_topic("web", indexes=["colour"])
    with pytest.raises(InvalidRequestError):
        client.create_topic("x", indexes="type")
    assert client.stats()["rows"] == 0


def test_policies_as_objects(catalog, client):
    """Policies are mappings or objects; as in a catalog, a mapping changes what it names, an object replaces all."""
    client.create_topic("web", roll=Roll(rows=10), retention=Retention(bytes=1 << 30))
    assert catalog.topic("web").roll == Roll(rows=10)
    client.alter_topic("web", roll=Roll(frame_bytes=1 << 16), retention={"segments": 5})
    assert catalog.topic("web").roll == Roll(frame_bytes=1 << 16)
    assert catalog.topic("web").retention == Retention(bytes=1 << 30, segments=5)
    client.alter_topic("web", retention=Retention())
    assert catalog.topic("web").retention == Retention()
    for wrong in ("x", 5, [1]):
        with pytest.raises(InvalidRequestError, match="roll must be an object"):
            client.alter_topic("web", roll=wrong)
        with pytest.raises(InvalidRequestError, match="retention must be an object"):
            client.create_topic("other", retention=wrong)


def test_streams(catalog, client):
    """Mappings and tables can be written to streams; query answers equal the catalog's."""
    receipt = client.write({"app": "web", "ip": "::1"}, records(0, 20))
    assert (receipt.topic, len(receipt)) == ("logs", 20)
    client.write({"app": "web", "ip": "::1"}, pa.table({"ts": [5], "msg": ["from a table"]}))
    client.write({"app": "db"}, [{"msg": b"no time", "answer": 42}])
    assert catalog.streams() == [{"app": "db"}, {"app": "web", "ip": "::1"}]
    found = client.query('SELECT FROM app=web WHERE fields:level = "INFO"')
    wanted = catalog.query('SELECT FROM app=web WHERE fields:level = "INFO"')
    assert isinstance(found, Answer)
    assert found.to_table().equals(wanted.to_table())
    assert list(found) == list(wanted)
    assert found.count() == 4
    assert found.schema == wanted.schema


def test_statements(catalog, client):
    """COUNT and other statements return tables, as in the catalog; an error says where the mistake is."""
    client.write({"app": "web"}, records(0, 20))
    measured = ("SELECT SUM(fields:n) FROM app=web GROUP BY level", "select\tmax(ts), count", "SELECT DISTINCT app")
    for text in ("SELECT COUNT FROM app=web", "SHOW PARTITIONS", "select count from app=web group by level", *measured):
        assert client.query(text).to_pylist() == catalog.query(text).to_pylist()
    for text in ("SELEC FROM x", "SELECT FROM app=web WHERE (", ""):
        with pytest.raises(InvalidRequestError):
            client.query(text).to_table()


def test_pages(client):
    """Each record is on exactly one page."""
    client.write({"app": "web"}, records(0, 25))
    position, found = "head", []
    for _ in range(4):
        page = client.page("SELECT FROM app=web", position, limit=10)
        found += page.table["data"].to_pylist()
        position = page.position
    assert found == [b"message %d" % n for n in range(25)]
    assert client.page("SELECT FROM app=web", position).table.num_rows == 0


def test_tail_over_a_breaking_line(server, client):
    """A tail returns every record once, in order, although every connection breaks after a while."""
    client.write({"app": "web"}, records(0, 5))
    stop = threading.Event()
    with (
        BreakingProxy(server.url, lambda number: Fate(down_bytes=3000 + 400 * (number % 7))) as proxy,
        Client(proxy.url, retry=Retry(first_s=0.001, longest_s=0.01)) as broken,
    ):
        tail = broken.tail("SELECT FROM app=web", position="head", timeout_s=120)

        def write():
            for n in range(5, 60, 5):
                client.write({"app": "web"}, records(n, 5))
                stop.wait(0.01)

        writer = threading.Thread(target=write)
        writer.start()
        found = [event.data for event in islice(tail, 60)]
        writer.join()
        assert found == [b"message %d" % n for n in range(60)]
        assert proxy.connections > 3


def test_tail_of_what_is_there(client, monkeypatch):
    """A tail with timeout 0 returns all existing records, in as many pages as it takes."""
    monkeypatch.setattr("aggregator.client.tail.POLL_RECORDS", 2)
    client.write({"app": "web"}, records(0, 5))
    found = client.tail("SELECT FROM app=web", position="head", timeout_s=0)
    assert [event.data for event in found] == [b"message %d" % n for n in range(5)]


def test_tail_from_now(client):
    """A tail without a position returns only later records, and ends if none arrive within its timeout."""
    client.write({"app": "web"}, records(0, 5))
    began = time.monotonic()
    assert list(client.tail("SELECT FROM app=web", timeout_s=0.1)) == []
    assert time.monotonic() - began < 60
    events = iter(client.tail("SELECT FROM app=web", timeout_s=120))
    timer = threading.Timer(0.5, lambda: client.write({"app": "web"}, records(5, 3)))
    timer.start()
    assert [next(events).data for _ in range(3)] == [b"message 5", b"message 6", b"message 7"]
    timer.join()


def test_upkeep(catalog, client):
    """Retention, compaction and erasure run on request."""
    topic = client.topic("activity")
    topic.append([{"space": name, "timestamp": 1, "data": b"x", "type": "a"} for name in ("a", "b", "b")])
    assert topic.retain(dry_run=True)
    topic.erase(["b"])
    topic.compact()
    assert topic.scan().count() == 1
    assert topic.stats()["rows"] >= 1
    with pytest.raises(ValueError, match="list"):
        topic.erase("b")
