"""`aggregator bench`: how fast this machine takes events in, and how long an append waits."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter, sleep
from typing import Any

import click
import numpy as np
import pyarrow as pa

import aggregator
from aggregator import OverloadedError, Topic
from aggregator.cli.opened import durability_option, format_option, say_json
from esformat.cli.parts import progress, size

_EXAMPLES = """\b
Examples:
  aggregator bench --seconds 1
  aggregator bench --seconds 1 --batch 100 --threads 8 --durability interval:200ms
  aggregator bench --seconds 1 --directory . --format json
"""
_SHAPES = 16  # batches made beforehand, appended in turn


@click.command(epilog=_EXAMPLES)
@click.option("--directory", type=click.Path(file_okay=False, exists=True), help="On this disk. Default: temporary.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=10.0, show_default=True, help="For how long.")
@click.option("--batch", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Events in each.")
@click.option("--size", "payload", type=click.IntRange(0, 1 << 20), default=128, show_default=True, help="Bytes each.")
@click.option("--threads", type=click.IntRange(1, 256), default=4, show_default=True, help="That append at a time.")
@click.option("--partitions", type=click.IntRange(1, 1024), default=4, show_default=True, help="They append to.")
@click.option("--spaces", type=click.IntRange(1), default=10_000, show_default=True, help="Whose events they are.")
@durability_option
@format_option
def bench(directory: str | None, seconds: float, format_: str, durability: str, threads: int, **load: Any) -> None:
    """Append generated events to a catalog of its own for some seconds, and tell rates and latencies.

    The catalog lies in a new directory, which is removed at the end. Segments are sealed meanwhile, as ever.
    """
    with (
        TemporaryDirectory(prefix="aggregator-bench-", dir=directory) as root,
        progress("appending"),
        aggregator.open(Path(root, "data"), durability=durability) as catalog,
    ):
        topic = catalog.create_topic("bench")
        facts = _run(topic, seconds, threads, load)
        facts["sealed_events"] = topic.stats()["sealed_rows"]
        facts["disk_bytes"] = catalog.stats()["disk"]["total"]
    facts |= {"durability": durability, "threads": threads, **load}
    if format_ == "json":
        say_json(facts)
        return
    from esformat.cli.tables import show_rows  # here: rich is slow to import

    rows = [
        ("events", f"{facts['events']:,} in {facts['seconds']:.1f} s"),
        ("events/s", f"{facts['events_per_s']:,.0f}"),
        ("appends/s", f"{facts['appends_per_s']:,.0f}"),
        ("append latency", ", ".join(f"{name} {facts[f'{name}_ms']:.2f} ms" for name in ("p50", "p99", "max"))),
        ("refused, then tried again", f"{facts['overloads']:,}"),
        ("sealed meanwhile", f"{facts['sealed_events']:,} events"),
        ("on disk", size(facts["disk_bytes"])),
    ]
    show_rows(("", f"{load['batch']:,} × {load['payload']} bytes, {threads} threads, {durability}"), rows)


def _run(topic: Topic, seconds: float, threads: int, load: dict[str, Any]) -> dict[str, Any]:
    """Append from several threads; gives events, rates and latencies."""
    batches = [_batch(number, load) for number in range(_SHAPES)]
    latencies: list[list[float]] = [[] for _ in range(threads)]
    overloads = [0] * threads
    began = perf_counter()
    deadline = began + seconds
    failed: list[BaseException] = []

    def work(thread: int) -> None:
        partition = str(thread % load["partitions"])
        number = thread
        while (now := perf_counter()) < deadline and not failed:
            try:
                topic.append(batches[number % _SHAPES], partition)
            except OverloadedError as error:
                overloads[thread] += 1
                sleep(error.retry_after_s)
                continue
            except BaseException as error:
                failed.append(error)
                raise
            latencies[thread].append(perf_counter() - now)
            number += 1

    workers = [Thread(target=work, args=(thread,), name=f"bench-{thread}") for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = perf_counter() - began
    if failed:
        raise failed[0]
    waits = np.concatenate([np.array(mine) for mine in latencies]) * 1000
    p50, p99 = np.percentile(waits, [50, 99]).tolist() if len(waits) else (0.0, 0.0)
    return {
        "events": len(waits) * load["batch"], "appends": len(waits), "seconds": round(took, 3),
        "events_per_s": round(len(waits) * load["batch"] / took), "appends_per_s": round(len(waits) / took),
        "p50_ms": round(p50, 3), "p99_ms": round(p99, 3), "max_ms": round(float(waits.max(initial=0)), 3),
        "overloads": sum(overloads),
    }  # fmt: skip


def _batch(number: int, load: dict[str, Any]) -> pa.RecordBatch:
    count, payload = load["batch"], load["payload"]
    rng = np.random.default_rng(number)
    spaces = pa.array(np.char.add("space-", rng.integers(0, load["spaces"], count).astype(str)))
    data = np.frombuffer(os.urandom(count * payload), dtype=np.uint8)
    text = pa.py_buffer((data % 64 + 32).astype(np.uint8).tobytes())  # printable: compresses as text does
    payloads = pa.FixedSizeBinaryArray.from_buffers(pa.binary(payload), count, [None, text]) if payload else None
    columns = {"space": spaces.cast(pa.string()), "timestamp": pa.array(number * count + np.arange(count))}
    if payloads is not None:
        columns["data"] = payloads.cast(pa.binary())
    return pa.record_batch(columns)
