"""The description of the API holds: schemathesis finds no answer that it does not have, and no request that it lies about.

What it makes of it are requests that fit, which are to be taken, and others, which are to be refused.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from served import served
from test_plateau import records, send

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("schemathesis") is None, reason="needs schemathesis")
def test_description(tmp_path):
    """All checks, over a server with a topic of each kind; the seed is fixed, so that it is the same run each time."""
    with served(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=30) as web:
        send(web, records(10))
        server.catalog.create_topic("activity", indexes=["type"])
        server.catalog.write({"app": "web"}, [{"ts": 1, "msg": "no disk"}])
        server.catalog.query("CREATE PIPE errors")
        paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "tests", HERE))
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--checks", "all",
            "--phases", "examples,fuzzing", "--max-examples", "2", "--seed", "1", "--generation-deterministic",
            "--no-color", "--request-timeout", "20",
        ]  # fmt: skip
        told = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120,
            env={**os.environ, "PYTHONPATH": paths, "SCHEMATHESIS_HOOKS": "api_hooks"},
        )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Tested: " in told.stdout
