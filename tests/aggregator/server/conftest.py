"""Fixtures: a running server and a client of it. `served` starts one with other settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from served import served

from aggregator.server import RunningServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server with the default settings over a new catalog; `server.url`."""
    with served(tmp_path / "data") as running:
        yield running


@pytest.fixture
def web(server: RunningServer) -> Iterator[httpx.Client]:
    """A client of `server`."""
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client
