"""Statements over streams, compared with ripgrep and DuckDB: `python -m benchmarks.lql [--only L1,L3] [--write-docs]`.

Every tool searches the same text for the same patterns, warm, and must find the same lines. The data is in a temporary
directory, which is deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import aggregator
from benchmarks.environment import describe
from benchmarks.section import VERDICT_HEADINGS, Target, machine, rewrite, table, verdicts

RESULT = Path(__file__).parent / "results" / "lql.json"
LINE_BYTES = 128
CHUNK = 200_000
SHAPES = (
    "INFO  api-## GET /v1/orders/######## status=200 took=###ms user=u##### trace=@@@@@@@@@@@@@@@@ bytes=##### r=@@",
    "INFO  web-## GET /static/img/@@@@@@@@.png status=304 took=#ms user=u##### trace=@@@@@@@@@@@@@@@@ cache=hit",
    "DEBUG cache-# miss key=session:@@@@@@@@@@@@ ttl=###s shard=## trace=@@@@@@@@@@@@@@@@ evicted=## waiting=##",
    "WARN  queue-# depth ##### above the limit, consumer group billing-## lags ###s behind, trace=@@@@@@@@@@@@@@@@",
    "INFO  auth-# login ok user=u##### from 10.##.##.## method=password mfa=yes trace=@@@@@@@@@@@@@@@@ sid=@@@@",
    "INFO  db-# commit tx=@@@@@@@@ rows=## lock_wait=#.###ms fsync=#.###ms wal=@@@@@@@@/@@@@@@@@ ck=##",
)
RARE = "ERROR db-# connection reset by peer 10.##.##.## after ###ms, retry # of 5 tx=@@@@@@@@ trace=@@@@@@@@@@@@@@@@"
"""One line in ten thousand. # is a random decimal digit, @ a random hexadecimal digit."""
FILTERS = {"L1": "connection reset", "L1-none": "no such thing", "L1-many": "status=304"}


def lines(count: int, seed: int) -> np.ndarray:
    """Generate log lines of 128 bytes, without line ends, as a matrix of bytes."""
    rng = np.random.default_rng(seed)
    shapes = np.stack([np.frombuffer(s.ljust(LINE_BYTES)[:LINE_BYTES].encode(), np.uint8) for s in (*SHAPES, RARE)])
    kinds = rng.integers(0, len(SHAPES), count)
    kinds[rng.random(count) < 1e-4] = len(SHAPES)
    made = shapes[kinds]
    digits = rng.integers(0, 10, made.shape, dtype=np.uint8) + ord("0")
    hexadecimal = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, made.shape, dtype=np.uint8)]
    return np.where(made == ord("#"), digits, np.where(made == ord("@"), hexadecimal, made))


