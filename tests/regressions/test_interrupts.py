"""Ctrl-C at the wrong moment left a catalog in which nothing could be sealed, created, merged or closed."""

from __future__ import annotations

import signal
import threading

import pyarrow as pa
import pytest

import aggregator
from esformat import ClosedError


def rows(*times):
    return [{"space": "a", "timestamp": time} for time in times]


@pytest.fixture
def interrupt(monkeypatch):
    """Interrupt the main thread just after a call."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)

    def after(owner, name):
        real = getattr(owner, name)

        def done(*args, **options):
            found = real(*args, **options)
            monkeypatch.setattr(owner, name, real)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return found

        monkeypatch.setattr(owner, name, done)

    yield after
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def root(tmp_path, quiet):
    """The directory of a catalog without background work."""
    return tmp_path / "events"


@pytest.fixture
def catalog(root):
    with aggregator.open(root) as catalog:
        yield catalog


def test_sealing(catalog, interrupt):
    """What the manifest lists as sealed is sealed, and sealing continues."""
    topic = catalog.create_topic("t", roll={"age": "1h"})
    topic.append(rows(1))
    interrupt(catalog._backend.manifest, "apply")
    with pytest.raises(KeyboardInterrupt):
        catalog.seal()
    assert topic.stats()["segments"] == 1
    assert catalog._backend.budget.held_bytes == 0
    topic.append(rows(2))
    assert catalog.seal() == 1
    assert [event.timestamp for event in topic.scan()] == [1, 2]


def test_merging(root, catalog, interrupt):
    """Scans read the segments that the manifest lists, and merging continues."""
    topic = catalog.create_topic("t", roll={"age": "1h"})
    for number in range(4):
        topic.append(rows(number))
        catalog.seal()
    interrupt(catalog._backend.manifest, "apply")
    with pytest.raises(KeyboardInterrupt):
        topic.compact()
    topic.compact()
    assert [event.timestamp for event in topic.scan()] == [0, 1, 2, 3]
    assert topic.stats()["segments"] == 1
    with aggregator.open(root, read_only=True) as reader:
        assert [event.timestamp for event in reader.topic("t").scan()] == [0, 1, 2, 3]


def test_retention(catalog, interrupt):
    """Scans do not read removed segments."""
    topic = catalog.create_topic("t", roll={"age": "1h"}, retention={"segments": 1})
    for number in range(3):
        topic.append(rows(number))
        catalog.seal()
    interrupt(catalog._backend.manifest, "apply")
    with pytest.raises(KeyboardInterrupt):
        topic.retain()
    assert topic.stats()["segments"] == 1
    catalog._backend.upkeep.removal.sweep()
    assert [event.timestamp for event in topic.scan()] == [2]


def test_making_a_topic(root, catalog, interrupt):
    """After an interrupt in `create_topic` the topic has all of its columns and can be used, also in a new process."""
    manifest = catalog._backend.manifest
    interrupt(manifest, "make_topic")
    with pytest.raises(KeyboardInterrupt):
        catalog.create_topic("t", pa.schema([("n", pa.int64()), ("type", pa.string())]), indexes=["type"])
    for n in range(2):
        topic = catalog.topic("t")
        topic.append(rows(n))
        with aggregator.open(root, read_only=True) as reader:
            for each in (topic, reader.topic("t")):
                assert each.scan().to_table().schema.names == ["space", "grouping", "timestamp", "n", "type"]
                assert (each.indexes, each.scan().count()) == (("type",), n + 1)


def test_making_a_pipe(catalog, interrupt):
    """After an interrupt in CREATE PIPE the pipe can be created and deleted."""
    interrupt(catalog._pipes._rows, "add")
    with pytest.raises(KeyboardInterrupt):
        catalog.query("CREATE PIPE p FROM app = web")
    assert catalog.query("CREATE PIPE p FROM app = web")["name"].to_pylist() == ["p"]
    catalog.query("DELETE PIPE p")


def test_closing(root, interrupt):
    """The catalog is closed, and can be reopened immediately."""
    catalog = aggregator.open(root)
    catalog.create_topic("t").append(rows(1))
    interrupt(catalog._pipes, "stop")
    with pytest.raises(KeyboardInterrupt):
        catalog.close()
    with aggregator.open(root) as again:
        assert again.topic("t").scan().count() == 1


def test_between_two_transactions(catalog):
    """An open transaction that an interrupt left does not block the next one."""
    catalog._backend.manifest._connection.execute("BEGIN")
    assert catalog.problems() == []
    catalog.create_topic("t")


def test_closing_that_fails(root, monkeypatch):
    """Whatever fails during `close`, nothing can be written once another process may open the catalog."""
    catalog = aggregator.open(root)
    topic = catalog.create_topic("t")
    topic.append(rows(1))

    def fail(*_, **__):
        raise ValueError("no such thing")

    with monkeypatch.context() as broken:
        broken.setattr(catalog._backend.streams, "keep", fail)
        with pytest.raises(ValueError, match="no such thing"):
            catalog.close()
    with pytest.raises(ClosedError, match="closed"):
        topic.append(rows(2))
    with aggregator.open(root) as again:
        assert again.topic("t").scan().count() == 1
