"""Files of up to 100 M events: `python -m benchmarks.large [--only growth,newest] [--write-docs]`.

The files consist of pieces of a million clicks, each with different customers, so that a space has as many events in a
large file as in a small one. The correct answers are taken from the pieces before they are written. All files together
take about 20 GB; `--folder FOLDER` keeps them for the next run.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.progress import track

import esformat
from benchmarks import instructions
from benchmarks.contenders import esformat as ours
from benchmarks.contenders import kv, sqlite
from benchmarks.contenders import lmdb as lmdb_contender
from benchmarks.contenders.protocol import INDEXES, MAIN, Contender, Reader, Row, in_order
from benchmarks.dataset import LATEST, POINT_INDEX
from benchmarks.environment import describe
from benchmarks.generate import generate
from benchmarks.measure import Figure, WrongAnswerError, measure_bulk, measure_points
from benchmarks.section import VERDICT_HEADINGS, Target, machine, rewrite, table, verdicts
from esformat.cli.where import Condition, Filtered
from esformat.tools import erase

RESULT = Path(__file__).parent / "results" / "large.json"
MILLION = 1_000_000
SIZES = (1, 10, 30, 100)
"""Sizes of the files in millions of events."""
WITH_PEERS = 30
WITH_PATHS = 10
WITH_ERASING = 5
MEMORY = "512MiB"
WARM_UP = 50
COUNTED_QUESTIONS = 100
RARE_URL, NO_URL = "/account/199", "/account/none"
"""A URL that one event in 8,000 has, and one that none has."""
PEERS: Mapping[str, Contender] = {"lmdb": lmdb_contender.CONTENDER, "sqlite": sqlite.CONTENDER}

# ------------------------------------------------------------ files


def piece_of(number: int) -> pa.Table:
    """The unsorted events of a piece. Its spaces sort after those of earlier pieces."""
    events = generate(MILLION, 7 + number)
    spaces = pc.replace_substring(events["space"], "customer-", f"customer-{number:03d}-")
    return events.set_column(events.column_names.index("space"), "space", spaces)


class Files:
    """The files of one run, and the correct answers."""

    def __init__(self, folder: Path, questions: int, largest: int) -> None:
        """Write the files unless they exist. largest: size of the largest file, in millions of events."""
        self.folder, self.sizes = folder, [size for size in SIZES if size <= largest]
        self._questions = questions
        facts = folder / "facts.json"
        if not facts.exists():
            facts.write_text(json.dumps(self._write()))
        self.facts: dict[str, Any] = json.loads(facts.read_text())

    def segment(self, size: int) -> Path:
        """The path of the file with `size` million events."""
        return self.folder / str(size) / ours.FILE

    def asked(self, size: int) -> dict[str, list[Row]]:
        """The spaces to ask a file about, in random order, and their histories."""
        with pa.OSFile(str(self.folder / f"asked-{size}.arrow"), "rb") as source:
            rows = pa.ipc.open_file(source).read_all().to_pylist()
        histories: dict[str, list[Row]] = {}
        for row in rows:
            histories.setdefault(row["space"], []).append((row["timestamp"], row["data"], row["type"], row["country"]))
        spaces = np.random.default_rng(5).permutation(sorted(histories)).tolist()
        return {space: histories[space] for space in spaces}

    def _write(self) -> dict[str, Any]:
        shutil.rmtree(self.folder, ignore_errors=True)
        sizes = [*self.sizes, *({WITH_ERASING} - {*self.sizes})]
        for size in sizes:
            (self.folder / str(size)).mkdir(parents=True)
        writers = {s: esformat.create(self.segment(s), indexes=list(INDEXES), memory=MEMORY) for s in sizes}
        peers = [_Lmdb(self.folder), _Sqlite(self.folder)] if WITH_PEERS in sizes else []
        asked: dict[int, list[pa.Table]] = {size: [] for size in self.sizes}
        times = dict.fromkeys(map(str, sizes), 0)
        urls = {RARE_URL: 0, NO_URL: 0}
        for number in track(range(max(sizes)), "writing", console=Console(stderr=True)):
            events = piece_of(number)
            ordered = in_order(events)
            for size in sizes:
                if number < size:
                    writers[size].add_table(events)
                    times[str(size)] ^= int(np.bitwise_xor.reduce(events["timestamp"].cast(pa.int64()).to_numpy()))
                if number == size - 1:
                    writers[size].finish()
            for size, tables in asked.items():
                if number < size:
                    tables.append(_chosen(ordered, -(-self._questions // size), number))
            if number < WITH_PATHS:
                for url in urls:
                    urls[url] += pc.sum(pc.match_substring(events["data"], f'"{url}"')).as_py()
            if number < WITH_PEERS:
                for peer in peers:
                    peer.add(ordered)
        for peer in peers:
            peer.close()
        for size, tables in asked.items():
            rows = pa.concat_tables(tables)
            rows = rows.set_column(1, "timestamp", rows["timestamp"].cast(pa.int64()))
            path = str(self.folder / f"asked-{size}.arrow")
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
        return {"times": times, "urls": urls}


def _chosen(ordered: pa.Table, count: int, seed: int) -> pa.Table:
    """The events of `count` randomly drawn spaces of a piece."""
    spaces = ordered["space"].unique()
    drawn = np.random.default_rng(seed).choice(len(spaces), count, replace=False)
    return ordered.filter(pc.is_in(ordered["space"], spaces.take(pa.array(drawn))))


class _Lmdb:
    """An LMDB file of the events, without index entries, which the newest events of a space do not need."""

    def __init__(self, folder: Path) -> None:
        (folder / "lmdb").mkdir()
        self._env = lmdb.open(
            str(folder / "lmdb" / lmdb_contender.FILE),
            map_size=1 << 36, subdir=False, max_dbs=1 + len(INDEXES), sync=False, metasync=False, lock=False,
        )  # fmt: skip
        self._events = self._env.open_db(lmdb_contender.EVENTS)
        for name in INDEXES:  # empty, because a reader opens them
            self._env.open_db(name.encode(), dupsort=True, dupfixed=True)

    def add(self, ordered: pa.Table) -> None:
        entries = kv.encode(ordered)
        with self._env.begin(write=True, db=self._events) as txn, txn.cursor() as cursor:
            cursor.putmulti(kv.items(entries.keys, entries.values), append=True)

    def close(self) -> None:
        self._env.sync(True)
        self._env.close()


class _Sqlite:
    """An SQLite file of the events, with one index, on space and time."""

    def __init__(self, folder: Path) -> None:
        (folder / "sqlite").mkdir()
        self._connection = sqlite3.connect(folder / "sqlite" / sqlite.FILE, isolation_level=None)
        for pragma in sqlite.WRITING:
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute("BEGIN")
        self._connection.execute(
            "CREATE TABLE events (space TEXT, timestamp INTEGER, data BLOB, type TEXT, country TEXT) STRICT"
        )

    def add(self, ordered: pa.Table) -> None:
        self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", sqlite.tuples(ordered))

    def close(self) -> None:
        self._connection.execute("CREATE INDEX by_space ON events (space, timestamp)")
        self._connection.execute("COMMIT")
        self._connection.close()


# ------------------------------------------------------------ works


def growth(files: Files, _: int) -> dict[str, Any]:
    """Ask about each space once, and open the file for each, by millions of events; count instructions if possible."""
    found: dict[str, Any] = {}
    counts = instructions.counted("benchmarks.large", files.folder) if shutil.which("valgrind") else {}
    for size in files.sizes:
        into_memory(files.segment(size))
        asked = files.asked(size)
        found[str(size)] = {"MB": round(files.segment(size).stat().st_size / MILLION, 1)} | {
            work: _micros({"esformat": (ours.CONTENDER, files.folder / str(size))}, ask, asked, right)["esformat"]
            for work, (ask, right) in _ASKED.items()
        }
        found[str(size)]["open"] = _opening(files.segment(size), asked)
        found[str(size)]["instructions"] = {work: counts[f"{work} {size}"] for work in COUNTED if counts}
    return found


COUNTED: Mapping[str, Callable[[Path, esformat.Segment, str], object]] = {
    "history": lambda _, segment, space: list(segment.find(space).scan()),
    "newest ten": lambda _, segment, space: list(segment.find(space).scan(reverse=True, limit=LATEST)),
    "index value": lambda _, segment, space: list(segment.find(space).scan_index(*POINT_INDEX, reverse=True)),
    "open": lambda path, _, space: _first_history(path, space),
}
"""Questions to a file without caches, so that small files have no advantage, on a simulated processor."""


def _first_history(path: Path, space: str) -> list[esformat.Event]:
    with esformat.open(path) as segment:
        return list(segment.find(space).scan())


def count_instructions(folder: Path) -> None:
    """Run the works that `instructions.counted` counts. All files are asked about spaces of the smallest one."""
    sizes = [size for size in SIZES if (folder / f"asked-{size}.arrow").exists()]
    files = Files(folder, COUNTED_QUESTIONS, max(sizes))
    works: dict[str, tuple[Callable[[], object], int]] = {}
    spaces = list(files.asked(sizes[0]))[: 2 * COUNTED_QUESTIONS]
    for size in sizes:
        path = files.segment(size)
        segment = esformat.open(path, cache_bytes=0)
        for name, ask in COUNTED.items():

            def work(
                path: Path = path, segment: esformat.Segment = segment, ask: Any = ask, low: int = COUNTED_QUESTIONS
            ) -> None:
                for space in spaces[low:]:
                    ask(path, segment, space)

            work(low=len(spaces) - 2)  # so that one-time work is not counted
            works[f"{name} {size}"] = (work, len(spaces) - COUNTED_QUESTIONS)
    instructions.measure(works)


def newest(files: Files, _: int) -> dict[str, Any]:
    """Read the newest ten events of each space once, taking turns with the peers."""
    places = {"esformat": (ours.CONTENDER, files.folder / str(WITH_PEERS))}
    places |= {name: (contender, files.folder / name) for name, contender in PEERS.items()}
    for _, folder in places.values():
        for path in folder.iterdir():
            into_memory(path)
    return _micros(places, *_ASKED["newest ten"][:1], files.asked(WITH_PEERS), _ASKED["newest ten"][1])


def _history(reader: Reader, space: str) -> Any:
    return reader.history(space)


def _latest(reader: Reader, space: str) -> Any:
    return reader.latest(space, LATEST)


def _indexed(reader: Reader, space: str) -> Any:
    return reader.indexed(space, *POINT_INDEX)


Ask = Callable[[Reader, str], Any]
Right = Callable[[list[Row]], list[Row]]
_ASKED: Mapping[str, tuple[Ask, Right]] = {
    "history": (_history, lambda rows: rows),
    "newest ten": (_latest, lambda rows: rows[: -LATEST - 1 : -1]),
    "index value": (_indexed, lambda rows: [row for row in reversed(rows) if row[2] == POINT_INDEX[1]]),
}


def _micros(
    places: Mapping[str, tuple[Contender, Path]], ask: Ask, asked: Mapping[str, list[Row]], right: Right
) -> dict[str, list[float]]:
    """Median and 99th percentile of each contender's time for an answer, in µs; each space is asked once."""
    readers = {name: contender.open(folder, MAIN) for name, (contender, folder) in places.items()}
    try:
        spaces = list(asked)

        def check(name: str, space: str, answer: Any) -> None:
            if sorted(readers[name].rows(answer)) != sorted(right(asked[space])):
                raise WrongAnswerError(f"{name}: {space}")

        questions = {name: lambda space, reader=reader: ask(reader, space) for name, reader in readers.items()}
        measure_points(questions, spaces[:WARM_UP], check)
        figures = measure_points(questions, spaces[WARM_UP:], check)
    finally:
        for reader in readers.values():
            reader.close()
    return {name: _typical(figure) for name, figure in figures.items()}


