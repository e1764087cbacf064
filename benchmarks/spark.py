"""Segments and Parquet compared in one Spark session: `python -m benchmarks.spark [--events 5000000]`.

Separate from `benchmarks.run` because it takes long: six minutes on two processors. The formats take turns at each
work, several times, and counts or sums are compared; the figure is the ratio of the medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import psutil
import pyarrow.parquet as pq

from benchmarks.dataset import load
from benchmarks.section import rewrite, table
from esformat.spark import sql, start_session, write

SCRATCH = Path(__file__).parent / "results" / "scratch"
RESULT = Path(__file__).parent / "results" / "spark.json"

PARTITIONS = (1, 2, 4)
"""Input partitions of the scaling run: below, at and above the two processors of the session."""


QUERIES = {
    "scan": (1.2, "full scan, every column of the events hashed", "SELECT count(*), HASHES FROM EVENTS"),
    "column": (1.5, "one column: its last value, and how many", "SELECT max(timestamp), count(*) FROM EVENTS"),
    "sum": (1.5, "one column: the sum of all values", "SELECT sum(unix_seconds(timestamp)) FROM EVENTS"),
    "count": (1.5, "`count(*)`", "SELECT count(*) FROM EVENTS"),
    "space": (
        1.5, "all of one space",
        "SELECT count(*), sum(hash(timestamp, data, type, country)) FROM EVENTS WHERE space = 'SPACE'",
    ),
    "hour": (
        0.4, "one index value, one hour",
        "SELECT count(*), max(timestamp) FROM EVENTS WHERE type = 'TYPE' AND timestamp >= 'HOUR' "
        "AND timestamp < TIMESTAMP 'HOUR' + INTERVAL 60 MINUTES",
    ),
    "groups": (
        1.3, "group by space", "SELECT count(*), max(n) FROM (SELECT space, count(*) AS n FROM EVENTS GROUP BY space)"
    ),
    "join": (1.3, "join with 10,000 spaces", "SELECT count(*), sum(weight) FROM EVENTS JOIN some USING (space)"),
}  # fmt: skip
"""Run by Spark on Parquet and by `esformat.spark.sql` on segments: highest ratio to Parquet's time, title, SQL."""

TITLES = {
    **{name: title for name, (_, title, _) in QUERIES.items()},
    "convert": "Parquet → segments, or → sorted Parquet",
}


@dataclass(frozen=True)
class Work:
    """A task for both formats. target: the highest ratio of our time to Parquet's."""

    name: str
    target: float
    run: Callable[[str], Any]


def main() -> None:
    """Measure and print; save the figures in `results/spark.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--works", default="scan,column,sum,count,space,hour,groups,join,convert,scaling")
    parser.add_argument("--write-docs", action="store_true", help="then rewrite docs/benchmarks.md from saved figures")
    parser.add_argument("--no-measure", action="store_true", help="do not measure, only --write-docs")
    options = parser.parse_args()
    if not options.no_measure:
        _measure(options)
    if options.write_docs:
        rewrite("benchmarks.spark", _tables(json.loads(RESULT.read_text("utf-8"))))


def _measure(options: argparse.Namespace) -> None:
    folder = SCRATCH / f"spark-{options.events}"
    _prepare(folder, options.events)
    spark = start_session("benchmarks", master="local[2]", conf=_conf(folder))
    if not (folder / "esdb").exists():
        write(spark.read.parquet(str(folder / "raw")), str(folder / "esdb"), indexes=["type", "country"], partitions=8)
        _sorted_parquet(spark, str(folder / "raw"), str(folder / "parquet"))
    wanted = options.works.split(",")
    figures: dict[str, Any] = {}
    if "scaling" in wanted:
        figures["scaling"] = _scaling(spark, folder, options.turns)
    for work in _works(spark, folder, wanted):
        times: dict[str, list[float]] = {"esdb": [], "parquet": []}
        cpus: dict[str, list[float]] = {"esdb": [], "parquet": []}
        answers = {}
        for _ in range(options.turns + 1):  # the first turn warms up
            for name, seconds in times.items():
                started, before = perf_counter(), _cpu_seconds()
                answers[name] = work.run(name)
                seconds.append(perf_counter() - started)
                cpus[name].append(_cpu_seconds() - before)
        if answers["esdb"] != answers["parquet"]:
            raise SystemExit(f"{work.name}: {answers}")
        medians = {name: median(seconds[1:]) for name, seconds in times.items()}
        ratio = medians["esdb"] / medians["parquet"]
        cpu = {name: median(seconds[1:]) for name, seconds in cpus.items()}
        cpu_ratio = cpu["esdb"] / cpu["parquet"]
        figures[work.name] = {**medians, "ratio": ratio, "target": work.target, "cpu": {**cpu, "ratio": cpu_ratio}}
        print(f"{work.name:8} esdb {medians['esdb']:6.2f} s  parquet {medians['parquet']:6.2f} s  "
              f"ratio {ratio:.2f} (target {work.target}), of processor time {cpu_ratio:.2f}", flush=True)  # fmt: skip
    known = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {}
    known.setdefault(str(options.events), {}).update(figures)
    RESULT.write_text(json.dumps(known, indent=1) + "\n", "utf-8")


def _tables(known: dict[str, Any]) -> list[str]:
    """The parts of the generated section, from the saved figures."""
    parts = []
    for events, figures in known.items():
        rows = []
        for name, title in TITLES.items():
            if found := figures.get(name):
                cpu = f"{found['cpu']['ratio']:.2f}" if "cpu" in found else "–"
                seconds = (f"{found[key]:.2f}" for key in ("esdb", "parquet", "ratio"))
                rows.append((title, *seconds, cpu, str(found["target"])))
        headings = ("work", "segments, s", "Parquet, s", "ratio", "of processor time", "aim")
        parts += [f"### Spark, {int(events):,} events", table(headings, rows)]
        if scaling := figures.get("scaling"):
            headings = ("full scan in so many input partitions", "s", "s of processor time")
            parts.append(table(headings, ((str(n), f"{wall:.2f}", f"{cpu:.2f}") for n, (wall, cpu) in scaling.items())))
    return parts


def _cpu_seconds() -> float:
    """Processor time of Java and all Python workers so far: more reliable than the clock on a busy machine."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _conf(folder: Path) -> dict[str, str]:
    return {
        "spark.driver.memory": "2g", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR", "spark.local.dir": str(folder / "local"), "spark.sql.shuffle.partitions": "8",
    }  # fmt: skip


