"""The logging handler: two lines to set up, and it never disturbs the program."""

from __future__ import annotations

import functools
import logging
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest
from breaking_proxy import BreakingProxy, Fate
from effort import long
from waiting import PATIENCE_S

from aggregator import InvalidRequestError
from aggregator.client import LogHandler

TAGS = {"name": "app1"}


@contextmanager
def logger_with(handler, level=logging.DEBUG):
    """A logger that only this handler listens to; pytest may listen to loggers of the logging tree."""
    logger = logging.Logger(f"test.{id(handler)}", level)
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        handler.close()


def messages(catalog, where=""):
    return [event.data.decode() for event in catalog.query(f"SELECT FROM name=app1 {where}")]


def test_records(catalog, server):
    """Records have the formatted message, level, logger and extra fields; LQL finds them."""
    with logger_with(LogHandler(server.url, TAGS, exit_timeout_s=PATIENCE_S)) as logger:
        logger.info("started %s", "well", extra={"port": 8080, "peer": ("a", 1), "level": "mine"})
        logger.debug("odd \udcff text")
        try:
            raise ValueError("wrong")
        except ValueError:
            logger.exception("failed")
    texts = messages(catalog)
    assert texts[:2] == ["started well", "odd \\udcff text"]
    assert texts[2].startswith("failed\nTraceback")
    assert texts[2].endswith("ValueError: wrong")
    assert messages(
        catalog,
        "WHERE fields:port = 8080 AND fields:level = info AND fields:extra.level = mine AND fields:peer CONTAINS a",
    ) == ["started well"]
    assert messages(catalog, f"WHERE fields:logger = {logger.name!r} AND fields:level = error") == texts[2:]


@pytest.mark.parametrize(("value", "text"), [
    ({"a": [1, None, True], "é": {"b": "c"}}, '{"a":[1,null,true],"é":{"b":"c"}}'), (("a", 1), '["a",1]'),
    ({"at": datetime(2026, 3, 1, tzinfo=UTC), "p": Path("/x")}, '{"at":"2026-03-01 00:00:00+00:00","p":"/x"}'),
    ({5}, "[5]"), (b"\xffa", "\\xffa"), (Path("/x"), "/x"), (True, "true"), (1.5, "1.5"), (ValueError("no"), "no"),
    ({("a", 1): 2}, "{('a', 1): 2}"),
])  # fmt: skip
def test_extra_values(catalog, server, value, text):
    """Extra lists and mappings become JSON; values that JSON cannot represent become text."""
    with logger_with(LogHandler(server.url, TAGS, exit_timeout_s=PATIENCE_S)) as logger:
        logger.info("x", extra={"odd": value})
    (event,) = catalog.query("SELECT FROM name=app1")
    assert dict(event.columns["fields"])["odd"] == text


def test_extra_values_are_those_of_the_call(catalog, server):
    """Extra values are sent as they were at the call, even if they change later or contain themselves."""
    circle = []
    circle.append(circle)
    deep = functools.reduce(lambda inner, _: [inner], range(100_000), 1)
    with logger_with(LogHandler(server.url, TAGS, exit_timeout_s=PATIENCE_S)) as logger:
        changing = [1]
        logger.info("x", extra={"changing": changing, "circle": circle, "deep": deep})
        changing.append(2)
    (event,) = catalog.query("SELECT FROM name=app1")
    fields = dict(event.columns["fields"])
    assert (fields["changing"], fields["deep"][:3]) == ("[1]", "[[[")
    assert fields["circle"].strip("[]") == "..."


def test_two_lines(catalog, server):
    """A program needs two lines for the handler; records queued at exit are sent."""
    code = (
        "import logging\n"
        "from aggregator.client import LogHandler\n"
        f"logging.getLogger().addHandler(LogHandler({server.url!r}, {TAGS!r}, exit_timeout_s={PATIENCE_S}))\n"
        "for n in range(1000): logging.warning('message %d', n)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert messages(catalog) == [f"message {n}" for n in range(1000)]


def test_its_own_http_is_left_out(catalog, server, caplog):
    """With every logger at DEBUG, records of the handler's own client are dropped, so no loop occurs."""
    caplog.set_level(logging.DEBUG)
    root = logging.getLogger()
    handler = LogHandler(server.url, TAGS, exit_timeout_s=PATIENCE_S)
    root.addHandler(handler)
    try:
        for n in range(5):
            logging.getLogger("app").info("message %d", n)
            handler.flush()
    finally:
        root.removeHandler(handler)
        handler.close()
    assert [text for text in messages(catalog) if "HTTP" in text or "httpcore" in text] == []
    assert len([text for text in messages(catalog) if text.startswith("message")]) == 5
    assert [record for record in caplog.records if record.name.startswith("httpx")] == []


def test_nor_does_it_tell_its_own_handlers_that_nobody_answers(caplog):
    """Warnings of the handler's own client reach no handler: each would be another record to send."""
    handler = LogHandler("http://127.0.0.1:1", TAGS, exit_timeout_s=2.0)
    record = logging.makeLogRecord({"msg": "alone", "name": "app", "levelno": logging.INFO})
    handler.emit(record)
    handler.close()
    assert [record for record in caplog.records if record.name.startswith("aggregator")] == []


def test_no_server(capfd):
    """Without a server, logging stays fast and raises nothing; drops are counted and reported at the end."""
    handler = LogHandler("http://127.0.0.1:9", TAGS, queue_bytes=50_000, exit_timeout_s=0.05)
    began = time.monotonic()
    with logger_with(handler) as logger:
        for n in range(5000):
            logger.info("message %d", n)
        took = time.monotonic() - began
        assert handler.dropped > 4000
    assert took < 30
    assert handler.dropped == 5000 + 1  # with the record that reports the drops
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("aggregator: ")]
    assert len(said) == 2
    assert "not delivered" in said[-1]