def _typical(figure: Figure) -> list[float]:
    return [round(_median(figure), 2), round(figure.p99, 2)]


def _median(figure: Figure) -> float:
    """The median of a figure. Raises WrongAnswerError if it is missing."""
    if figure.missing:
        raise WrongAnswerError(figure.missing)
    return figure.median


def _opening(path: Path, asked: Mapping[str, list[Row]]) -> list[float]:
    """Median and 99th percentile of opening a file and reading one history, in µs."""

    def ask(space: str) -> list[esformat.Event]:
        return _first_history(path, space)

    def check(_: str, space: str, answer: list[esformat.Event]) -> None:
        if [event.timestamp for event in answer] != [row[0] for row in asked[space]]:
            raise WrongAnswerError(space)

    return _typical(measure_points({"": ask}, list(asked), check)[""])


def scans(files: Files, repeats: int) -> dict[str, Any]:
    """Milliseconds to the first event of a full scan, and M rows per second of scans of all columns and of one."""
    size = WITH_PEERS if WITH_PEERS in files.sizes else files.sizes[-1]
    path = files.segment(size)
    into_memory(path)

    def first() -> None:
        with esformat.open(path) as segment:
            next(iter(segment.scan()))

    def first_batch() -> None:
        with esformat.open(path) as segment:
            next(segment.scan().batches())

    firsts = measure_bulk({"event": first, "batch": first_batch}, lambda *_: None, 5 * repeats)
    found: dict[str, Any] = {"events": size * MILLION}
    found |= {f"first {name}, ms": round(_median(figure) * 1000, 2) for name, figure in firsts.items()}
    for columns in (None, ["timestamp"], ["type"], ["data"]):

        def scan(columns: list[str] | None = columns) -> tuple[int, int]:
            rows = times = 0
            with esformat.open(path) as segment:
                for batch in segment.scan(columns=columns).batches():
                    rows += len(batch)
                    if columns in (None, ["timestamp"]):
                        times ^= int(np.bitwise_xor.reduce(batch.column("timestamp").cast(pa.int64()).to_numpy()))
            return rows, times

        expected = size * MILLION, files.facts["times"][str(size)] if columns in (None, ["timestamp"]) else 0
        found[f"scan of {columns[0] if columns else 'every column'}"] = _rate(scan, expected, size * MILLION, repeats)
    return found


