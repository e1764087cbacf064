"""Fixtures: one browser, and for each file one server with events of every kind."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from browsing import Tab, browsing
from clicks import click_table
from served import served

from aggregator import Catalog
from aggregator.server import RunningServer

_HERE = Path(__file__).parent
_started: list[Any] = []
_until_the_last = contextlib.ExitStack()
TIED = 375
HOSTILE = [
    ("<script>window.pwned = 1</script>", b"<img src=x onerror=window.pwned=2>", '"><img onerror=alert(1)>'),
    ("\u202etxet desrever", "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627".encode(), "\u2067\u202e"),
    ("nul", b"a\x00b", "a\x00b\x1b[31m"),
    ("broken", b"\xff\xfe broken \x80", "{{constructor.constructor('alert(1)')()}}"),
    ("long", b"x" * 1_000_000, "y" * 70_000),
    ("javascript:alert(1)", json.dumps({"</script><script>alert(1)": {"a": [1, "<b>", None]}}).encode(), "'\"`"),
    ("large", b'{"n": 9007199254740993, "f": 1.0}', "&lt;b&gt;"),
]
"""Space, payload and column of events that would be harmful as anything but text."""


def fill(catalog: Catalog) -> None:
    """Clicks, sealed and unsealed; many events with the same time; hostile ones; streams."""
    clicks = catalog.create_topic("clicks", indexes=["type"], retention={"age": "30000d", "bytes": "1 GiB"})
    table = click_table(3_000)
    for first in range(0, 2_400, 600):
        clicks.append(table.slice(first, 600))
        catalog.seal("clicks")
    clicks.append(table.slice(2_400))
    times = [n // TIED * 1_000_000 for n in range(3 * TIED)] + [3_000_000 + n for n in range(9 * TIED)]
    many = catalog.create_topic("many", indexes=["n"], schema=pa.schema([("n", pa.int64())]))
    many.append(pa.table({"space": ["s"] * len(times), "timestamp": times, "n": range(len(times))}))
    odd = catalog.create_topic("odd <b>", indexes=["note"])
    odd.append([{"space": space, "timestamp": n, "data": data, "note": note}
                for n, (space, data, note) in enumerate(HOSTILE)])  # fmt: skip
    now = int(time.time() * 1e6)
    records = [{"ts": now - n * 1_000_000, "msg": json.dumps({"url": f"/p/{n % 7}", "user": {"id": n % 5}}),
                "level": "error" if n % 10 == 0 else "info"} for n in range(500)]  # fmt: skip
    catalog.write({"app": "shop", "zone": "eu"}, records)
    catalog.write({"app": "web"}, [{"ts": now - n * 1_000_000, "msg": f"GET /{n}", "level": "info"} for n in range(50)])


@pytest.fixture(scope="module")
def browser() -> Any:
    """A browser for the tests of this folder: starting one takes a second of CPU time."""
    if not _started:
        _started.append(_until_the_last.enter_context(browsing()))
    return _started[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Close the browser after the last test. While it runs, so does Playwright's event loop, and no other can."""
    if nextitem is None or _HERE not in nextitem.path.parents:
        _started.clear()
        _until_the_last.close()


@pytest.fixture(scope="module")
def idle() -> Iterator[list[Tab]]:
    """Tabs that no test uses. Creating one takes half a second of CPU time."""
    tabs: list[Tab] = []
    yield tabs
    for tab in tabs:
        tab.context.close()


@pytest.fixture(scope="module")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server for the tests of a file."""
    with served(tmp_path_factory.mktemp("page") / "data") as running:
        fill(running.catalog)
        yield running


@pytest.fixture(scope="module")
def web(server: RunningServer) -> Iterator[httpx.Client]:
    """A client that sends the page's requests."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
def tab_of(browser: Any, idle: list[Tab]) -> Iterator[Callable[..., Tab]]:
    """Tabs that know no server; when a test ends, nothing may have failed in them. Options: of a separate tab."""
    with contextlib.ExitStack() as tabs:

        def give(url: str, **options: Any) -> Tab:
            tab = idle.pop() if idle and not options else Tab(browser, **options)
            tabs.callback(tab.context.close if options else lambda: idle.append(tab))
            tabs.callback(tab.leave)
            return tab.at(url)

        yield give


@pytest.fixture
def tab(tab_of: Callable[..., Tab], server: RunningServer) -> Tab:
    """A tab on the server."""
    return tab_of(server.url)
