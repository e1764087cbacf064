"""Fixtures: a running server over a catalog with a topic, and its client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import aggregator
from aggregator import Catalog
from aggregator.client import Client
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with the topic `activity`, indexed by `type`."""
    with aggregator.open(tmp_path / "data") as opened:
        opened.create_topic("activity", indexes=["type"])
        yield opened


@pytest.fixture
def server(catalog: Catalog) -> Iterator[RunningServer]:
    """A server of `catalog`."""
    with RunningServer(catalog, Settings(http=Http(bind="127.0.0.1:0", drain_s=1.0))) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    """A client of `server`."""
    with Client(server.url) as made:
        yield made