def _rate(work: Callable[[], Any], expected: Any, rows: int, repeats: int) -> list[float]:
    """Median M rows per second, and per processor second."""
    taken, used = [], []
    for _ in range(repeats):
        gc.collect()
        began, before = time.perf_counter(), time.process_time()
        answer = work()
        taken.append(time.perf_counter() - began)
        used.append(time.process_time() - before)
        if answer != expected:
            raise WrongAnswerError(f"{answer} instead of {expected}")
    return [round(rows / MILLION / median(seconds), 2) for seconds in (taken, used)]


def paths(files: Files, repeats: int) -> dict[str, Any]:
    """M rows per second that `esdb scan --where '$.url = TEXT' --count` scans, without its start."""
    path, found = files.segment(WITH_PATHS), {}
    into_memory(path)
    for name, url in {"none matches": NO_URL, "1 in 8,000": RARE_URL}.items():
        condition = Condition(f"$.url = {url}", "$.url", "=", (url,))

        def count(condition: Condition = condition) -> int:
            with esformat.open(path) as segment:
                return Filtered(segment.scan(columns=["timestamp", "data"]), [condition], ["timestamp"], None).count()

        found[name] = _rate(count, files.facts["urls"][url], WITH_PATHS * MILLION, repeats + 2)
    return found


