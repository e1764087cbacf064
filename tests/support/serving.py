"""`aggregator serve` as a separate process, which a test can kill and restart on the same port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from ports import free_port

_ROOT = Path(__file__).parents[2]
_READY_S = 120.0


class Serving:
    """The server of the catalog in `path`. A context manager, with `kill` and `start` in between."""

    def __init__(self, path: Path, *options: str) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self._address}"
        self._command = [sys.executable, "-m", "aggregator", "serve", str(path), "--bind", self._address, *options]
        self.kills = 0

    def start(self) -> None:
        """Start the server, and wait until it accepts requests."""
        environment = os.environ | {"PYTHONPATH": str(_ROOT)}
        self.process = subprocess.Popen(self._command, env=environment, cwd=_ROOT, stderr=subprocess.DEVNULL)
        end = time.monotonic() + _READY_S
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(f"{self.url}/readyz", timeout=5).close()
                return
            except OSError:  # also if no response came in time
                assert self.process.poll() is None, "the server did not start"
                time.sleep(0.02)
        raise AssertionError("the server is not ready")

    def kill(self) -> None:
        """Kill the server immediately."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL
        self.kills += 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(_READY_S)
        finally:
            self.process.kill()
