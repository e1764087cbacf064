"""The API description is right: schemathesis finds no undocumented answer and no request that it describes wrongly.

It generates valid requests, which must be accepted, and invalid ones, which must be refused.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from effort import long
from served import served
from waiting import PATIENCE_S

from tests.aggregator.server.plateau.test_plateau import records, send

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


@long
@pytest.mark.skipif(importlib.util.find_spec("schemathesis") is None, reason="needs schemathesis")
def test_description(tmp_path):
    """All checks pass against a server with a topic of each kind; the fixed seed makes every run the same."""
    with served(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=120) as web:
        send(web, records(10))
        server.catalog.create_topic("activity", indexes=["type"])
        server.catalog.write({"app": "web"}, [{"ts": 1, "msg": "no disk"}])
        server.catalog.query("CREATE PIPE errors")
        paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "tests" / "support"))
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--checks", "all",
            "--phases", "examples,fuzzing", "--max-examples", "2", "--seed", "1",
            "--generation-deterministic",
            "--no-color", "--request-timeout", "20",
        ]  # fmt: skip
        told = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120,
            env={**os.environ, "PYTHONPATH": paths, "SCHEMATHESIS_HOOKS": "api_hooks"},
        )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Tested: " in told.stdout


def test_what_it_found(web):
    """Faults that schemathesis found stay fixed: null limits, a wait of {}, integers written as 5.0."""
    for roll in ({"age": None}, {"rows": None}, {"bytes": None}):
        answer = web.put("/v1/topics/t", json={"roll": roll})
        assert (answer.status_code, answer.json()["detail"]) == (400, "roll limits must be at least 1")
    for limit, status in ((5.0, 201), (5.5, 400), (True, 400)):
        assert web.put(f"/v1/topics/t{limit}", json={"retention": {"bytes": limit}}).status_code == status
    asked = {"query": "SELECT", "position": "head"}
    for wait, status in (({}, 400), ([], 400), ("", 400), (False, 400), (None, 200), (0, 200)):
        assert web.post("/v1/query", json=asked | {"wait": wait}).status_code == status
    assert web.post("/v1/query", json=asked | {"limit": 5.0}).status_code == 200
    assert web.post("/v1/query", json=asked | {"limit": 5.5}).status_code == 400
    send(web, records(10))
    for index, status in ((5.0, 200), (5.5, 400), (True, 400)):
        assert web.post("/topic/clicks/records", json={"web-1": index}).status_code == status
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "n": 5.0}
    sent = web.post("/v1/cloudevents", json=event, headers={"content-type": "application/cloudevents+json"})
    assert sent.status_code == 200


def test_security_is_told_where_it_is(tmp_path):
    """The description lists tokens exactly where they are required."""
    with served(tmp_path / "data") as server:
        open_ = httpx.get(f"{server.url}/openapi.json").json()
        (tmp_path / "data" / "tokens.json").write_text('{"tokens": []}')
        deadline = time.monotonic() + PATIENCE_S
        while "securitySchemes" not in (found := httpx.get(f"{server.url}/openapi.json").json())["components"]:
            assert time.monotonic() < deadline
            httpx.get(f"{server.url}/v1/topics")
    assert "securitySchemes" not in open_["components"]
    assert "security" not in open_["paths"]["/v1/topics"]["get"]
    assert found["paths"]["/v1/topics"]["get"]["security"] == [{"token": []}]
    assert "security" not in found["paths"]["/healthz"]["get"]
