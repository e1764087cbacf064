"""The real server in a thread of the test, on a free port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aggregator
from aggregator.server import RunningServer, Settings

ANY_PORT = "127.0.0.1:0"


@contextlib.contextmanager
def served(path: Path, settings: Settings | None = None, **limits: Any) -> Iterator[RunningServer]:
    """A server over the catalog in `path`, on a free port."""
    settings = settings or Settings()
    settings = replace(settings, http=replace(settings.http, bind=ANY_PORT))
    with (
        aggregator.open(path, limits=limits or None) as catalog,
        RunningServer(catalog, settings) as server,
    ):
        yield server