def _prepare(folder: Path, events: int) -> None:
    """Write the unsorted events to eight Parquet files, unless they exist."""
    if (folder / "raw").exists():
        return
    table = load(events, SCRATCH)
    partial = folder / "raw.partial"
    partial.mkdir(parents=True)
    step = -(-len(table) // 8)
    for number in range(8):
        pq.write_table(table.slice(number * step, step), partial / f"{number}.parquet", compression="zstd")
    partial.rename(folder / "raw")


def _sorted_parquet(spark: Any, source: str, target: str) -> None:
    """Write Parquet the way segments are written: shuffle by range, sort, write."""
    df = spark.read.parquet(source).repartitionByRange(8, "space", "timestamp")
    keys = [name for name in ("space", "grouping", "timestamp") if name in df.columns]
    df.sortWithinPartitions(*keys).write.option("compression", "zstd").mode("overwrite").parquet(target)


def _works(spark: Any, folder: Path, wanted: list[str]) -> list[Work]:
    def asked(text: str) -> Callable[[str], Any]:
        def ask(name: str) -> Any:
            query = text.replace("EVENTS", f"{name}.`{folder / name}`")
            return (sql(spark, query) if name == "esdb" else spark.sql(query)).collect()

        return ask

    def convert(name: str) -> int:
        target = folder / "converted"
        shutil.rmtree(target, ignore_errors=True)
        if name == "esdb":
            raw = spark.read.parquet(str(folder / "raw"))
            write(raw, str(target), indexes=["type", "country"], partitions=8)
        else:
            _sorted_parquet(spark, str(folder / "raw"), str(target))
        count: int = spark.read.format(name).load(str(target)).count() if name == "parquet" else _events(target)
        return count

    words = _words(spark, folder)
    texts = {name: _filled(text, words) for name, (_, _, text) in QUERIES.items()}
    works = [
        *(Work(name, target, asked(texts[name])) for name, (target, _, _) in QUERIES.items()),
        Work("convert", 1.2, convert),
    ]
    return [work for work in works if work.name in wanted]


def _words(spark: Any, folder: Path) -> dict[str, str]:
    """The values for the queries: a space of medium size, a rare type, an hour. Creates the view of 10,000 spaces."""
    df = spark.read.parquet(str(folder / "parquet"))
    spaces = df.groupBy("space").count().orderBy("count", "space")
    spaces.limit(10_000).selectExpr("space", "count AS weight").cache().createOrReplaceTempView("some")
    first, last = df.selectExpr("min(timestamp)", "max(timestamp)").collect()[0]
    columns = spark.read.parquet(str(folder / "raw")).columns  # segments also have the column of groupings
    return {
        "HASHES": ", ".join(f"sum(hash(`{name}`))" for name in columns),
        "SPACE": spaces.tail(1000)[0].space,
        "TYPE": df.groupBy("type").count().orderBy("count").collect()[0].type,
        "HOUR": str((first + (last - first) / 2).replace(minute=0, second=0, microsecond=0)),
    }


def _filled(text: str, words: dict[str, str]) -> str:
    for name, word in words.items():
        text = text.replace(name, word)
    return text


def _scaling(spark: Any, folder: Path, turns: int) -> dict[str, tuple[float, float]]:
    """Seconds and processor seconds of a full scan of segments, by number of input partitions."""
    found: dict[str, list[tuple[float, float]]] = {}
    for turn in range(turns + 1):
        for count in PARTITIONS:
            df = spark.read.format("esdb").option("partitions", count).load(str(folder / "esdb"))
            started, before = perf_counter(), _cpu_seconds()
            _consumed(df, df.columns)
            if turn:  # the first warms up
                found.setdefault(str(count), []).append((perf_counter() - started, _cpu_seconds() - before))
    medians = {count: (median(s for s, _ in each), median(cpu for _, cpu in each)) for count, each in found.items()}
    for count, (seconds, cpu) in medians.items():
        print(f"scaling  {count:>2} input partitions {seconds:6.2f} s, {cpu:.2f} s of processor time", flush=True)
    return medians


def _consumed(df: Any, columns: Sequence[str]) -> tuple[int, ...]:
    """Read columns of every row; return the number of rows and a hash sum of each column."""
    sums = [f"sum(hash(`{name}`))" for name in columns]
    return tuple(df.selectExpr("count(*)", *sums).collect()[0])


def _events(folder: Path) -> int:
    import esformat

    total = 0
    for path in folder.glob("*.esdb"):
        with esformat.open(path) as segment:
            total += segment.num_events
    return total


if __name__ == "__main__":
    main()
