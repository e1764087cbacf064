"""Fixtures: a running server and its client. `served` starts a server with other settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from served import served

from aggregator.server import RunningServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server with the default settings over a new catalog; `server.url` is its address."""
    with served(tmp_path / "data") as running:
        yield running


@pytest.fixture
def web(server: RunningServer) -> Iterator[httpx.Client]:
    """A client of `server`."""
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client


@pytest.fixture
def web_of() -> Iterator[Callable[[RunningServer], httpx.Client]]:
    """A function that returns a client of a server that a test starts."""
    with contextlib.ExitStack() as clients:
        yield lambda running: clients.enter_context(httpx.Client(base_url=running.url, timeout=120))


@pytest.fixture(scope="module")
def shared_web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of one server shared by the tests of a file, for tests that leave nothing behind."""
    with (
        served(tmp_path_factory.mktemp("shared") / "data") as running,
        httpx.Client(base_url=running.url, timeout=120) as client,
    ):
        yield client