@pytest.mark.parametrize("answers", [False, True])
def test_the_end_of_a_program_is_bounded(capfd, answers, monkeypatch):
    """`logging.shutdown` flushes and closes: together they take `exit_timeout_s` at most, even if the server accepts
    the connection and never answers.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1] if answers else 9
        handler = LogHandler(f"http://127.0.0.1:{port}", TAGS, exit_timeout_s=0.5, timeout_s=60.0)
        left, close = [], handler._writer.close
        monkeypatch.setattr(handler._writer, "close", lambda timeout_s: (left.append(timeout_s), close(timeout_s)))
        with logger_with(handler) as logger:
            logger.info("message")
            began = time.monotonic()
            logging.shutdown([lambda: handler])
            took = time.monotonic() - began
    assert 0.4 < took < 30
    assert left[0] < 0.1  # none, apart from clock rounding
    assert handler.dropped == 1
    assert "1 log records were not delivered" in capfd.readouterr().err


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
def test_the_stream_is_told_of_drops(catalog, server, policy):
    """When the server is back, a record reports the number of drops, and the rest is stored once."""
    closed, tried = [True], Event()

    def fate(_):
        tried.set()
        return Fate(up_bytes=1) if closed[0] else Fate()

    with BreakingProxy(server.url, fate) as proxy:
        handler = LogHandler(proxy.url, TAGS, queue_bytes=100_000, when_full=policy, exit_timeout_s=PATIENCE_S)
        logger = logging.getLogger("test.drops")
        logger.propagate = False
        logger.addHandler(handler)
        logger.warning("message 0")
        assert tried.wait(PATIENCE_S)  # otherwise the whole queue may be in flight, and nothing in flight is dropped
        for n in range(1, 1000):
            logger.warning("message %d", n)
        dropped = handler.dropped
        assert 0 < dropped < 1000
        closed[0] = False
        handler.flush()
        logger.warning("back")
        logger.removeHandler(handler)
        handler.close()
    found = messages(catalog)
    assert [text for text in found if "were dropped" in text] == [
        f"{dropped} log records were dropped before they reached this server"
    ]
    kept = [int(text.split()[1]) for text in found if text.startswith("message")]
    assert kept == sorted(set(kept))
    assert len(kept) == 1000 - dropped
    assert (kept[-1] == 999) is (policy == "drop_oldest")
    assert "back" in found


def test_refused_for_good(catalog, server, capfd):
    """Records that the server permanently refuses are counted and reported once; the program continues."""
    catalog.create_topic("raw", keys="binary")
    with logger_with(LogHandler(server.url, TAGS, exit_timeout_s=PATIENCE_S, topic="raw")) as logger:
        handler = logger.handlers[0]
        for n in range(3):
            logger.info("message %d", n)
            handler.flush()
        assert handler.dropped == 3
    err = capfd.readouterr().err
    assert err.count("cannot be delivered") == 1


def test_what_is_wrong_with_a_record_is_not_raised(catalog, server, capfd):
    """An invalid record raises nothing and is printed to standard error, as Python's handlers do."""
    with logger_with(LogHandler(server.url, TAGS, exit_timeout_s=PATIENCE_S)) as logger:
        logger.info("%d", "no number")
        logger.info("fine")
    assert messages(catalog) == ["fine"]
    assert "no number" in capfd.readouterr().err
    with pytest.raises(InvalidRequestError):
        LogHandler(server.url, when_full="block")


@long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork(catalog, server):
    """A forked child sends its own records, and none of its parent's a second time."""
    code = (
        "import logging, os\n"
        "from aggregator.client import LogHandler\n"
        f"logging.getLogger().addHandler(LogHandler({server.url!r}, {TAGS!r}, exit_timeout_s={PATIENCE_S}))\n"
        "logging.warning('before')\n"
        "child = os.fork()\n"
        "logging.warning('child' if child == 0 else 'parent')\n"
        "if child: os.waitpid(child, 0)\n"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert sorted(messages(catalog)) == ["before", "child", "parent"]
