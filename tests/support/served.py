"""The real server on a free port, in a thread of the test or in a separate process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import aggregator
from aggregator.server import RunningServer, Settings

ANY_PORT = "127.0.0.1:0"
ENDS_S = 60.0


@contextlib.contextmanager
def served(path: Path, settings: Settings | None = None, **limits: Any) -> Iterator[RunningServer]:
    """A server of the catalog in `path`, on a free port."""
    settings = settings or Settings()
    settings = replace(settings, http=replace(settings.http, bind=ANY_PORT))
    if limits:
        settings = replace(settings, catalog=replace(settings.catalog, limits=aggregator.Limits(**limits)))
    with (
        aggregator.open(path, limits=limits or None) as catalog,
        RunningServer(catalog, settings) as server,
    ):
        yield server


class Spawned:
    """A server in a separate process: `url`, `process`, and once stopped `told`, the lines of its log."""

    def __init__(self, path: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Return when the server has started."""
        command = [sys.executable, "-m", "aggregator", "serve", str(path), "--bind", ANY_PORT, "--log-format", "json"]
        self.process = subprocess.Popen(
            [*command, *arguments], stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        self.told: list[dict[str, Any]] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.told.append(json.loads(line))
            if self.told[-1]["message"] == "serving":
                break
        else:
            raise AssertionError(f"the server did not start: {self.told}")
        self.url = self.told[-1]["address"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit status; if the process continues, kill it."""
        self.process.send_signal(number)
        assert self.process.stderr is not None
        giving_up = threading.Timer(ENDS_S, self.process.kill)
        giving_up.start()
        for line in self.process.stderr:
            if line.startswith("{"):
                self.told.append(json.loads(line))
        self.process.stderr.close()
        giving_up.cancel()
        return self.process.wait(ENDS_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)