def erasing(files: Files, repeats: int) -> dict[str, Any]:
    """Erase a space from a file, including checks, compared with copying the file; both synced."""
    path, out = files.segment(WITH_ERASING), files.folder / "without.esdb"
    with esformat.open(path) as segment:
        spaces = list(segment.spaces())
    space = spaces[len(spaces) // 2]

    def erase_one() -> None:
        if not erase(path, out, [space]).ok:
            raise WrongAnswerError(space)

    def copy() -> None:
        shutil.copyfile(path, out)
        descriptor = os.open(out, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    def prepare(_: str) -> None:
        out.unlink(missing_ok=True)
        os.sync()

    figures = measure_bulk({"erase": erase_one, "copy": copy}, lambda *_: None, repeats + 4, prepare)
    out.unlink()
    found = {f"{name}, ms": round(_median(figure) * 1000, 1) for name, figure in figures.items()}
    return {"events": WITH_ERASING * MILLION, "MB": round(path.stat().st_size / MILLION, 1)} | found


def into_memory(path: Path) -> None:
    """Read a file once, so that it is in the page cache."""
    with path.open("rb", buffering=0) as file:
        while file.read(16 << 20):
            pass


WORKS: Mapping[str, Callable[[Files, int], dict[str, Any]]] = {
    "growth": growth, "newest": newest, "scans": scans, "paths": paths, "erasing": erasing,
}  # fmt: skip


# ------------------------------------------------------------ the page


def _of(work: str, key: str, place: int | None = None) -> Callable[[Mapping[str, Any]], float | None]:
    def value(works: Mapping[str, Any]) -> float | None:
        found = works.get(work, {}).get(key)
        return found if found is None or place is None else float(found[place])

    return value


def _grown(work: str) -> Callable[[Mapping[str, Any]], float | None]:
    """Return a function for the ratio of a question's instructions in the largest file to those in the smallest."""

    def value(works: Mapping[str, Any]) -> float | None:
        sizes = sorted(works.get("growth", ()), key=int)
        counts = [works["growth"][size]["instructions"].get(work) for size in sizes]
        return counts[-1] / counts[0] if len(sizes) > 1 and None not in counts else None

    return value


def _of_copying(works: Mapping[str, Any]) -> float | None:
    found = works.get("erasing")
    return found and found["erase, ms"] / found["copy, ms"]


TARGETS = (
    *(
        Target(
            "growth",
            f"{work}: instructions in the largest file, of the smallest's ≤ 2",
            _grown(work),
            2,
            False,
            "{:.2f} ×",
        )
        for work in COUNTED
    ),
    Target("newest", "newest ten of a space at 30 M: ≤ 60 µs", _of("newest", "esformat", 0), 60, False, "{:.1f} µs"),
    Target("newest", "its 99th percentile: ≤ 150 µs", _of("newest", "esformat", 1), 150, False, "{:.0f} µs"),
    Target("scans", "first event of a scan: ≤ 5 ms", _of("scans", "first event, ms"), 5, False, "{:.2f} ms"),
    Target("scans", "every column: ≥ 20 M rows/s", _of("scans", "scan of every column", 0), 20, True, "{:.1f} M/s"),
    Target("scans", "one column: ≥ 200 M rows/s", _of("scans", "scan of type", 0), 200, True, "{:.0f} M/s"),
    Target("paths", "none matches: ≥ 50 M rows/s", _of("paths", "none matches", 0), 50, True, "{:.1f} M/s"),
    Target("paths", "1 in 8,000: ≥ 50 M rows/s", _of("paths", "1 in 8,000", 0), 50, True, "{:.1f} M/s"),
    Target("erasing", "≤ 3 × copying the file", _of_copying, 3, False, "{:.2f} ×"),
)


def page(run: dict[str, Any]) -> list[str]:
    """The parts of the generated section."""
    works = run["works"]
    parts = [table(VERDICT_HEADINGS, verdicts((target for target in TARGETS if target.work in works), works))]
    if "growth" in works:
        sizes = sorted(works["growth"], key=int)
        rows = [("size, MB", *(f"{works['growth'][size]['MB']:,}" for size in sizes))]
        rows += [(work, *(_pair(works["growth"][size][work]) for size in sizes)) for work in (*_ASKED, "open")]
        for work in COUNTED if works["growth"][sizes[0]]["instructions"] else ():
            counts = (works["growth"][size]["instructions"][work] for size in sizes)
            rows.append((f"{work}, without caches: instructions", *(f"{count:,}" for count in counts)))
        parts.append(table(("median / p99, µs, by M events", *sizes), rows))
    if "newest" in works:
        parts.append(table((f"{WITH_PEERS} M events", *works["newest"]),
                           [("newest ten, median / p99, µs", *map(_pair, works["newest"].values()))]))  # fmt: skip
    rates = [(name, *map(str, value)) for work in ("scans", "paths") for name, value in works.get(work, {}).items()
             if isinstance(value, list)]  # fmt: skip
    if rates:
        parts.append(table(("M rows/s", "by the clock", "by processor time"), rates))
    for work in ("scans", "erasing"):
        single = {name: value for name, value in works.get(work, {}).items() if not isinstance(value, list)}
        if single:
            parts.append(f"{work}: {', '.join(f'{name} {value:,.4g}' for name, value in single.items())}.")
    return [*parts, machine(run["environment"])]


def _pair(figures: Sequence[float]) -> str:
    return f"{figures[0]:,.1f} / {figures[1]:,.0f}"


def main() -> int:
    """Measure, and return 0. A wrong answer raises."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WORKS), help=f"works to run, of {', '.join(WORKS)}")
    parser.add_argument(
        "--largest", type=int, default=max(SIZES), help="size of the largest file, in millions of events"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--questions", type=int, default=3000)
    parser.add_argument("--folder", type=Path, help="keep the files there, and reuse existing ones")
    parser.add_argument("--write-docs", action="store_true", help="rewrite the section of docs/benchmarks.md")
    parser.add_argument("--measured", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measured:
        count_instructions(args.measured)
        return 0
    run = json.loads(RESULT.read_text()) if RESULT.exists() else {"works": {}}
    run["environment"] = describe(())
    for folder in _folders(args.folder):
        files = Files(folder, args.questions, args.largest)
        for name in [name.strip() for name in args.only.split(",") if name.strip()]:
            run["works"][name] = WORKS[name](files, args.repeats)
            print(name, json.dumps(run["works"][name]), flush=True)
            RESULT.write_text(json.dumps(run, indent=1) + "\n")
    print("\n\n".join(page(run)))
    if args.write_docs:
        rewrite("benchmarks.large", page(run))
    return 0


def _folders(kept: Path | None) -> Iterator[Path]:
    """Yield one folder: the given one, or a temporary one that is deleted afterwards."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="esformat-large-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
