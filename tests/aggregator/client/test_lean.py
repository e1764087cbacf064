"""What a program loads if it needs no server or no client."""

from __future__ import annotations

import json
import subprocess
import sys


def loaded(code):
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; import json, sys; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {name.partition(".")[0] for name in json.loads(run.stdout)}


def test_the_catalog_needs_neither():
    """`import aggregator` loads no HTTP client, server or statement parser; the client loads no server."""
    catalog = loaded("from aggregator import open, Catalog")
    assert not catalog & {"httpx", "starlette", "uvicorn", "lark", "click", "rich", "tenacity"}
    client = loaded("from aggregator.client import Client")
    assert "httpx" in client
    assert not client & {"starlette", "uvicorn", "lark", "tenacity"}


def test_the_load_generator_needs_no_client_library():
    """The load generator needs only the standard library."""
    assert not loaded("from aggregator.client.load import run, appends") & {"httpx", "starlette", "uvicorn"}
