"""Sustained durable ingest compared with peers: `python -m benchmarks.ingest [--only I1,I2] [--write-docs]`.

Every store gets the same batches of 128-byte events from the same number of threads, one store after the other, each in
its own process. It acknowledges only what would survive a power cut. The clock stops when everything is in the store's
final form. Afterwards its contents are compared with what was acknowledged.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.environment import describe, processes, resident_mib
from benchmarks.ingest_report import tables
from benchmarks.ingest_stores import PARTITIONS, STORES, Batch, Store
from benchmarks.many_topics import measure_opening
from benchmarks.section import report

EVENT_BYTES = 128
POOL_EVENTS = 200_000
POOL_BATCHES = 100_000
MADE_EVENTS, MADE_BATCHES = 4_000_000, 50_000
"""Number of events and batches that are prepared before the clock starts, by repeating a pool with later timestamps:
enough small batches for eight seconds. Further large batches get the current time when appended, which costs little
compared with their size.
"""
RETENTION_BYTES = 200 << 20
RESULT = Path(__file__).parent / "results" / "ingest.json"
WORKS: dict[str, dict[str, Any]] = {
    "I1": {"batch": 1000, "appenders": 4, "retain": True},
    "I2": {"batch": 100, "appenders": 16, "retain": True},
    "I2-1": {"batch": 1, "appenders": 64, "retain": True},
    "I3-10": {"batch": 1000, "appenders": 4, "spaces": 10, "only": ["aggregator"]},
    "I3-50000": {"batch": 1000, "appenders": 4, "spaces": 50_000, "only": ["aggregator"]},
    "I4": {"batch": 1000, "appenders": 4, "reader": True, "only": ["aggregator", "aggregator-process"]},
    "I5": {"log_bytes": 1 << 30, "only": ["aggregator"]},
    "I6": {"segments": 100_000, "only": ["aggregator"]},
    "I7": {"segments": 100, "rows": 2000, "spaces": 1000, "only": ["aggregator"]},
    "I8": {"topics": 10_000, "streams": 100_000, "segments": 100_000, "only": ["aggregator"]},
}


def make_batches(rows: int, spaces: int, seed: int) -> list[Batch]:
    """Generate batches with 128 bytes of payload per event, half of it random; spaces take turns."""
    rng = np.random.default_rng(seed)
    count = min(POOL_EVENTS // rows, POOL_BATCHES)
    start = time.time_ns() // 1000
    pages = [
        f'{{"type":"{kind}","page":"/shop/{page}","id":"' for kind in ("view", "click", "buy") for page in range(99)
    ]
    batches = []
    for number in range(count):
        tokens = rng.integers(0, 1 << 63, (rows, 4)).tolist()
        heads = rng.integers(0, len(pages), rows).tolist()
        data = tuple(
            (pages[head] + "".join(f"{token:016x}" for token in some)).encode().ljust(EVENT_BYTES - 2, b" ") + b'"}'
            for head, some in zip(heads, tokens, strict=True)
        )
        names = tuple(f"customer-{(number * rows + row) % spaces:06d}" for row in range(rows))
        times = tuple(range(start + number * rows, start + (number + 1) * rows))
        stamps = pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))
        arrow = pa.record_batch(
            [pa.array(names), stamps, pa.array(data, pa.binary())], names=["space", "timestamp", "data"]
        )
        batches.append(Batch(names, times, data, arrow))
    return batches


def with_rounds(batches: list[Batch]) -> list[Batch]:
    """Return the batches, each with copies that have later and later timestamps, one for each time it is appended."""
    rows = len(batches[0].timestamps)
    span = len(batches) * rows
    starts = range(0, span * min(MADE_EVENTS // span, max(1, MADE_BATCHES // len(batches))), span)
    return [
        replace(batch, made=iter([batch.stamped_from(batch.timestamps[0] + start) for start in starts]))
        for batch in batches
    ]


class Load:
    """Threads that append, with counts of what they sent and the latency of each append."""

    def __init__(self, store: Store, batches: list[Batch], appenders: int) -> None:
        self._store = store
        self._batches = batches
        self._prepared = [store.prepare(batch) for batch in batches]
        self._appenders = appenders
        self.latencies: list[list[float]] = [[] for _ in range(appenders)]
        self._uses = np.zeros((appenders, len(batches)), np.int64)
        self.read: list[float] = []
        self._lock = Lock()
        self._errors: list[BaseException] = []

    def run(self, seconds: float, reader: Any = None) -> float:
        """Append for some seconds, then bring everything into final form; return the seconds that both took."""
        begin = time.perf_counter()
        end = begin + seconds
        threads = [Thread(target=self._append, args=(number, end)) for number in range(self._appenders)]
        if reader is not None:
            threads.append(Thread(target=self._read, args=(reader, begin + 1, end)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        self._store.finish()
        return time.perf_counter() - begin

    def _append(self, number: int, end: float) -> None:
        at = number * len(self._batches) // self._appenders
        times, uses = self.latencies[number], self._uses[number]
        try:
            while (began := time.perf_counter()) < end:
                self._store.append(self._prepared[at], number)
                times.append(time.perf_counter() - began)
                uses[at] += 1
                at = (at + 1) % len(self._prepared)
        except BaseException as error:  # noqa: BLE001 - raised by run
            self._errors.append(error)

    def _read(self, reader: Any, begin: float, end: float) -> None:
        number = 0
        time.sleep(max(0, begin - time.perf_counter()))
        try:
            while (began := time.perf_counter()) < end:
                number += 1
                found = reader(self._batches[0].spaces[number % len(set(self._batches[0].spaces))])
                self.read.append(time.perf_counter() - began)
                assert found == 100, found
                time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001 - raised by run
            self._errors.append(error)

    @property
    def events(self) -> int:
        """Number of acknowledged events."""
        return int(self._uses.sum()) * len(self._batches[0].spaces)

    def sent(self) -> tuple[Counter[str], Counter[int]]:
        """Number of events sent, by space and by partition."""
        spaces: Counter[str] = Counter()
        for batch, uses in zip(self._batches, self._uses.sum(axis=0).tolist(), strict=True):
            for space, count in Counter(batch.spaces).items():
                spaces[space] += uses * count
        partitions: Counter[int] = Counter()
        for number, uses in enumerate(self._uses.sum(axis=1).tolist()):
            partitions[number % PARTITIONS] += uses * len(self._batches[0].spaces)
        return +spaces, partitions


def measure(name: str, work: dict[str, Any], seconds: float, folder: Path) -> dict[str, Any]:
    """Measure one store under one load, in this process."""
    batches = make_batches(work["batch"], work.get("spaces", 10), 1)
    if not work.get("reader"):  # a reader wants the newest events
        batches = with_rounds(batches)
    before = resident_mib("VmRSS")
    retention = RETENTION_BYTES if work.get("retain") and name.startswith("aggregator") else None
    store = STORES[name](folder / name, retention)
    load = Load(store, batches, work["appenders"])
    reader = None
    if work.get("reader"):
        topic = store.topic  # type: ignore[attr-defined]

        def reader(space: str) -> int:
            return int(topic.scan(space=space, reverse=True, limit=100).to_table().num_rows)

    busy = processor_s()
    took = load.run(seconds, reader)
    busy = processor_s() - busy
    refused = getattr(store, "refused", 0)
    peak = resident_mib("VmHWM")
    store.close()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    again = STORES[name](folder / name, retention)
    again.check(*load.sent())
    again.close()
    times = np.concatenate([np.array(some) for some in load.latencies]) * 1000
    figures = {
        "events": load.events, "rate": load.events / took, "p50_ms": float(np.percentile(times, 50)),
        "p99_ms": float(np.percentile(times, 99)), "refused": refused, "resident_mib": peak, "before_mib": before,
        "disk_mib": size / (1 << 20), "retained": retention is not None,
        "cpu_us": busy * 1e6 / load.events,
    }  # fmt: skip
    if load.read:
        reads = np.array(load.read) * 1000
        figures |= {
            "reads": len(reads), "read_p50_ms": float(np.percentile(reads, 50)),
            "read_p99_ms": float(np.percentile(reads, 99)),
        }  # fmt: skip
    return figures


def processor_s() -> float:
    """Processor seconds of this process and its children."""
    others = (pid for pid in processes(os.getpid()) if pid != os.getpid())
    times = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in others]
    return time.process_time() + sum(int(each[11]) + int(each[12]) for each in times) / os.sysconf("SC_CLK_TCK")


# ------------------------------------------------------------ reopening


def fill_log(folder: Path, log_bytes: int) -> None:
    """Append until the log has `log_bytes`, without sealing; print the number of events, and wait to be killed."""
    import aggregator

    limits = {"memory_bytes": 4 * log_bytes, "log_bytes": 4 * log_bytes}
    catalog = aggregator.open(folder / "aggregator", limits=limits)
    roll = {"rows": 1 << 40, "bytes": 1 << 40, "age": "1d"}
    topic = catalog.create_topic("events", roll=roll)
    batches = make_batches(1000, 10, 1)
    events = 0
    while sum(file.stat().st_size for file in (folder / "aggregator" / "log").iterdir()) < log_bytes:
        for batch in batches[:50]:
            topic.append(batch.arrow, partition=str(events // 1000 % PARTITIONS))
            events += 1000
    print(events, flush=True)
    time.sleep(600)


def measure_reopening(work: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Measure the seconds to open a catalog whose writer was killed."""
    import aggregator

    command = [sys.executable, "-m", "benchmarks.ingest", "--fill-log", str(folder), str(work["log_bytes"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        events = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
    log = sum(file.stat().st_size for file in (folder / "aggregator" / "log").iterdir())
    begin = time.perf_counter()
    catalog = aggregator.open(folder / "aggregator", limits={"log_bytes": 4 << 30})
    seconds = time.perf_counter() - begin
    newest = catalog.topic("events").scan(space="customer-000001", reverse=True, limit=100).to_table()
    first_answer = time.perf_counter() - begin
    assert newest.num_rows == 100
    assert catalog.topic("events").scan().count() == events
    catalog.close()
    return {
        "seconds": seconds, "first_answer_s": first_answer, "log_mib": log / (1 << 20), "events": events,
        "resident_mib": resident_mib("VmHWM"),
    }  # fmt: skip


# ------------------------------------------------------------ planning


def measure_planning(work: dict[str, Any]) -> dict[str, Any]:
    """Measure the milliseconds to choose the segments of a space among many whose key ranges all include it."""
    from aggregator.model import SegmentInfo
    from aggregator.storage.segments.signature import signature_of_spaces
    from aggregator.storage.segments.table import Bounds, SegmentTable

    count = work["segments"]
    infos = []
    for number in range(count):
        spaces = [b"a", b"z", *(b"customer-%07d" % (number * 20 + place) for place in range(20))]
        infos.append(
            SegmentInfo(
                number, 1, 1, number, number, number, number + 1000, b"a", b"z", 1000, 40_000, 0, 0, 0,
                signature_of_spaces(spaces),
            )
        )  # fmt: skip
    table = SegmentTable(infos)
    times = []
    chosen = []
    for number in range(0, count, count // 200):
        begin = time.perf_counter()
        found = table.view().select(Bounds(space=b"customer-%07d" % (number * 20)))
        times.append((time.perf_counter() - begin) * 1000)
        assert infos[number] in found
        chosen.append(len(found))
    large = SegmentTable(info._replace(signature=b"") for info in infos)  # segments of many spaces have none
    all_of_them = []
    for _ in range(50):
        begin = time.perf_counter()
        found = large.view().select(Bounds(space=b"customer-1"))
        all_of_them.append((time.perf_counter() - begin) * 1000)
        assert len(found) == count
    return {
        "p50_ms": float(np.percentile(times, 50)), "p99_ms": float(np.percentile(times, 99)),
        "chosen": float(np.mean(chosen)), "segments": count, "all_p50_ms": float(np.percentile(all_of_them, 50)),
        "all_p99_ms": float(np.percentile(all_of_them, 99)),
    }  # fmt: skip


# ------------------------------------------------------------ histories


def measure_histories(work: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Measure the milliseconds to read the history of a space as events, from many segments and after merging them."""
    import aggregator

    figures: dict[str, Any] = {}
    batches = make_batches(work["rows"], work["spaces"], 1)
    with aggregator.open(folder / "aggregator", durability="none") as catalog:
        topic = catalog.create_topic("events", retention={"segments": 1 << 30})  # prevents automatic merges
        for number in range(work["segments"]):
            topic.append(batches[number % len(batches)].stamped())
            catalog.seal()
        for when in ("apart", "merged"):
            assert topic.stats()["segments"] == (work["segments"] if when == "apart" else 1)
            times, work_times = [], []
            for round_ in range(12):
                for space in range(0, work["spaces"], work["spaces"] // 50):
                    begin, busy = time.perf_counter(), time.thread_time()
                    events = list(topic.scan(space=f"customer-{space:06d}"))
                    took, busy = (time.perf_counter() - begin) * 1000, (time.thread_time() - busy) * 1000
                    assert len(events) == work["segments"] * work["rows"] // work["spaces"]
                    if round_ > 1:  # the first two warm the caches
                        times.append(took)
                        work_times.append(busy)
            figures |= {
                f"{when}_p50_ms": float(np.percentile(times, 50)),
                f"{when}_p99_ms": float(np.percentile(times, 99)),
                f"{when}_cpu_ms": float(np.percentile(work_times, 50)),
            }
            catalog.compact()
    return figures | {"events": len(events), "segments": work["segments"]}


# ------------------------------------------------------------ the command


def run_child(name: str, id_: str, seconds: float) -> dict[str, Any]:
    """Measure in a fresh process; return its figures, or the failure."""
    with tempfile.TemporaryDirectory(dir=RESULT.parent, prefix="ingest-") as folder:
        command = [sys.executable, "-m", "benchmarks.ingest", "--child", name, id_, str(seconds), folder]
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode:
        return {"failed": f"exit status {found.returncode}"}
    return dict(json.loads(found.stdout.splitlines()[-1]))


def main() -> int:
    """Measure; return 0, or 1 if a store failed or lost events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WORKS), help=f"works to run, of {', '.join(WORKS)}")
    parser.add_argument("--stores", default=",".join(STORES), help=f"stores to measure, of {', '.join(STORES)}")
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of each load")
    parser.add_argument("--write-docs", action="store_true", help="rewrite the section of docs/benchmarks.md")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--fill-log", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fill_log:
        fill_log(Path(args.fill_log[0]), int(args.fill_log[1]))
        return 0
    if args.child:
        name, id_, seconds, folder = args.child
        work = WORKS[id_]
        if id_ == "I5":
            figures = measure_reopening(work, Path(folder))
        elif id_ == "I6":
            figures = measure_planning(work)
        elif id_ == "I7":
            figures = measure_histories(work, Path(folder))
        elif id_ == "I8":
            figures = measure_opening(work, Path(folder))
        else:
            figures = measure(name, work, float(seconds), Path(folder))
        print(json.dumps(figures))
        return 0
    run = json.loads(RESULT.read_text()) if RESULT.exists() else {"works": {}}
    if args.only:
        run["environment"] = describe(())
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    for stale in RESULT.parent.glob("ingest-*"):
        shutil.rmtree(stale, ignore_errors=True)
    failed = False
    for id_ in [name.strip() for name in args.only.split(",") if name.strip()]:
        for name in [store for store in args.stores.split(",") if store in WORKS[id_].get("only", STORES)]:
            when = {"load": round(os.getloadavg()[0], 1), "at": datetime.now(UTC).isoformat(timespec="minutes")}
            figures = run_child(name, id_, args.seconds) | when
            run["works"].setdefault(id_, {})[name] = figures
            failed |= "failed" in figures
            print(id_, name, {key: round(value, 2) if isinstance(value, float) else value
                              for key, value in figures.items()}, flush=True)  # fmt: skip
            RESULT.write_text(json.dumps(run, indent=1) + "\n")
    report("benchmarks.ingest", tables(run["works"]), run["environment"], write_docs=args.write_docs)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
