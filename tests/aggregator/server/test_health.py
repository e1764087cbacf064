"""Health, readiness, and what is answered where nothing is."""

from __future__ import annotations


def test_health(web):
    """A running server is alive and ready, and says so in plateau's words as well."""
    assert web.get("/healthz").json() == {"status": "ok"}
    assert web.get("/readyz").json() == {"status": "ready"}
    answer = web.get("/ok")
    assert (answer.status_code, answer.json()) == (200, {"ok": "true"})


def test_no_such_page(web):
    """What is not there is a problem with a type, as RFC 9457 has it; on plateau's paths it looks as plateau's does."""
    answer = web.get("/v1/nowhere")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "/problems/not-found", "title": "Not Found", "status": 404, "detail": "Not Found",
    }  # fmt: skip
    assert web.delete("/ok").json()["code"] == 405
