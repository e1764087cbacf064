"""A server under more load than it can handle, and next to clients that stall (R20, R21).

    python -m tests.soak.server --seconds 60 --connections 500

Overload: the capacity is what a closed loop of appends achieves. Then ten times as many are sent, whatever comes back.
At the end, acknowledged events are counted in the catalog. Bodies are gzipped JSON lines, as shippers send them: costly
to receive and cheap to send, so that one small machine can do both.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aggregator

TIMES = 10
BATCH = 5000
REFUSAL_S = 6.0  # an append first waits up to 5 s for room
GOODPUT = 0.8
CUT_S = 30.0
SLOWER = 2.0
_LINE = '{"space":"host-%04d","timestamp":%d,"data":"%s"}\n'
_WORDS = ["GET", "/cart", "200", "17ms", "user", "agent", "session", "cache", "miss", "retry", "timeout", "commit"]


@dataclass
class Load:
    """The outcomes of requests. Seconds from the first byte sent to the last one received."""

    done: int = 0
    done_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    without_hint: int = 0
    other: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    seconds: float = 0.0

    def rate(self) -> float:
        """Completed requests per second."""
        return self.done / self.seconds


def percentile(values: list[float], part: float) -> float:
    """The value below which this fraction of the values is."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else 0.0


def body(number: int, events: int) -> bytes:
    """A batch of log lines."""
    words = [_WORDS[(number * 7 + i * i) % len(_WORDS)] for i in range(400)]
    lines = (
        _LINE % (i % 500, 1_700_000_000_000_000 + number * 1_000_000 + i, " ".join(words[i % 380 : i % 380 + 19])[:128])
        for i in range(events)
    )
    return gzip.compress("".join(lines).encode(), 6)


class Connection:
    """A connection that sends whole requests and reads whole answers."""

    def __init__(self, host: str, port: int) -> None:
        self._place = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[int, dict[bytes, bytes]]:
        """Status and headers of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._place)
        reader, writer = self._streams
        try:
            writer.write(request)
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            headers = dict(line.lower().split(b": ", 1) for line in head[1:] if line)
            await reader.readexactly(int(headers[b"content-length"]))
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise
        if headers.get(b"connection") == b"close":
            self.close()
        return int(head[0].split()[1]), headers

    def close(self) -> None:
        """Forget the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def append_request(payload: bytes) -> bytes:
    """An append to the topic `load`."""
    head = (
        "POST /v1/topics/load/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\n"
        f"content-encoding: gzip\r\ncontent-length: {len(payload)}\r\n\r\n"
    )
    return head.encode() + payload


async def send(
    place: tuple[str, int], requests: list[bytes], seconds: float, *, rate: float | None, lanes: int
) -> Load:
    """Send requests: each lane in sequence, or at a rate by whichever lane is free."""
    load, turn = Load(), itertools.count()
    begun = time.monotonic()
    end = begun + seconds

    async def lane() -> None:
        connection = Connection(*place)
        while time.monotonic() < end:
            number = next(turn)
            if rate is not None:
                due = begun + number / rate
                if due > end:
                    break
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            at = time.monotonic()
            load.sent += 1
            try:
                status, headers = await connection.ask(requests[number % len(requests)])
            except (OSError, asyncio.IncompleteReadError) as error:
                load.other[type(error).__name__] = load.other.get(type(error).__name__, 0) + 1
                continue
            took = time.monotonic() - at
            if status == 200:
                load.done += 1
                load.done_s.append(took)
            elif status == 429:
                load.refused_s.append(took)
                load.without_hint += b"retry-after" not in headers
            else:
                load.other[str(status)] = load.other.get(str(status), 0) + 1
        connection.close()

    await asyncio.gather(*(lane() for _ in range(lanes)))
    load.seconds = time.monotonic() - begun
    return load


