"""Soon after its start an idle server opens segments, newest first."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from served import served
from waiting import until

import aggregator
from aggregator import lql
from aggregator.server import app
from aggregator.storage.segments import pool as pools
from esformat import CorruptSegmentError


@pytest.fixture
def catalog(tmp_path):
    """Six segments of two topics, the newer ones created first; none is open."""
    with aggregator.open(tmp_path / "data", durability="none") as made:
        for name in ("a", "b"):
            topic = made.create_topic(name)
            for n in range(3):
                topic.append([{"space": "s", "timestamp": 10 * (3 - n) + (name == "b")}])
                made.seal(name)
    with aggregator.open(tmp_path / "data", read_only=True) as opened:
        yield opened


def newest_first(catalog):
    infos = [info for topic in catalog._backend.state.topics.values() for info in topic.segments.view()]
    return [info.number for info in sorted(infos, key=lambda info: -info.max_timestamp)]


def opened(catalog):
    return list(catalog._backend.pool._open)


def test_the_newest_first(catalog):
    """Each step opens one segment, newest first over all topics; evicted for space, the newest is last."""
    order = newest_first(catalog)
    assert len(order) == 6
    for n, _ in enumerate(catalog.open_ahead(), 1):
        assert opened(catalog) == order[:n][::-1]
    assert len(opened(catalog)) == 6
    assert [event.timestamp for event in catalog.topic("a").scan()] == [10, 20, 30]


def test_what_was_asked_for_goes_last(catalog):
    """Opening ahead evicts no segment that is in use."""
    list(catalog.topic("a").scan(start=10, end=11))
    (used,) = opened(catalog)
    list(catalog.open_ahead())
    assert opened(catalog)[-1] == used


def test_half_of_the_room_is_left(catalog, monkeypatch):
    """Opening ahead fills at most half of the space: a catalog may have more segments than fit."""
    next(catalog.open_ahead())
    monkeypatch.setattr(pools, "OPEN_BYTES", 2 * (catalog._backend.pool._held_bytes + 1))
    assert len(list(catalog.open_ahead())) == 2
    assert opened(catalog) == newest_first(catalog)[:2][::-1]


def test_a_damaged_one_is_left_to_who_reads_it(catalog):
    """A damaged segment is skipped, and the others are opened."""
    damaged = newest_first(catalog)[1]
    catalog._backend.layout.segment(damaged).write_bytes(b"damaged")
    list(catalog.open_ahead())
    assert set(opened(catalog)) == {*newest_first(catalog)} - {damaged}
    with pytest.raises(CorruptSegmentError):
        list(catalog.topic("a").scan())


@pytest.mark.parametrize("pool", ["reads", "appends"])
def test_requests_go_first(catalog, pool):
    """No segment is opened during a request or once the server stops."""
    context = SimpleNamespace(
        catalog=catalog, ready=True, reads=SimpleNamespace(busy=0), appends=SimpleNamespace(busy=0)
    )
    getattr(context, pool).busy = 1
    thread = threading.Thread(target=app._open_segments, args=(context,))
    thread.start()
    until(lambda: opened(catalog))
    time.sleep(5 * app.PAUSE_S)
    assert len(opened(catalog)) == 1
    getattr(context, pool).busy = 0
    thread.join()
    assert len(opened(catalog)) == 6
    catalog._backend.pool.close()
    context.ready = False
    app._open_segments(context)
    assert len(opened(catalog)) == 1


def test_a_server_does_it(tmp_path, catalog, monkeypatch):
    """The server does it soon after its start, once the statement parser is loaded or cannot be."""
    asked = []

    def parse(text):
        asked.append(text)
        raise lql.LqlError("LQL cannot be parsed here")

    monkeypatch.setattr(app, "WARM_S", 0.0)
    monkeypatch.setattr(app.lql, "parse_statement", parse)
    with served(tmp_path / "data") as server:
        until(lambda: len(opened(server.catalog)) == 6)
    assert asked == ["SELECT"]
