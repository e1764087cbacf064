"""Health, readiness and unknown paths."""

from __future__ import annotations

import time

from log_poison import LONG, events, log_by_hand, newest_columns
from served import served

import aggregator

WAIT_S = 60


def test_health(web):
    """A running server reports that it is alive and ready, in plateau's words as well."""
    assert web.get("/healthz").json() == {"status": "ok"}
    assert web.get("/readyz").json() == {"status": "ready"}
    answer = web.get("/ok")
    assert (answer.status_code, answer.json()) == (200, {"ok": "true"})


def test_ready_with_problems(tmp_path, web_of):
    """Quarantined events are reported in the readiness answer and the figures; the server stays ready."""
    root = tmp_path / "data"
    with aggregator.open(root) as catalog:
        catalog.create_topic("t", roll={"rows": 1}).append([{"space": "a", "timestamp": 1}])
    bad = events(newest_columns(root, "t"), [{"space": "x" * LONG, "timestamp": 2}, {"space": "a", "timestamp": 3}])
    log_by_hand(root, "t", bad)
    with served(root) as running:
        web = web_of(running)
        deadline = time.monotonic() + WAIT_S
        while "problems" not in web.get("/readyz").json() and time.monotonic() < deadline:
            time.sleep(0.05)
        answer = web.get("/readyz")
        assert (answer.status_code, answer.json()) == (200, {"status": "ready", "problems": 1})
        figures = web.get("/metrics").text
        assert 'aggregator_topic_quarantined_rows{topic="t"} 1.0' in figures
        assert "aggregator_problems 1.0" in figures


def test_problems_are_counted(tmp_path, web_of):
    """A server whose catalog lacks a segment reports the problem in its readiness answer."""
    with aggregator.open(tmp_path / "data") as catalog:
        catalog.create_topic("t").append([{"space": "a", "timestamp": 1}])
        catalog.seal()
    next((tmp_path / "data" / "segments").glob("*/*.esdb")).unlink()
    with served(tmp_path / "data") as server:
        assert web_of(server).get("/readyz").json() == {"status": "ready", "problems": 1}


def test_no_such_page(web):
    """An unknown path gets a problem with a type, as in RFC 9457; plateau's paths get plateau's format."""
    answer = web.get("/v1/nowhere")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "/problems/not-found", "title": "Not Found", "status": 404, "detail": "Not Found",
        "hint": "see /docs for all routes",
    }  # fmt: skip
    assert web.delete("/ok").json()["code"] == 405
    assert web.delete("/v1/sql").json()["hint"] == "this path allows OPTIONS, POST"
