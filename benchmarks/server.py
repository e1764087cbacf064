"""A server under load over loopback, with client and server on the same machine: python -m benchmarks.server

The server is `aggregator serve` in a separate process, with a new catalog; acknowledged events are durable. The load
comes from `aggregator bench --url` in other processes. After each work the server is stopped, the catalog is opened,
and its contents are compared with what was acknowledged.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

import aggregator
from benchmarks.environment import describe, processes
from benchmarks.section import report
from benchmarks.server_report import tables

RESULT = Path(__file__).parent / "results" / "server.json"
OVERLOAD = 10  # times the capacity
WORKS = {
    "H1": "appends of 10,000 events in Arrow, native routes, closed loop",
    "H1p": "the same by plateau's routes",
    "H2": "appends of 10,000 events as JSON lines, closed loop",
    "H3": "the newest 100 events of one of 100,000 spaces, 200 requests/s, beside 100,000 events/s in batches of 1,000",
    "H4": "JSON lines in gzip, as shippers send them, at ten times the rate of a closed loop",
    "H5": "pages of 10,000 records of 128 bytes by plateau's routes, as Arrow, of 1,000,000 sealed ones in turn",
}
_JSON_BATCH = 5000
_PAGES, _PAGE_ROWS = 100, 10_000
_ARROW_FILE = "application/vnd.apache.arrow.file"


class Server:
    """`aggregator serve` over a new catalog in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        with socket.create_server(("127.0.0.1", 0)) as free:
            bind = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{bind}"
        self._process = subprocess.Popen([sys.executable, "-m", "aggregator", "serve", str(self.data), "--bind", bind])
        self.stored: dict[str, int] = {}
        self._wait()

    def _wait(self) -> None:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/readyz", timeout=5).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the server did not start")

    def facts(self) -> dict[str, float]:
        """Peak resident memory in MiB, and processor seconds so far; sums over all its processes."""
        of_all = [_facts(pid) for pid in processes(self._process.pid)]
        return {name: sum(each[name] for each in of_all) for name in of_all[0]}

    def resident_mib(self) -> float:
        """Peak memory of the process that answers requests, without those that seal."""
        return _facts(self._process.pid)["resident_mib"]

    def stop(self) -> None:
        """Stop gracefully, and compare stored with acknowledged events. Raises RuntimeError if they differ."""
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait() != 0:
            raise RuntimeError(f"the server ended with {self._process.returncode}")
        with aggregator.open(self.data) as catalog:
            for topic, wanted in self.stored.items():
                found = catalog.topic(topic).scan().count()
                if found != wanted:
                    raise RuntimeError(f"{topic}: {found:,} events are stored, {wanted:,} were acknowledged")


def _facts(pid: int) -> dict[str, float]:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(line for line in status if line.startswith("VmHWM"))
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return {"resident_mib": int(peak.split()[1]) / 1024, "processor_s": (int(times[11]) + int(times[12])) / 100}


@contextmanager
def serving() -> Iterator[Server]:
    """Start a server; stop and check it at the end."""
    with tempfile.TemporaryDirectory(dir=RESULT.parent, prefix="server-") as folder:
        server = Server(Path(folder))
        try:
            yield server
        finally:
            server.stop()


def load(server: Server, seconds: float, *options: str) -> dict[str, Any]:
    """Run the load generator once, in a separate process."""
    command = [sys.executable, "-m", "aggregator", "bench", "--url", server.url, "--seconds", str(seconds), "--json"]
    found: dict[str, Any] = json.loads(subprocess.run([*command, *options], stdout=subprocess.PIPE, check=True).stdout)
    if "read" not in options:
        topic = options[options.index("--topic") + 1] if "--topic" in options else "bench"
        server.stored[topic] = server.stored.get(topic, 0) + found["events"]
    if found["failed"]:
        raise RuntimeError(f"requests failed: {found['errors']}")
    return found


