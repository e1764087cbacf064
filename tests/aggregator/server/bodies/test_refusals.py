"""Refused and changed records are counted by source and reason, and logged periodically."""

from __future__ import annotations

import asyncio
import logging

import pytest

import aggregator
from aggregator import OverloadedError
from aggregator.server.bodies.shared.refusals import CHANGES, EVERY_S, LOSSES, SOURCES, Refusals
from aggregator.server.config.settings import Settings
from aggregator.server.context import Context
from aggregator.server.services.syslog import _Listener


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(caplog) -> list[str]:
    found = [record.message for record in caplog.records]
    caplog.clear()
    return found


def counts(refusals: Refusals) -> dict[tuple[str, str], int]:
    return {(source, reason): count for source, reason, count in refusals.counts() if count}


def test_told_now_and_then(caplog):
    """The first refusal of each source and reason is logged immediately, later ones within some seconds as one line."""
    clock = Clock()
    refusals = Refusals(clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            refusals.add("otlp", "invalid", 2, "too long")
        refusals.add("bulk", "invalid")
        assert lines(caplog) == [
            "otlp: 2 records refused: they cannot be stored (too long)",
            "bulk: 1 record refused: they cannot be stored",
        ]
        refusals.add("otlp", "invalid", 0)
        clock.now += EVERY_S
        refusals.add("otlp", "invalid", why="odd")
    assert lines(caplog) == ["otlp: 5 records refused: they cannot be stored (odd)"]
    assert counts(refusals) == {("otlp", "invalid"): 7, ("bulk", "invalid"): 1}


def test_the_last_are_told_too(caplog):
    """Refusals after the last line are logged when due, even if nothing follows, and immediately at the end."""
    clock = Clock()
    refusals = Refusals(clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(1_000):
            refusals.add("syslog", "overloaded")
        lines(caplog)
        refusals.flush()
        assert lines(caplog) == []
        clock.now += EVERY_S
        refusals.flush()
        assert lines(caplog) == ["syslog: 999 messages dropped: storing does not keep up"]
        clock.now += EVERY_S
        refusals.flush()
        assert lines(caplog) == []
        refusals.add("syslog", "overloaded")
        refusals.add("syslog", "overloaded", why="x" * 1_000_000)
        lines(caplog)
        refusals.flush(now=True)
    (line,) = lines(caplog)
    assert line.startswith("syslog: 1 message dropped")
    assert len(line) < 500


def test_known_from_the_start():
    """Every source and reason has a count from the start, as rates need, and no reason has two meanings."""
    assert len(list(Refusals().counts())) == len(SOURCES) * (len(LOSSES) + len(CHANGES)) < 200
    assert not LOSSES.keys() & CHANGES.keys()


def test_told_once_stored(caplog):
    """Changes to records that could not be stored yet are not counted: the records will be sent again."""
    refusals = Refusals()

    def fail() -> None:
        with refusals.counting("otlp") as add:
            add("text_escaped")
            raise OverloadedError("full", retry_after_s=1.0)

    with pytest.raises(OverloadedError):
        fail()
    assert counts(refusals) == {}
    with refusals.counting("otlp") as add:
        add("text_escaped")
        add("text_escaped", 2)
    assert counts(refusals) == {("otlp", "text_escaped"): 3}


def test_syslog_that_is_stored_at_the_second_attempt(tmp_path, monkeypatch):
    """A cut message, one with long tags and an unparsed one count once, however often storing them is tried."""
    long = b"<13>1 - " + b"h" * 255 + b' a - - [a b="c"] text'
    batch = [
        (b"<13>1 - h a - - - half", True, "p"),
        (long, False, "p"),
        (b"neither form", False, "p"),
        (b"\n", False, "p"),
    ]
    with aggregator.open(tmp_path) as catalog:
        context = Context.of(catalog, Settings())
        write, busy = catalog.write_streams, [OverloadedError("full", retry_after_s=0.0)] * 3

        def write_streams(*args, **options):
            if busy:
                raise busy.pop()
            return write(*args, **options)

        monkeypatch.setattr(catalog, "write_streams", write_streams)
        monkeypatch.setattr("aggregator.server.bodies.shared.records.SHORT_TAGS", 100)
        monkeypatch.setattr(
            "aggregator.server.bodies.shared.records.TagSet.cut", lambda tags: (aggregator.lql.TagSet.of({}), tags)
        )

        async def scenario():
            await _Listener(context)._store(batch)

        asyncio.run(scenario())
        assert not busy
        context.close()
        assert counts(context.refusals) == {
            ("syslog", "message_cut"): 1, ("syslog", "tags_cut"): 1, ("syslog", "unparsed"): 1,
        }  # fmt: skip


def test_requests_that_are_refused(server, web, caplog):
    """Requests that a retry cannot fix are logged with their reason, whatever the shape of the answer."""
    lines_ = {"content-type": "application/x-ndjson"}
    for path, body, headers in (
        ("/v1/logs", b"junk", {"content-type": "application/x-protobuf"}), ("/_bulk", b"junk\n", lines_),
        ("/v1/streams?tags={a=b}", b"{", lines_), ("/v1/topics/none/events", b"{}\n", lines_),
        ("/topic/t/partition/p", b"junk", {"content-type": "application/vnd.apache.arrow.file"}),
        ("/v1/cloudevents", iter([b"x" * 11_000_000]), {"content-type": "application/cloudevents+json"}),
    ):  # fmt: skip
        status = 404 if path == "/v1/topics/none/events" else 400
        assert web.post(path, content=body, headers=headers).status_code == status, path
    assert counts(server.context.refusals) == {
        (source, "request"): 1 for source in ("otlp", "bulk", "streams", "events", "plateau", "cloudevents")
    }
    assert "otlp: 1 request refused as a whole (the last with status 400: the body is not an export" in caplog.text
    assert web.post("/v1/query", json={"query": "junk"}).status_code == 400
    server.context.appends.capacity = 0
    assert web.post("/v1/streams?tags={a=b}", content=b"{}", headers=lines_).status_code == 429
    assert sum(counts(server.context.refusals).values()) == 6
