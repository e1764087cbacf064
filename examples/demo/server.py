"""The last step of the demo: serve the catalog, query it over HTTP, and send the demo's own log to it."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter, sleep

import numpy as np

import aggregator
from aggregator import AggregatorError
from aggregator.client import Client, LogHandler

_READY_S = 30.0
_PORT = 3030  # the default of `aggregator serve`
_STREAM = {"name": "demo"}
_FROM = "FROM name = demo"

Say = Callable[[str], None]


def show_server(root: Path, topic: str, spaces: Sequence[str], command: Sequence[str], code: Say, tell: Say) -> bool:
    """Serve the catalog, read histories, log their times to it, stop it; return whether the log is complete.

    command: runs `aggregator`. code, tell: print commands and their results. Raises AggregatorError, OSError.
    """
    log = logging.getLogger("aggregator.demo")
    log.setLevel(logging.INFO)
    log.propagate = False
    with _serving(root, command) as (server, url):
        code(f"aggregator serve {root}   # {url}")
        handler = LogHandler(url, _STREAM)
        log.addHandler(handler)
        code(f'logging.getLogger().addHandler(LogHandler("{url}", {_STREAM}))')
        waits = []
        with Client(url) as client:
            asked = client.topic(topic)
            for space in spaces:
                began = perf_counter()
                found = asked.scan(space=space, reverse=True, limit=10).to_table().num_rows
                waits.append((perf_counter() - began) * 1000)
                log.info("%d events of %s in %.1f ms", found, space, waits[-1], extra={"events": found})
            log.removeHandler(handler)
            handler.close()
            tell(f"{len(spaces)} histories over HTTP, the median in {np.median(waits):.1f} ms, each of them logged")
            code(f"SELECT {_FROM} ORDER BY ts DESC LIMIT 1")
            for event in client.query(f"SELECT {_FROM} ORDER BY ts DESC LIMIT 1"):
                assert event.data is not None
                tell(event.data.decode())
        server.send_signal(signal.SIGTERM)
        status = server.wait()
    with aggregator.open(root) as catalog:
        there = catalog.query(f"SELECT {_FROM}").count()
    complete = (status, there) == (0, len(spaces))
    code(f"kill -TERM {server.pid}")
    verdict = "every record of the log is there" if complete else "RECORDS OF THE LOG ARE MISSING"
    tell(f"stopped with status {status}: {verdict}, {there:,} of {len(spaces):,}")
    return complete


def serve_page(root: Path, command: Sequence[str], tell: Say) -> None:
    """Serve the catalog until Ctrl-C. tell: called with the address for browsers. Raises AggregatorError, OSError."""
    try:
        with socket.create_server(("127.0.0.1", _PORT)):
            port = _PORT
    except OSError:  # the port is taken
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    words = [*command, "serve", str(root), "--bind", f"127.0.0.1:{port}"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as server:  # noqa: S603 - our own command
        try:
            _wait_until_ready(server, f"http://127.0.0.1:{port}")
            tell(f"http://127.0.0.1:{port}")
            server.wait()
        except KeyboardInterrupt:  # it ends the server as well
            server.wait()
        finally:
            server.terminate()


@contextmanager
def _serving(root: Path, command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [*command, "serve", str(root), "--bind", address]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as server:  # noqa: S603 - our own command
        try:
            _wait_until_ready(server, f"http://{address}")
            yield server, f"http://{address}"
        finally:
            server.terminate()


def _wait_until_ready(server: subprocess.Popen[bytes], url: str) -> None:
    end = monotonic() + _READY_S
    while monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=5).close()  # noqa: S310 - our own address
            return
        except (urllib.error.URLError, ConnectionError):
            sleep(0.05)
    server.kill()
    said = server.stderr.read().decode("utf-8", "replace").splitlines() if server.stderr is not None else []
    raise AggregatorError("the server did not start", hint=said[-1] if said else None)