def appending(*options: str) -> dict[str, Any]:
    """Return a work: a closed loop of appends, after a short one to warm up."""

    def work(seconds: float) -> dict[str, Any]:
        with serving() as server:
            load(server, 1, "--batch", "10000", *options)
            before = server.facts()["processor_s"]
            found = load(server, seconds, "--batch", "10000", *options)
            after = server.facts()
        return found | after | {"processor_s": after["processor_s"] - before}

    return work  # type: ignore[return-value]  # called by measure


def reading(seconds: float) -> dict[str, Any]:
    """Read point histories during ingest, after a second of each to warm up."""
    with serving() as server:
        form = ("--partitions", "1", "--spaces", "100000")
        asking = ("--work", "read", "--rate", "200", "--threads", "8", *form)
        load(server, 1, "--batch", "10000", *form)
        load(server, 1, *asking)
        beside: dict[str, Any] = {}

        def ingest() -> None:
            beside.update(load(server, seconds + 2, "--batch", "1000", "--rate", "100", *form))

        thread = threading.Thread(target=ingest)
        thread.start()
        time.sleep(1.0)
        found = load(server, seconds, *asking)
        thread.join()
        return found | server.facts() | {"beside": beside}


def overloading(seconds: float) -> dict[str, Any]:
    """Measure the capacity in a closed loop, then under ten times as many requests, then whether it recovers."""
    form = ("--body", "jsonl", "--compression", "gzip", "--batch", str(_JSON_BATCH))
    with serving() as server:
        load(server, 1, *form)
        capacity = load(server, seconds, *form)
        rate = capacity["done_per_s"] * OVERLOAD
        found = load(server, seconds, *form, "--rate", str(rate), "--threads", "64")
        time.sleep(5)
        again = load(server, min(seconds, 5), *form)
        found |= server.facts()
    found |= {
        "capacity_per_s": capacity["events_per_s"], "goodput": found["events_per_s"] / capacity["events_per_s"],
        "offered": found["requests"] / found["seconds"] / capacity["done_per_s"],
        "after": again["events_per_s"] / capacity["events_per_s"],
    }  # fmt: skip
    return found


def paging(seconds: float) -> dict[str, Any]:
    """Read the pages of a partition in order, repeatedly, after a warm-up round. Times are slightly out of order, as if
    several clients wrote them; the texts of the records are hexadecimal digits.
    """
    with tempfile.TemporaryDirectory(dir=RESULT.parent, prefix="server-") as folder:
        server = Server(Path(folder))
        try:
            _fill(server.url)
        finally:
            server.stop()  # this seals
        server = Server(Path(folder))
        try:
            time.sleep(1)  # until it has finished loading
            idle_mib = server.resident_mib()
            _pages_for(server.url, 0)
            before = server.facts()
            found = _pages_for(server.url, seconds)
            count = found["events"] // _PAGE_ROWS
            found["processor_ms"] = (server.facts()["processor_s"] - before["processor_s"]) / count * 1000
            found["resident_mib"] = server.resident_mib()
            found["rise_mib"] = found["resident_mib"] - idle_mib
        finally:
            server.stop()
    return found


def _fill(url: str) -> None:
    chance = np.random.default_rng(1)
    for first in range(0, _PAGES * _PAGE_ROWS, _PAGE_ROWS):
        times = first + np.arange(_PAGE_ROWS) + chance.integers(0, 50, _PAGE_ROWS)
        texts = [digits.tobytes().hex() for digits in chance.integers(0, 256, (_PAGE_ROWS, 60), np.uint8)]
        _ask(f"{url}/topic/t/partition/p", _arrow_file(pa.table({"time": times, "text": texts})))