class Served:
    """`aggregator serve` as a process."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.data = folder / "data"
        command = [sys.executable, "-m", "aggregator", "serve", str(self.data), "--bind", "127.0.0.1:0", "--log-format",
                   "json", *arguments]  # fmt: skip
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        told = next(found for line in self.process.stderr if (found := json.loads(line))["message"] == "serving")
        host, port = told["address"].removeprefix("http://").split(":")
        self.place = host, int(port)
        url = f"http://{host}:{port}/v1/topics/load"
        made = urllib.request.Request(url, b"{}", {"content-type": "application/json"}, method="PUT")
        urllib.request.urlopen(made, timeout=30).close()

    def resident_mib(self) -> float:
        """The peak resident memory in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024

    def stop(self) -> int:
        """Stop gracefully. Returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()
        return self.process.returncode


def overload(seconds: float, batch: int = BATCH, folder: Path | None = None) -> dict[str, Any]:
    """Test R21. Returns figures, and under `broken` the broken promises that no slow machine excuses."""
    root = Path(tempfile.mkdtemp(prefix="overload-", dir=folder))
    server = Served(root)
    requests = [append_request(body(number, batch)) for number in range(16)]
    try:
        warm = asyncio.run(send(server.place, requests, min(5.0, seconds), rate=None, lanes=8))
        calm = asyncio.run(send(server.place, requests, min(20.0, seconds), rate=None, lanes=8))
        storm = asyncio.run(send(server.place, requests, seconds, rate=TIMES * calm.rate(), lanes=400))
        begun = time.monotonic()
        after = asyncio.run(send(server.place, requests, min(5.0, seconds), rate=None, lanes=8))
        memory = server.resident_mib()
        status = server.stop()
        with aggregator.open(root / "data", read_only=True) as catalog:
            stored = catalog.topic("load").scan().count()
    finally:
        server.process.kill()
        shutil.rmtree(root, ignore_errors=True)
    acknowledged = batch * sum(load.done for load in (warm, calm, storm, after))
    broken = []
    if stored != acknowledged:
        broken.append(f"{acknowledged:,} events were acknowledged, {stored:,} are stored")
    if storm.without_hint:
        broken.append(f"{storm.without_hint} refusals without Retry-After")
    if status:
        broken.append(f"the server ended with {status}")
    broken += [f"{count} x {what}" for load in (calm, storm, after) for what, count in load.other.items()]
    return {
        "capacity events/s": round(batch * calm.rate()),
        "offered, times": storm.sent / storm.seconds / calm.rate(),
        "goodput": storm.rate() / calm.rate(),
        "refused": len(storm.refused_s),
        "refusal p50 ms": 1000 * percentile(storm.refused_s, 0.5),
        "refusal p99 ms": 1000 * percentile(storm.refused_s, 0.99),
        "done p99 ms": 1000 * percentile(storm.done_s, 0.99),
        "afterwards": after.rate() / calm.rate(),
        "looked at afterwards s": time.monotonic() - begun,
        "resident MiB": memory,
        "acknowledged events": acknowledged,
        "broken": broken,
    }


_STALLS = (
    b"",
    b"GET /ok HT",
    b"GET /ok HTTP/1.1\r\nhost: x\r\nx-half: ",
    b"POST /v1/topics/load/events HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{",
    b"POST /v1/topics/load/events HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{",
)


def stalled(connections: int, seconds: float, stall_s: float | None = None) -> dict[str, Any]:
    """Test R20: how long stalled connections are kept, and what healthy clients notice of them."""
    root = Path(tempfile.mkdtemp(prefix="stalled-"))
    server = Served(root, *(() if stall_s is None else ("--set", f"http.stall={stall_s}s")))
    requests = [append_request(body(number, 20)) for number in range(16)]

    async def stall(begin: bytes) -> float:
        reader, writer = await asyncio.open_connection(*server.place)
        begun = time.monotonic()
        writer.write(begin)
        while True:
            try:
                if not await reader.read(65536):
                    break
            except OSError:
                break
        writer.close()
        return time.monotonic() - begun

    async def beside() -> tuple[Load, Load, list[float]]:
        await send(server.place, requests, min(1.0, seconds), rate=50, lanes=8)
        idle = await send(server.place, requests, seconds, rate=50, lanes=8)
        held = [asyncio.create_task(stall(_STALLS[number % len(_STALLS)])) for number in range(connections)]
        await asyncio.sleep(min(1.0, seconds))
        busy = await send(server.place, requests, seconds, rate=50, lanes=8)
        return idle, busy, await asyncio.gather(*held)

    try:
        idle, busy, held = asyncio.run(asyncio.wait_for(beside(), 120 + 2 * seconds))
        status = server.stop()
    finally:
        server.process.kill()
        shutil.rmtree(root, ignore_errors=True)
    broken = [f"{count} x {what}" for load in (idle, busy) for what, count in load.other.items()]
    if status:
        broken.append(f"the server ended with {status}")
    return {
        "connections": connections, "longest held s": max(held), "idle p99 ms": 1000 * percentile(idle.done_s, 0.99),
        "beside them p99 ms": 1000 * percentile(busy.done_s, 0.99), "healthy requests": busy.done, "broken": broken,
    }  # fmt: skip


def main() -> int:
    """Run both; 1 if a figure in docs/reliability.md is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of overload")
    parser.add_argument("--connections", type=int, default=500, help="that stall")
    parser.add_argument("--only", choices=("overload", "stalled"), help="one of the two")
    args = parser.parse_args()
    missed = []
    if args.only != "stalled":
        found = overload(args.seconds)
        _show("overload", found)
        reached = found["goodput"] >= GOODPUT and found["afterwards"] >= GOODPUT
        if found["broken"] or not reached or found["refusal p99 ms"] > 1000 * REFUSAL_S:
            missed.append("overload")
    if args.only != "overload":
        held = stalled(args.connections, min(10.0, args.seconds))
        _show("stalled clients", held)
        noticed = held["beside them p99 ms"] / held["idle p99 ms"]
        if held["broken"] or held["longest held s"] > CUT_S or noticed > SLOWER:
            missed.append("stalled clients")
    for name in missed:
        print(f"missed: {name}")
    return int(bool(missed))


def _show(name: str, figures: dict[str, Any]) -> None:
    print(name)
    for what, value in figures.items():
        print(f"  {what}: {value if not isinstance(value, float) else round(value, 2)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
