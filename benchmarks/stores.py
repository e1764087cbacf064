"""The cost of an object store for a catalog: `python -m benchmarks.stores [--only ingest,history,restore,standby]`.

The store is moto's S3 server in a separate process, or the servers whose addresses are given. The endpoint shares the
machine, so on two processors the figures say as much about it as about us. A figure that is a fraction of another is
measured in turns with it, as a median.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa

import aggregator
from aggregator.client import Client, Retry
from aggregator.policy import Tuning
from benchmarks.ingest import make_batches
from benchmarks.s3_endpoint import client, environment

BUCKET = "measured"
TURNS = 3
INGEST_S, THREADS, ROWS = 8.0, 4, 1000
SEGMENTS, SPACES, EACH = 8, 400, 10
RESTORED_BYTES = 512 << 20
LEASE_S = 2.0
DISTANT_S = 0.05
UNMERGED = Tuning(fan_in=2 * SEGMENTS)


@contextmanager
def endpoint(given: str | None, latency_s: float = 0.0) -> Iterator[str]:
    """The address of an empty prefix in an S3 server: the given one, or moto's."""
    if given is None:
        command = [sys.executable, "-m", "benchmarks.s3_endpoint", "--latency", str(latency_s)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdin is not None
            try:
                with endpoint(server.stdout.readline().strip()) as address:
                    yield address
            finally:
                server.stdin.close()
        return
    os.environ.update(environment(given))
    known = {each["Name"] for each in client(given).list_buckets()["Buckets"]}
    if BUCKET not in known:
        client(given).create_bucket(Bucket=BUCKET)
    yield f"s3://{BUCKET}/{secrets.token_hex(6)}"


# ------------------------------------------------------------ what is measured


def ingest(near: str | None, _distant: str | None, folder: Path) -> dict[str, Any]:
    """Events per second, and processor time per event: without a store, with one, and with durability=store."""
    kinds: dict[str, dict[str, Any]] = {"no store": {}, "store": {}, "durability=store": {"durability": "store"}}
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with endpoint(near) as address:
        for turn in range(TURNS):
            for kind, options in kinds.items():
                root = folder / f"{turn}-{kind}"
                if kind != "no store":
                    options = options | {"store": f"{address}/{root.name}"}
                found[kind].append(_apart(_ingest_once, str(root), options))
                shutil.rmtree(root)
    rates = {kind: statistics.median(rate for rate, _ in all_) for kind, all_ in found.items()}
    spent = {kind: statistics.median(us for _, us in all_) for kind, all_ in found.items()}
    return {
        kind: f"{rates[kind]:,.0f} events/s, {rates[kind] / rates['no store']:.2f} of without; "
        f"{spent[kind]:.2f} µs of processor time an event"
        for kind in kinds
    }


def _ingest_once(root: str, options: dict[str, Any]) -> tuple[float, float]:
    pool = [batch.arrow for batch in make_batches(ROWS, 500, 1)]
    with aggregator.open(root, **options) as catalog:
        topic = catalog.create_topic("t", roll={"bytes": "16MiB"}, retention={"bytes": "1GiB"})
        numbers, end = count(), time.perf_counter() + INGEST_S
        began, spent = time.perf_counter(), time.process_time()
        done: list[int] = []

        def append(partition: str) -> None:
            while time.perf_counter() < end:
                try:
                    topic.append(pool[next(numbers) % len(pool)], partition)
                    done.append(ROWS)
                except aggregator.OverloadedError:
                    time.sleep(0.01)

        threads = [Thread(target=append, args=(f"p{number}",)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        events, took = sum(done), time.perf_counter() - began
        catalog.seal()
        return events / took, 1e6 * (time.process_time() - spent) / events


def history(_near: str | None, distant: str | None, folder: Path) -> dict[str, Any]:
    """A history in eight segments: from files, from a store 50 ms away with a cold cache, and from the cache."""
    root = str(folder / "a")
    with endpoint(distant, DISTANT_S) as address:
        with aggregator.open(root, store=address, tuning=UNMERGED) as catalog:
            topic = catalog.create_topic("t")
            for number in range(SEGMENTS):
                times = range(number * 100_000, number * 100_000 + SPACES * EACH)
                topic.append(
                    [{"space": f"s{n % SPACES}", "timestamp": n, "data": secrets.token_bytes(300)} for n in times]
                )
                catalog.seal()
            catalog.create_topic("warm").append(_one(0))
            catalog.seal()
        local = statistics.median(_apart(_histories, root)[1] for _ in range(TURNS))
        with aggregator.open(root, tuning=UNMERGED) as catalog:
            catalog.store.push()
            catalog.store.evict("t", keep_local={"bytes": 0})
            catalog._backend.objects.cache.clear()
        took, _, gets = _apart(_histories, root)
        cached = statistics.median(_apart(_histories, root)[1] for _ in range(TURNS))
    return {
        "cold": f"{1000 * took:.0f} ms, {took / DISTANT_S:.1f} round trips; {gets} requests for {SEGMENTS} segments",
        "local": f"{1000 * local:.2f} ms of processor time",
        "cached": f"{1000 * cached:.2f} ms of processor time, {cached / local:.2f} of local",
    }


def _histories(root: str) -> tuple[float, float, int]:
    """Seconds of the first history, median processor seconds of later ones (a tenth of the spaces), and the number of
    requests of the first.
    """
    with aggregator.open(root, tuning=UNMERGED) as catalog:
        store, topic = catalog._backend.objects.store, catalog.topic("t")
        assert catalog.topic("warm").scan(space="s").to_table().num_rows == 1  # loads everything that is loaded lazily
        store.get("catalog.json")
        gets, began = store.traffic.gets, time.perf_counter()
        assert topic.scan(space="s7").to_table().num_rows == SEGMENTS * EACH
        took, gets, samples = time.perf_counter() - began, store.traffic.gets - gets, []
        for number in range(0, SPACES, 10):
            spent = time.process_time()
            assert topic.scan(space=f"s{number}").to_table().num_rows == SEGMENTS * EACH
            samples.append(time.process_time() - spent)
        return took, statistics.median(samples), gets


def restore(near: str | None, _distant: str | None, folder: Path) -> dict[str, Any]:
    """MB/s of restoring segments from the store to an empty directory, checked and synced."""
    with endpoint(near) as address:
        with aggregator.open(folder / "a", store=address, tuning=UNMERGED) as catalog:
            topic = catalog.create_topic("t", roll={"bytes": "64MiB"})
            rows = 10_000
            for number in range(RESTORED_BYTES // rows // 1000):
                data = [secrets.token_bytes(1000) for _ in range(rows)]
                times = pa.array(range(number * rows, (number + 1) * rows)).cast(pa.timestamp("us", "UTC"))
                spaces = pa.array([f"s{n}" for n in range(rows)])
                topic.append(pa.record_batch([spaces, times, pa.array(data)], names=["space", "timestamp", "data"]))
                if number % 8 == 7:
                    catalog.seal()
            catalog.seal()
            catalog.store.push()
        took, spent = [], []
        for turn in range(TURNS):
            began, cpu = time.perf_counter(), time.process_time()
            report = aggregator.restore(address, folder / f"back{turn}")
            took.append(time.perf_counter() - began)
            spent.append(time.process_time() - cpu)
            shutil.rmtree(folder / f"back{turn}")
    size = report.size_bytes
    return {
        "restored": f"{size / 1e6:,.0f} MB in {report.segments} segments, {size / statistics.median(took) / 1e6:,.0f} "
        f"MB/s; {1e9 * statistics.median(spent) / size:.2f} ms of processor time a MB"
    }


def standby(near: str | None, _distant: str | None, folder: Path) -> dict[str, Any]:
    """Time from the end of a writer to the first batch that the standby accepts, in leases."""
    facts = {}
    with endpoint(near) as address:
        for how in (signal.SIGKILL, signal.SIGSTOP):
            took = [
                _take_over(f"{address}/{how.name}{turn}", folder / f"{how.name}{turn}", how) for turn in range(TURNS)
            ]
            shown = ", ".join(f"{each:.1f}" for each in sorted(took))
            facts[how.name] = f"{shown} s: at most {max(took) / LEASE_S:.2f} leases of {LEASE_S:g} s"
    return facts


def _take_over(address: str, folder: Path, how: signal.Signals) -> float:
    folder.mkdir()
    with (
        _serving(folder / "a", address) as (first, process),
        _serving(folder / "b", address, "--standby") as (second, _),
    ):
        once = {"retry": Retry(attempts=1), "timeout_s": 5.0}
        with Client(first) as writer, Client(second, **once) as other:
            writer.create_topic("t")
            writer.topic("t").append(_one(0), producer="p", sequence=0)
            while True:
                try:
                    assert other.topic("t").scan().to_table().num_rows == 1
                    break
                except (aggregator.AggregatorError, AssertionError, OSError):
                    time.sleep(0.05)
            time.sleep(secrets.randbelow(1000) / 1000)
            process.send_signal(how)
            began = time.perf_counter()
            while time.perf_counter() - began < 60:
                try:
                    other.topic("t").append(_one(1), producer="p", sequence=1)
                    return time.perf_counter() - began
                except (aggregator.AggregatorError, OSError):
                    time.sleep(0.02)
            raise TimeoutError("the standby did not take over")


def _one(number: int) -> list[dict[str, Any]]:
    return [{"space": "s", "timestamp": number, "data": b"x"}]


@contextmanager
def _serving(root: Path, address: str, *flags: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [
        sys.executable, "-m", "aggregator", "serve", str(root), "--store", address, "--durability", "store",
        "--set", f"catalog.lease={LEASE_S:g}s", "--bind", "127.0.0.1:0", "--log-format", "json", *flags,
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if '"serving"' in line:
                    break
            Thread(target=process.stderr.read, daemon=True).start()
            yield str(json.loads(line)["address"]), process
        finally:
            process.kill()


def _apart(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process, and return its result."""
    context = multiprocessing.get_context("spawn")
    with closing(context.Pool(1)) as pool:
        return pool.apply(work, arguments)


WORKS = {work.__name__: work for work in (ingest, history, restore, standby)}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WORKS))
    parser.add_argument("--near", metavar="URL", help="an S3 server on this machine, instead of moto's")
    parser.add_argument("--distant", metavar="URL", help="an S3 server that answers after 50 ms")
    options = parser.parse_args()
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="stores-", dir=os.environ.get("TMPDIR", "/tmp")) as folder:
            for what, told in WORKS[name](options.near, options.distant, Path(folder)).items():
                print(f"{name:8} {what:18} {told}", flush=True)


if __name__ == "__main__":
    main()