def _pages_for(url: str, seconds: float) -> dict[str, Any]:
    """Request all pages, each twice in a row, and repeat until the time is over."""
    latencies: list[float] = []
    again: list[float] = []
    with _Connection(url) as connection:
        began = time.perf_counter()
        while not latencies or time.perf_counter() - began < seconds:
            for first in range(0, _PAGES * _PAGE_ROWS, _PAGE_ROWS):
                page = f"/topic/t/partition/p/records?page_size={_PAGE_ROWS}&start={first}"
                for times in (latencies, again):
                    at = time.perf_counter()
                    answer = connection.get(page)
                    times.append(time.perf_counter() - at)
                if pa.ipc.open_file(pa.py_buffer(answer)).read_all().num_rows != _PAGE_ROWS:
                    raise RuntimeError(f"the page from {first} on is not whole")
    count = 2 * len(latencies)
    done_per_s = count / (sum(latencies) + sum(again))
    p50, p99, p999 = np.quantile(latencies, [0.5, 0.99, 0.999]) * 1000
    return {
        "events": count * _PAGE_ROWS, "events_per_s": round(done_per_s * _PAGE_ROWS), "done_per_s": done_per_s,
        "latency_ms": {"p50": p50, "p99": p99, "p99.9": p999, "least": min(latencies) * 1000},
        "again_ms": {"p50": np.median(again) * 1000}, "refusal_ms": None, "shed": 0,
    }  # fmt: skip


class _Connection:
    """A connection that reads responses into one buffer, to minimise the client's own work."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(64 << 20))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._socket.close()

    def get(self, path: str) -> memoryview:
        """Return the body of a response, valid until the next call. Raises RuntimeError if the request fails."""
        head = f"GET {path} HTTP/1.1\r\nHost: bench\r\nAccept: {_ARROW_FILE}\r\n\r\n"
        self._socket.sendall(head.encode())
        count, begin, end = 0, 0, len(self._buffer)
        while count < end:
            got = self._socket.recv_into(self._buffer[count:])
            count += got
            if not begin:
                head, empty, _ = bytes(self._buffer[: min(count, 8192)]).decode("latin-1").lower().partition("\r\n\r\n")
                found = re.search(r"\r\ncontent-length: *(\d+)", head)
                if empty and found:
                    begin = len(head) + len(empty)
                    end = begin + int(found[1])
            if not got or (begin and " 200 " not in head):
                raise RuntimeError(f"no page: {head[:200]}")
        return self._buffer[begin:end]


def _ask(url: str, body: bytes | None = None) -> bytes:
    headers = {"Accept": _ARROW_FILE, "Content-Type": _ARROW_FILE}
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code != 429:
                raise
            time.sleep(0.1)


def _arrow_file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


MEASURES: dict[str, Any] = {
    "H1": appending(),
    "H1p": appending("--interface", "plateau"),
    "H2": appending("--body", "jsonl"),
    "H3": reading,
    "H4": overloading,
    "H5": paging,
}


def main() -> int:
    """Measure; return 0, or 1 if a work failed or events were lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WORKS), help=f"works to run, of {', '.join(WORKS)}")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each load")
    parser.add_argument("--write-docs", action="store_true", help="rewrite the section of docs/benchmarks.md")
    parser.add_argument(
        "--plateau", metavar="URL", help="also measure H5 on a running plateau, which must not have a topic t"
    )
    args = parser.parse_args()
    run = json.loads(RESULT.read_text()) if RESULT.exists() else {"works": {}}
    if args.only:
        run["environment"] = describe(())
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    for stale in RESULT.parent.glob("server-*"):
        shutil.rmtree(stale, ignore_errors=True)
    failed = False
    for id_ in [name.strip() for name in args.only.split(",") if name.strip()]:
        try:
            figures = MEASURES[id_](args.seconds)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            figures = {"problem": str(error)}
            failed = True
        run["works"][id_] = figures
        print(id_, json.dumps(figures), flush=True)
        RESULT.write_text(json.dumps(run, indent=1) + "\n")
    if args.plateau:
        _fill(args.plateau)
        _pages_for(args.plateau, 0)
        run["works"]["H5: plateau"] = _pages_for(args.plateau, args.seconds)
        print("H5: plateau", json.dumps(run["works"]["H5: plateau"]), flush=True)
        RESULT.write_text(json.dumps(run, indent=1) + "\n")
    report("benchmarks.server", tables(run["works"]), run["environment"], write_docs=args.write_docs)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
