"""Pipes over HTTP: created, listed, working, deleted."""

from __future__ import annotations

import json
import re
import time

import pytest


def test_a_pipe(web):
    """Matching records are copied, existing ones too; deleting the pipe keeps the copies."""
    for level in ("info", "error"):
        record = json.dumps({"ts": 5, "msg": f"an {level}"})
        web.post("/v1/streams", params={"tags": "{app=web}"}, content=record,
                 headers={"content-type": "application/x-ndjson"})  # fmt: skip
    asked = {"name": "errors", "from": "app = web", "where": "msg CONTAINS error", "backfill": True}
    made = web.post("/v1/pipes", json=asked)
    assert (made.status_code, made.json()["name"]) == (201, "errors")
    assert web.post("/v1/pipes", json=asked).status_code == 201
    assert web.post("/v1/pipes", json={**asked, "where": "msg = x"}).status_code == 409
    until = time.monotonic() + 60
    while (pipe := web.get("/v1/pipes/errors").json())["lag"] and time.monotonic() < until:
        time.sleep(0.02)
    assert (pipe["copied"], pipe["state"]) == (1, "level")
    for name in ("created", "caught_up"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", pipe[name])
    assert [pipe["name"] for pipe in web.get("/v1/pipes").json()["pipes"]] == ["errors"]
    answer = web.post("/v1/query", json={"query": "SELECT FROM {logrange.pipe=errors}"})
    assert json.loads(answer.text)["data"] == "an error"
    assert web.delete("/v1/pipes/errors").json()["copied"] == 1
    assert web.get("/v1/pipes").json() == {"pipes": []}
    for method in ("GET", "DELETE"):
        assert web.request(method, "/v1/pipes/errors").status_code == 404


@pytest.mark.parametrize("asked", [
    {}, {"name": 5}, {"name": ""}, {"name": "a", "where": "((("}, {"name": "a", "from": "{x"}, {"name": "a", "odd": 1},
    {"name": "a", "backfill": "yes"}, {"name": "a", "where": "x = 1 BACKFILL"},
])  # fmt: skip
def test_wrong_pipes(shared_web, asked):
    """Invalid pipes are refused."""
    assert shared_web.post("/v1/pipes", json=asked).status_code == 400
    assert shared_web.get("/v1/pipes").json() == {"pipes": []}
