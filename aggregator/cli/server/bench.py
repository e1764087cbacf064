"""`aggregator bench`: measure how fast this machine, or a server, appends events, and the latency of appends."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

import aggregator
from aggregator.cli.server.bench_url import WORKS, bench_url
from aggregator.cli.shared.open_catalog import durability_option, typed_options
from aggregator.client.load import BODIES, COMPRESSIONS, INTERFACES
from esformat.cli.parts import json_option, progress, say_json, size

if TYPE_CHECKING:
    import pyarrow as pa

    from aggregator import Topic

_EXAMPLES = """\b
Examples:
  aggregator bench --seconds 1
  aggregator bench --seconds 1 --batch 100 --threads 8 --durability interval:200ms
  aggregator bench --seconds 1 --directory . --json
  aggregator bench --url http://127.0.0.1:3030 --batch 10000
  aggregator bench --url http://127.0.0.1:3030 --rate 50 --body jsonl --json
  aggregator bench --url http://127.0.0.1:3030 --work read --rate 200 --threads 8
  aggregator bench --url http://127.0.0.1:3030 --interface plateau --rate 1000
"""
_SHAPES = 16  # batches generated in advance and appended in turn


@click.command(epilog=_EXAMPLES)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, exists=True),
    help="Directory for the catalog, on the disk to measure. Default: temporary.",
)
@click.option("--seconds", type=click.FloatRange(min=0.1), default=10.0, show_default=True, help="Duration of the run.")
@click.option(
    "--batch", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Events in each batch."
)
@click.option(
    "--event-bytes",
    "payload",
    type=click.IntRange(0, 1 << 20),
    default=128,
    show_default=True,
    help="Payload bytes of each event.",
)
@click.option(
    "--threads", type=click.IntRange(1, 256), default=4, show_default=True, help="Threads that append at the same time."
)
@click.option(
    "--partitions", type=click.IntRange(1, 1024), default=4, show_default=True, help="Partitions to append to."
)
@click.option(
    "--spaces",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="Number of spaces that the events belong to.",
)
@durability_option
@click.option("--url", help="Send requests to the server at this address, http://host:port.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0.1),
    help="With --url: requests per second, even if responses lag. "
    "Default: each thread sends a request after the previous response.",
)
@click.option("--work", type=click.Choice(WORKS), default="append", show_default=True, help="With --url: kind of work.")
@click.option(
    "--interface", type=click.Choice(INTERFACES), default="native", show_default=True, help="With --url: routes to use."
)
@click.option(
    "--body",
    type=click.Choice(BODIES),
    default="arrow",
    show_default=True,
    help="With --url: format of the request body.",
)
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS),
    default="none",
    show_default=True,
    help="With --url: compression of the request body.",
)
@click.option(
    "--topic",
    metavar="TOPIC",
    default="bench",
    show_default=True,
    help="With --url: topic, created if it does not exist.",
)
@click.option(
    "--token", envvar="AGGREGATOR_TOKEN", metavar="TEXT", help="With --url: access token. Prefer AGGREGATOR_TOKEN."
)
@json_option
def bench(
    directory: str | None, seconds: float, as_json: bool, durability: str, threads: int, url: str | None,
    rate: float | None, work: str, interface: str, body: str, compression: str, topic: str, token: str | None,
    **load: Any,
) -> None:  # fmt: skip
    """Append generated events for a few seconds, and print rates and latencies.

    Without --url, appends to a temporary catalog in a new directory, which is removed at the end. Segments are
    sealed during the run, as usual.

    With --url, appends to a topic of a server, where the events stay. Reports the requests that succeeded (the
    goodput), those that the server refused with 429, and the latency of each, measured from when it was due: waiting
    for a free connection counts. --work read requests the newest events of one space after another.
    """
    if url is not None:
        bench_url(url, seconds, rate, threads, (work, interface, body, compression, topic, token), load, as_json)
        return
    for name in typed_options("rate", "work", "interface", "body", "compression", "topic"):
        raise click.UsageError(f"--{name} goes with --url")
    with (
        TemporaryDirectory(prefix="aggregator-bench-", dir=directory) as root,
        progress("appending"),
        aggregator.open(Path(root, "data"), durability=durability) as catalog,
    ):
        made = catalog.create_topic("bench")
        facts = _run(made, seconds, threads, load)
        facts["sealed_events"] = made.stats()["sealed_rows"]
        facts["disk_bytes"] = catalog.stats()["disk"]["total"]
    facts |= {"durability": durability, "threads": threads, **load}
    if as_json:
        say_json(facts)
        return
    from esformat.cli.parts import show_rows  # here: rich is slow to import

    rows = [
        ("events", f"{facts['events']:,} in {facts['seconds']:.1f} s"),
        ("events/s", f"{facts['events_per_s']:,.0f}"),
        ("appends/s", f"{facts['appends_per_s']:,.0f}"),
        ("append latency", ", ".join(f"{name} {facts[f'{name}_ms']:.2f} ms" for name in ("p50", "p99", "max"))),
        ("refused, then retried", f"{facts['overloads']:,}"),
        ("sealed meanwhile", f"{facts['sealed_events']:,} events"),
        ("on disk", size(facts["disk_bytes"])),
    ]
    show_rows(("", f"{load['batch']:,} × {load['payload']} bytes, {threads} threads, {durability}"), rows)


def _run(topic: Topic, seconds: float, threads: int, load: dict[str, Any]) -> dict[str, Any]:
    """Append from several threads, and return the number of events, rates and latencies."""
    batches = [_batch(number, load) for number in range(_SHAPES)]
    latencies: list[list[float]] = [[] for _ in range(threads)]
    overloads = [0] * threads
    began = perf_counter()
    deadline = began + seconds
    failed: list[BaseException] = []
    stopped = Event()

    def work(thread: int) -> None:
        partition = str(thread % load["partitions"])
        number = thread
        while (now := perf_counter()) < deadline and not (failed or stopped.is_set()):
            try:
                topic.append(batches[number % _SHAPES], partition)
            except aggregator.OverloadedError as error:
                overloads[thread] += 1
                stopped.wait(error.retry_after_s)
                continue
            except Exception as error:  # noqa: BLE001 raised by the thread that joins the workers
                failed.append(error)
                return
            latencies[thread].append(perf_counter() - now)
            number += 1

    workers = [Thread(target=work, args=(thread,), name=f"bench-{thread}") for thread in range(threads)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:  # also after an interrupt, because the catalog is closed next
        stopped.set()
        for worker in workers:
            if worker.ident is not None:
                worker.join()
    took = perf_counter() - began
    if failed:
        raise failed[0]
    import numpy as np  # here: slow to import

    waits = np.concatenate([np.array(mine) for mine in latencies]) * 1000
    p50, p99 = np.percentile(waits, [50, 99]).tolist() if len(waits) else (0.0, 0.0)
    return {
        "events": len(waits) * load["batch"],
        "appends": len(waits),
        "seconds": round(took, 3),
        "events_per_s": round(len(waits) * load["batch"] / took),
        "appends_per_s": round(len(waits) / took),
        "p50_ms": round(p50, 3),
        "p99_ms": round(p99, 3),
        "max_ms": round(float(waits.max(initial=0)), 3),
        "overloads": sum(overloads),
    }


def _batch(number: int, load: dict[str, Any]) -> pa.RecordBatch:
    import numpy as np  # here, as pyarrow: slow to import
    import pyarrow as pa

    count, payload = load["batch"], load["payload"]
    rng = np.random.default_rng(number)
    spaces = pa.array(np.char.add("space-", rng.integers(0, load["spaces"], count).astype(str)))
    data = np.frombuffer(os.urandom(count * payload), dtype=np.uint8)
    text = pa.py_buffer((data % 64 + 32).astype(np.uint8).tobytes())  # printable, so that it compresses like text
    payloads = pa.FixedSizeBinaryArray.from_buffers(pa.binary(payload), count, [None, text]) if payload else None
    columns = {"space": spaces.cast(pa.string()), "timestamp": pa.array(number * count + np.arange(count))}
    if payloads is not None:
        columns["data"] = payloads.cast(pa.binary())
    return pa.record_batch(columns)
