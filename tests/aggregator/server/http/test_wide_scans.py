"""Wide scans: batches and resident memory are bounded by bytes as well as by rows."""

from __future__ import annotations

import http.client
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from effort import long
from served import Spawned
from waiting import until

import aggregator
from aggregator.base.window_budget import MADE_AT_ONCE, WindowBudget

PARTITIONS, EVENTS, EVENT_BYTES = 4, 1_000, 20_000
MOST_GROWTH = 450 << 20  # it was 2.5 GB for one reader at first, 6 GB for three
MOST_ROWS, MOST_BYTES = 1 << 16, 16 << 20


def fill(path: Path, events: int, event_bytes: int, together: int) -> None:
    """Sealed events of several partitions, equally many in each, with interleaved times."""
    text = b"x" * event_bytes
    with aggregator.open(path) as catalog:
        topic = catalog.create_topic("t")
        for number in range(PARTITIONS):
            for first in range(0, events, together):
                rows = np.arange(first, first + together)
                times = pa.array(rows * PARTITIONS + number, pa.timestamp("us", "UTC"))
                data = pa.array([text + b"%d" % row for row in rows.tolist()])
                spaces = pa.array([f"s{row % 10}" for row in rows.tolist()])
                topic.append(pa.table({"space": spaces, "timestamp": times, "data": data}), f"p{number}")
            catalog.seal()


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("wide") / "data"
    fill(path, EVENTS, EVENT_BYTES, 500)
    return path


def taken(address: str) -> int:
    """Read an answer and discard it. Returns its bytes."""
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.request("GET", "/v1/topics/t/events", headers={"Accept": "application/vnd.apache.arrow.stream"})
    answer = connection.getresponse()
    size = 0
    while piece := answer.read(1 << 20):
        size += len(piece)
    connection.close()
    return size if answer.status == 200 else 0


@long
def test_three_wide_answers_at_once(wide):
    """The server's peak memory for three wide answers, as the system measures it, is bounded."""
    with Spawned(wide) as server:
        status = Path(f"/proc/{server.process.pid}/status")
        before = int(status.read_text().partition("VmHWM:")[2].split()[0]) << 10
        with ThreadPoolExecutor(3) as readers:
            sizes = list(readers.map(taken, [server.url.removeprefix("http://")] * 3))
        most = int(status.read_text().partition("VmHWM:")[2].split()[0]) << 10
    assert max(sizes) > PARTITIONS * EVENTS * EVENT_BYTES  # a third may be refused: there are two places for slow reads
    assert most - before <= MOST_GROWTH


def test_batches_of_large_events(wide):
    """Batches of large events have a few MiB."""
    with aggregator.open(wide) as catalog:
        sizes = [batch.nbytes for batch in catalog.topic("t").scan().batches()]
    assert max(sizes) <= MOST_BYTES


def test_batches_of_small_events(tmp_path):
    """A batch has at most as many rows as a window of one partition, however many partitions there are."""
    rows = 100_000
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        times = np.arange(rows)
        for number in range(PARTITIONS):
            topic.append(pa.table({"space": pa.repeat("s", rows), "timestamp": times}), f"p{number}")
        catalog.seal()
        for reverse in (False, True):
            sizes = [len(batch) for batch in topic.scan(reverse=reverse).batches()]
            assert sum(sizes) == PARTITIONS * rows
            assert max(sizes) <= MOST_ROWS


def test_who_waits_is_told(tmp_path):
    """`stats` reports the memory of scans and how many of them wait for others."""
    with aggregator.open(tmp_path) as catalog:
        windows: WindowBudget = catalog._backend.pool.windows
        assert catalog.stats()["scans"] == {"window_bytes": 0, "limit": windows.limit_bytes, "waiting": 0}
        with ThreadPoolExecutor(1) as other, windows.window() as window:
            window.resize(3_000_000)
            places = [windows.making() for _ in range(MADE_AT_ONCE)]
            for place in places:
                place.__enter__()
            waits = other.submit(lambda: windows.making().__enter__())
            until(lambda: catalog.stats()["scans"]["waiting"])
            assert catalog.stats()["scans"]["window_bytes"] == 3_000_000
            for place in places:
                place.__exit__(None, None, None)
            waits.result()
            assert catalog.stats()["scans"]["waiting"] == 0
