"""SQL and Polars over one file and over Parquet of the same events: `python -m benchmarks.sql [--write-docs]`.

The page shows the saved figures for each number of events; 30 M (`--events 30000000 --repeats 3`) take about 10 GiB.

DuckDB is used through `Segment.sql` and, over Parquet, through one open connection with its metadata cache; Polars
through `scan_esdb` and `scan_parquet`. Parquet is sorted the same way, with zstd, in two layouts; for each question the
faster one counts. All answers must be equal. Contenders take turns, with warm caches. A time is the best of several
runs, because the machine may be shared; the time of all processors is shown next to it.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import esformat
from benchmarks.dataset import load
from benchmarks.environment import describe
from benchmarks.measure import WrongAnswerError
from benchmarks.section import Headed, report
from esformat.polars import scan_esdb

RESULTS = Path(__file__).parent / "results"
CACHE = Path(tempfile.gettempdir()) / "esformat-bench"
LAYOUTS = {"131,072 rows a group": 131_072, "8,192 rows a group": 8_192}
PIECE_ROWS = 8 * max(LAYOUTS.values())
"""Number of rows sorted and written to a Parquet file at a time."""
MANY = 1_000
Rows = list[tuple[Any, ...]]
OURS, PARQUET = "esdb", "Parquet"


@dataclass(frozen=True)
class Question:
    """A question in SQL and for Polars; `{…}` are placeholders for values of the events."""

    id: str
    sql: str
    frame: Callable[[pl.LazyFrame, Mapping[str, Any]], pl.LazyFrame]


def _largest(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(pl.len(), pl.col("data").bin.size().max())


def _latest(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(pl.len(), pl.col("timestamp").max())


def _text() -> pl.Expr:
    return pl.col("data").cast(pl.String)


QUESTIONS = (
    Question("count(*)", "SELECT count(*) FROM events", lambda e, v: e.select(pl.len())),
    Question(
        "first and last time", "SELECT min(timestamp), max(timestamp) FROM events",
        lambda e, v: e.select(pl.col("timestamp").min(), pl.col("timestamp").max().alias("last")),
    ),
    Question(
        "one space", "SELECT count(*), max(octet_length(data)) FROM events WHERE space = '{space}'",
        lambda e, v: _largest(e.filter(pl.col("space") == v["space"])),
    ),
    Question(
        "1,000 spaces", "SELECT count(*), max(timestamp) FROM events WHERE space IN ({spaces})",
        lambda e, v: _latest(e.filter(pl.col("space").is_in(v["list"]))),
    ),
    Question(
        "a prefix of spaces", "SELECT count(*), max(timestamp) FROM events WHERE space LIKE '{prefix}%'",
        lambda e, v: _latest(e.filter(pl.col("space").str.starts_with(v["prefix"]))),
    ),
    Question(
        "an indexed value, 1 %", "SELECT count(*), max(octet_length(data)) FROM events WHERE type = 'refund'",
        lambda e, v: _largest(e.filter(pl.col("type") == "refund")),
    ),
    Question(
        "an indexed value, 25 %", "SELECT count(*), max(octet_length(data)) FROM events WHERE type = 'click'",
        lambda e, v: _largest(e.filter(pl.col("type") == "click")),
    ),
    Question(
        "count of an indexed value", "SELECT count(*) FROM events WHERE type = 'purchase'",
        lambda e, v: e.filter(pl.col("type") == "purchase").select(pl.len()),
    ),
    Question(
        "one day of thirty",
        "SELECT count(*), max(octet_length(data)) FROM events WHERE timestamp >= '{day}' AND timestamp < '{next}'",
        lambda e, v: _largest(e.filter(pl.col("timestamp") >= v["from"], pl.col("timestamp") < v["to"])),
    ),
    Question(
        "the newest 10", "SELECT space, timestamp, type, data FROM events ORDER BY timestamp DESC LIMIT 10",
        lambda e, v: e.select("space", "timestamp", "type", "data").sort("timestamp", descending=True).head(10),
    ),
    Question(
        "group by an indexed column", "SELECT type, count(*) FROM events GROUP BY type",
        lambda e, v: e.group_by("type").len(),
    ),
    Question(
        "group by two columns", "SELECT type, country, count(*) FROM events GROUP BY type, country",
        lambda e, v: e.group_by("type", "country").len(),
    ),
    Question(
        "the latest of each type", "SELECT type, max(timestamp) FROM events GROUP BY type",
        lambda e, v: e.group_by("type").agg(pl.col("timestamp").max()),
    ),
    Question(
        "LIKE in the payload", "SELECT count(*) FROM events WHERE decode(data) LIKE '%/search/99%'",
        lambda e, v: e.filter(_text().str.contains("/search/99", literal=True)).select(pl.len()),
    ),
    Question(
        "a field of the payload", "SELECT sum((decode(data)->>'$.page_load_ms')::BIGINT)::BIGINT FROM events",
        lambda e, v: e.select(_text().str.json_path_match("$.page_load_ms").cast(pl.Int64).sum()),
    ),
    Question(
        "a join on 1,000 spaces",
        "SELECT count(*), max(timestamp) FROM events JOIN '{users}' AS users USING (space)",
        lambda e, v: _latest(e.join(pl.scan_parquet(v["users"]), on="space")),
    ),
)  # fmt: skip


def values(table: pa.Table, folder: Path) -> dict[str, Any]:
    """Choose the values for the questions, and write the Parquet file for the join."""
    spaces = sorted(pc.unique(table["space"]).to_pylist())
    listed = spaces[:: max(1, len(spaces) // MANY)][:MANY]
    start = pc.min(table["timestamp"]).as_py().replace(hour=0, minute=0, second=0, microsecond=0)
    day = [start.replace(day=start.day + number) for number in (7, 8)]
    pq.write_table(pa.table({"space": listed}), folder / "users.parquet")
    return {
        "space": listed[MANY // 3 % len(listed)], "list": listed, "spaces": ", ".join(f"'{each}'" for each in listed),
        "prefix": listed[5][:-2], "from": day[0], "to": day[1],
        "day": f"{day[0]:%Y-%m-%d}", "next": f"{day[1]:%Y-%m-%d}",
        "users": str(folder / "users.parquet"),
    }  # fmt: skip


class Asked:
    """The files, and the ways to query them: by engine and file, a function from a question to its rows."""

    def __init__(self, folder: Path, table: pa.Table) -> None:
        with esformat.create(folder / "events.esdb", indexes=["type", "country"], memory="1GiB") as writer:
            for batch in table.to_batches(PIECE_ROWS):
                writer.add_table(pa.Table.from_batches([batch]))
        self.segment = esformat.open(folder / "events.esdb")
        ordered = self.segment.dataset().to_table(columns=table.schema.names).cast(table.schema)
        self.values = values(table, folder)
        self.sizes = {OURS: (folder / "events.esdb").stat().st_size / len(table)}
        self.connections: dict[str, duckdb.DuckDBPyConnection] = {}
        self.ways: dict[tuple[str, str], Callable[[Question], Rows]] = {
            ("DuckDB", OURS): lambda question: self.segment.sql(self._text(question)).fetchall(),
            ("Polars", OURS): lambda question: self._collected(scan_esdb(self.segment), question),
        }
        for name, rows in LAYOUTS.items():
            path = folder / f"events-{rows}.parquet"
            keys = ["space", "type", "country"]
            with pq.ParquetWriter(path, table.schema, compression="zstd", use_dictionary=keys) as parquet:
                for at in range(0, len(table), PIECE_ROWS):
                    parquet.write_table(ordered.slice(at, PIECE_ROWS), row_group_size=rows)
            self.sizes[name] = path.stat().st_size / len(table)
            self.connections[name] = self._connected(path)
            self.ways["DuckDB", name] = lambda question, name=name: self._by_duckdb(name, question)
            self.ways["Polars", name] = lambda question, path=path: self._collected(pl.scan_parquet(path), question)

    def _connected(self, path: Path) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET parquet_metadata_cache = true")
        connection.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{path}')")
        return connection

    def _by_duckdb(self, name: str, question: Question) -> Rows:
        return self.connections[name].execute(self._text(question)).fetchall()

    def _text(self, question: Question) -> str:
        text = question.sql
        for name, value in self.values.items():
            text = text.replace("{" + name + "}", str(value))
        return text

    def _collected(self, events: pl.LazyFrame, question: Question) -> Rows:
        return question.frame(events, self.values).collect().rows()

    def close(self) -> None:
        self.segment.close()
        for connection in self.connections.values():
            connection.close()


def processors() -> float:
    """Processor seconds that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(asked: Asked, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Elapsed and processor milliseconds of each question, by engine and file; Parquet in its faster layout."""
    found: dict[str, dict[str, list[float]]] = {}
    for question in QUESTIONS:
        taken: dict[tuple[str, str], list[list[float]]] = {way: [] for way in asked.ways}
        expected: Rows | None = None
        for turn in range(repeats + 1):
            for way, ask in asked.ways.items():
                gc.collect()
                began, used = time.perf_counter(), processors()
                rows = ask(question)
                figures = [1000 * (time.perf_counter() - began), 1000 * (processors() - used)]
                rows = sorted(rows, key=repr)
                expected = rows if expected is None else expected
                if rows != expected:
                    raise WrongAnswerError(f"{question.id}, {way}: {rows[:2]} instead of {expected[:2]}")
                if turn:
                    taken[way].append(figures)
        best = {way: [min(figures) for figures in zip(*each, strict=True)] for way, each in taken.items()}
        found[question.id] = {
            f"{engine}, {file}": best[engine, OURS] if file == OURS else min(best[engine, name] for name in LAYOUTS)
            for engine in ("DuckDB", "Polars")
            for file in (OURS, PARQUET)
        }
        print(question.id, found[question.id], flush=True)
    return found


def tables(run: Mapping[str, Any]) -> list[Headed]:
    """The table for the page."""
    names = [f"{engine}, {file}" for engine in ("DuckDB", "Polars") for file in (OURS, PARQUET)]
    rows = []
    for question, taken in run["questions"].items():
        cells = [f"{taken[name][0]:,.1f} / {taken[name][1]:,.0f}" for name in names]
        times = [f"{taken[names[at + 1]][0] / taken[names[at]][0]:.1f}" for at in (0, 2)]
        rows.append((question, *cells[:2], times[0], *cells[2:], times[1]))
    sizes = ", ".join(f"{name} {size:.1f}" for name, size in run["sizes"].items())
    heading = (
        f"ms / processors' ms ({run['events']:,} events; bytes an event: {sizes})",
        *names[:2],
        "times quicker",
        *names[2:],
        "times quicker",
    )
    return [(heading, rows)]


def main() -> None:
    """Measure and print. A wrong answer raises."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each question")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder to cache generated events in")
    parser.add_argument("--write-docs", action="store_true", help="rewrite the section of docs/benchmarks.md")
    args = parser.parse_args()
    environment = describe(()) | {"duckdb": version("duckdb"), "polars": version("polars")}
    with tempfile.TemporaryDirectory(prefix="esformat-sql-") as folder:
        asked = Asked(Path(folder), load(args.events, args.cache))
        try:
            questions = measure(asked, args.repeats)
        finally:
            asked.close()
    run = {"events": args.events, "environment": environment, "sizes": asked.sizes, "questions": questions}
    if not args.write_docs:
        report("benchmarks.sql", tables(run), environment, write_docs=False)
        return
    (RESULTS / f"sql-{args.events}.json").write_text(json.dumps(run, indent=1) + "\n")
    runs = [json.loads(path.read_text()) for path in RESULTS.glob("sql-*.json")]
    shown = [table for each in sorted(runs, key=lambda run: int(run["events"])) for table in tables(each)]
    report("benchmarks.sql", shown, environment, write_docs=True)


if __name__ == "__main__":
    main()