def write_all(catalog: aggregator.Catalog, text: Path, records: int, streams: int) -> None:
    """Write the same lines to a catalog, 5,000 to each stream in turn, and to a text file."""
    begin, batch = 0, 5_000
    with text.open("wb") as file:
        for seed in range(-(-records // CHUNK)):
            made = lines(min(CHUNK, records - seed * CHUNK), seed)
            file.write(np.concatenate([made, np.full((len(made), 1), ord("\n"), np.uint8)], axis=1).tobytes())
            for first in range(0, len(made), batch):
                some = made[first : first + batch]
                fixed = pa.FixedSizeBinaryArray.from_buffers(
                    pa.binary(LINE_BYTES), len(some), [None, pa.py_buffer(some.tobytes())]
                )
                stamps = 1_700_000_000_000_000 + (begin + np.arange(len(some))) * 100
                table = pa.table({"ts": stamps, "msg": fixed.cast(pa.binary())})
                stream = begin // batch
                tags, partition = {"app": "shop", "host": f"h{stream % streams:03d}"}, str(stream % 4)
                patiently(partial(catalog.write, tags, table, partition=partition))
                begin += len(some)
    catalog.seal()


def patiently(append: Callable[[], Any]) -> None:
    """Append, and retry while the catalog is overloaded."""
    while True:
        try:
            append()
            return
        except aggregator.OverloadedError as error:
            time.sleep(error.retry_after_s)


def timed(work: Callable[[], Any], repeats: int) -> tuple[float, float, Any]:
    """Run some work several times after a warm-up; return the median seconds and processor seconds, and its result."""
    answer = work()
    taken, used = [], []
    for _ in range(repeats):
        begin, before = time.perf_counter(), processors()
        again = work()
        taken.append(time.perf_counter() - begin)
        used.append(processors() - before)
        assert again == answer
    return median(taken), median(used), answer


def processors() -> float:
    """Processor seconds that this process and its children have used."""
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


# ------------------------------------------------------------ L1: filters


def measure_filters(records: int, folder: Path, repeats: int) -> dict[str, Any]:
    """Find the lines that contain a text with each tool; in the catalog both before and after merging segments."""
    text = folder / "text.log"
    if not text.exists():
        with aggregator.open(folder / "data", durability="none") as catalog:
            write_all(catalog, text, records, 100)
    found: dict[str, Any] = {id_: {} for id_ in FILTERS}
    sizes = {"text": text.stat().st_size, "sealed": _bytes(folder / "data")}
    expected: dict[str, list[bytes]] = {}
    for id_, wanted in FILTERS.items():
        for name, command in greps(wanted, text).items():
            *seconds, output = timed(
                lambda c=command: subprocess.run(c, stdout=subprocess.PIPE, check=False).stdout, repeats
            )
            messages = sorted(output.splitlines())
            assert expected.setdefault(id_, messages) == messages, name
            found[id_] |= {"matching": len(messages), name: rates(records, seconds)}
    _measure_catalog(found, expected, folder, "as sealed", records, repeats)
    with aggregator.open(folder / "data", durability="none") as catalog:
        catalog.compact()
    sizes["merged"] = _bytes(folder / "data")
    _measure_catalog(found, expected, folder, "merged", records, repeats)
    for name, ask in databases(folder, text):
        for id_, wanted in FILTERS.items():
            *seconds, rows = timed(lambda w=wanted, ask=ask: ask(w), repeats)
            assert len(rows) == found[id_]["matching"], name
            found[id_][name] = rates(records, seconds)
    found["sizes"] = sizes | {"duckdb": _bytes(folder / "lines.duckdb")}
    return found


def _measure_catalog(
    found: dict[str, Any], expected: Mapping[str, list[bytes]], folder: Path, state: str, records: int, repeats: int
) -> None:
    """Add the rates of finding a catalog's records, and of only counting them."""
    with aggregator.open(folder / "data", read_only=True) as catalog:
        for id_, wanted in FILTERS.items():
            statement = f'SELECT WHERE msg CONTAINS "{wanted}"'
            count = f'SELECT COUNT WHERE msg CONTAINS "{wanted}"'
            *seconds, answer = timed(lambda s=statement: catalog.query(s).to_table(), repeats)
            assert sorted(answer["data"].to_pylist()) == expected[id_]
            found[id_][f"records, {state}"] = rates(records, seconds)
            *seconds, counted = timed(lambda c=count: catalog.query(c).to_pylist()[0]["count"], repeats)
            assert counted == len(answer)
            found[id_][f"count, {state}"] = rates(records, seconds)


def rates(records: int, seconds: list[float]) -> list[float]:
    """Records per second, and per processor second."""
    return [records / each for each in seconds]


def greps(wanted: str, text: Path) -> dict[str, list[str]]:
    """Commands that print the matching lines of a file, by the name of the tool."""
    commands = {"ripgrep": ["rg", "-F", "--no-line-number", "--color=never"], "grep": ["grep", "-F"]}
    return {name: [*words, wanted, str(text)] for name, words in commands.items() if shutil.which(words[0])}


def databases(folder: Path, text: Path) -> Iterator[tuple[str, Callable[[str], pa.Table]]]:
    """DuckDB, on a table in its own database file."""
    try:
        import duckdb
    except ImportError:
        return
    (folder / "lines.duckdb").unlink(missing_ok=True)
    with duckdb.connect(str(folder / "lines.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE lines AS SELECT * FROM "
            "read_csv(?, columns={'msg': 'VARCHAR'}, header=false, delim='\\x01', quote='', escape='')", [str(text)],
        )  # fmt: skip
        connection.execute("CHECKPOINT")
        statement = "SELECT msg FROM lines WHERE contains(msg, ?)"
        yield "DuckDB", lambda w: connection.execute(statement, [w]).to_arrow_table()


def _bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(one.stat().st_size for one in path.rglob("*.esdb"))


# ------------------------------------------------------------ L2 to L4: reading, tails


def measure_merging(records: int, folder: Path, repeats: int) -> dict[str, Any]:
    """Read all records of 1,000 streams, by time."""
    with aggregator.open(folder / "merged", durability="none") as catalog:
        rng = np.random.default_rng(1)
        for first in range(0, records, 10_000):
            spaces = pa.array([f"{{host=h{n:04d}}}" for n in range(1000)]).take(pa.array(rng.integers(0, 1000, 10_000)))
            made = lines(10_000, first)
            fixed = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(LINE_BYTES), 10_000, [None, pa.py_buffer(made.tobytes())]
            )
            stamps = pa.array(first + np.arange(10_000)).cast(pa.timestamp("us", "UTC"))
            table = pa.table({"space": spaces, "timestamp": stamps, "data": fixed.cast(pa.binary())})
            if "logs" not in catalog.topics():
                catalog.create_topic("logs")
            patiently(partial(catalog.topic("logs").append, table))
        catalog.seal()

        def read() -> int:
            last, count = -1, 0
            for batch in catalog.query("SELECT FROM host LIKE 'h*'").batches():
                times = np.asarray(batch.column("timestamp").cast(pa.int64()))
                assert times[0] > last
                assert (np.diff(times) > 0).all()
                last, count = times[-1], count + len(batch)
            return count

        seconds, used, count = timed(read, repeats)
        assert count == records
    return {"rate": records / seconds, "rate_by_processor": records / used, "records": records}


def measure_tail(seconds: float, folder: Path) -> dict[str, Any]:
    """Measure the latency from appending to reading, at 50,000 records per second, each append synced."""
    batch, every_s = 500, 0.01
    sent: list[float] = []
    latencies: list[float] = []
    with aggregator.open(folder / "tailed") as catalog:
        catalog.write({"app": "tail"}, [{"msg": "first"}])
        tail = catalog.tail("SELECT FROM app = tail")
        messages = pa.array([b"x" * LINE_BYTES] * batch)

        def write() -> None:
            begin = time.perf_counter()
            while (now := time.perf_counter()) < begin + seconds:
                due = begin + len(sent) * every_s
                if due > now:
                    time.sleep(due - now)
                sent.append(time.perf_counter())
                numbers = np.full(batch, len(sent) - 1)
                catalog.write({"app": "tail"}, pa.table({"msg": messages, "n": numbers}))

        writer = threading.Thread(target=write)
        writer.start()
        seen = 0
        for records in tail.batches():
            now = time.perf_counter()
            numbers = np.asarray(records.column("n"))
            latencies += [now - sent[n] for n in numbers[:: batch // 10].tolist()]
            seen += len(records)
            if not writer.is_alive() and seen == len(sent) * batch:
                break
        writer.join()
    micros = np.array(latencies) * 1000
    return {
        "rate": seen / seconds, "p50_ms": float(np.percentile(micros, 50)), "p99_ms": float(np.percentile(micros, 99)),
        "max_ms": float(micros.max()),
    }  # fmt: skip


def measure_idle(seconds: float, folder: Path) -> dict[str, Any]:
    """Measure how much of a processor a hundred tails use while nothing arrives."""
    with aggregator.open(folder / "idle") as catalog:
        tails = [catalog.tail("SELECT FROM app = none") for _ in range(100)]
        threads = [threading.Thread(target=list, args=(tail,)) for tail in tails]
        for thread in threads:
            thread.start()
        time.sleep(2)
        begin, used = time.perf_counter(), time.process_time()
        time.sleep(seconds)
        share = (time.process_time() - used) / (time.perf_counter() - begin)
    for thread in threads:
        thread.join()
    return {"share": share}


# ------------------------------------------------------------ the page


def _rate(filter_: str, what: str) -> Callable[[Mapping[str, Any]], float]:
    """Return a function of the works: the M records per second that a filter scans, for the row `what`."""
    return lambda works: float(works["L1"][filter_][what][0]) / 1e6


TARGETS = (
    Target("L1", "CONTAINS, merged: ≥ 50 M records/s", _rate("L1", "records, merged"), 50, True, "{:.1f} M/s"),
    Target("L1", "the same as COUNT", _rate("L1", "count, merged"), 50, True, "{:.1f} M/s"),
    Target("L1", "where nothing matches", _rate("L1-none", "records, merged"), 50, True, "{:.1f} M/s"),
    Target("L1", "as sealed: ≥ 50 M records/s", _rate("L1", "records, as sealed"), 50, True, "{:.1f} M/s"),
    Target("L1", "L1-many, merged: ≥ 10 M records/s", _rate("L1-many", "records, merged"), 10, True, "{:.1f} M/s"),
    Target(
        "L2", "merged read of 1,000 streams: ≥ 4 M records/s", lambda w: w["L2"]["rate"] / 1e6, 4, True, "{:.2f} M/s"
    ),
    Target(
        "L3", "append to reader at 50,000 records/s: p99 ≤ 50 ms", lambda w: w["L3"]["p99_ms"], 50, False, "{:.1f} ms"
    ),
    Target("L4", "100 idle tails: < 2 % of a processor", lambda w: 100 * w["L4"]["share"], 2, False, "{:.2f} %"),
)


def page(run: dict[str, Any]) -> list[str]:
    """The parts of the generated section."""
    works = run["works"]
    parts = [table(VERDICT_HEADINGS, verdicts((target for target in TARGETS if target.work in works), works))]
    if "L1" in works:
        filters = works["L1"]
        rows = [("lines that match", *(format(filters[id_]["matching"], ",") for id_ in FILTERS))]
        for name in filters["L1"]:
            if name != "matching":
                rates = (" / ".join(f"{rate / 1e6:.1f}" for rate in filters[id_][name]) for id_ in FILTERS)
                rows.append((name, *rates))
        sizes = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in filters["sizes"].items())
        parts += [table(("M records a second / a processor's second", *FILTERS), rows), f"On disk: {sizes}."]
    if "L3" in works:
        tail = works["L3"]
        parts.append(
            f"L3: {tail['rate']:,.0f} records/s, median {tail['p50_ms']:.1f} ms, p99 {tail['p99_ms']:.1f} ms, at most "
            f"{tail['max_ms']:.0f} ms."
        )
    return [*parts, machine(run["environment"])]


def main() -> int:
    """Measure, and return 0. A wrong answer raises."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="L1,L2,L3,L4", help="works to run, of L1, L2, L3, L4")
    parser.add_argument("--records", type=int, default=10_000_000, help="number of records for L1")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each question")
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of L3 and L4")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the records of L1 there, and reuse them")
    parser.add_argument("--write-docs", action="store_true", help="rewrite the section of docs/benchmarks.md")
    args = parser.parse_args()
    run = json.loads(RESULT.read_text()) if RESULT.exists() else {"works": {}}
    if args.only:
        run["environment"] = describe(())
    works: dict[str, Callable[[Path], dict[str, Any]]] = {
        "L1": lambda folder: measure_filters(args.records, folder, args.repeats),
        "L2": lambda folder: measure_merging(1_000_000, folder, args.repeats),
        "L3": lambda folder: measure_tail(args.seconds, folder),
        "L4": lambda folder: measure_idle(args.seconds, folder),
    }
    for id_ in [name.strip() for name in args.only.split(",") if name.strip()]:
        if id_ == "L1" and args.keep is not None:
            args.keep.mkdir(parents=True, exist_ok=True)
            run["works"][id_] = works[id_](args.keep)
        else:
            with tempfile.TemporaryDirectory(prefix="aggregator-lql-") as folder:
                run["works"][id_] = works[id_](Path(folder))
        print(id_, json.dumps(run["works"][id_]), flush=True)
        RESULT.write_text(json.dumps(run, indent=1) + "\n")
    print("\n\n".join(page(run)))
    if args.write_docs:
        rewrite("benchmarks.lql", page(run))
    return 0


if __name__ == "__main__":
    sys.exit(main())
