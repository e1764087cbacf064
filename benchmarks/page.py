"""Response times of the web page: python -m benchmarks.page [--segments 1000] [--write-docs]

A separate process serves, read-only, a catalog whose segments are not merged. It gets the requests of Explore over
HTTP: a histogram of 80 bars, and the newest 200 rows. If a browser is installed, the page is then loaded in it.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import aggregator
from aggregator.base.gc_pause import gc_paused
from aggregator.policy import Tuning
from benchmarks.environment import describe
from benchmarks.section import VERDICT_HEADINGS, Headed, Target, report, verdicts
from esformat.parts import hide_pandas

RESULT = Path(__file__).parent / "results" / "page.json"
SHAPES = {"follow": "segments follow each other in time", "overlap": "each segment spans all of the time"}
START_US, STEP_US = 1_700_000_000_000_000, 100_000
_TYPES = pa.array(["page", "click", "purchase", "signup", "refund"])
_BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
_HISTOGRAM_S, _ROWS_S, _LOAD_S, _LOAD_BYTES = 0.5, 0.2, 1.0, 300_000
_SETTLED_S = 3.0
"""Seconds after a start until segments are open."""
_STATEMENT = {"query": "SELECT FROM topic = clicks"}
_ASKED: dict[str, tuple[str, dict[str, Any] | None]] = {
    "histogram of a topic": ("v1/topics/clicks/histogram?buckets=80", None),
    "histogram of a statement": ("v1/histogram", {**_STATEMENT, "buckets": 80}),
    "histogram of a part": ("v1/topics/clicks/histogram?buckets=80&start={start}&end={end}", None),
    "first rows of a topic": ("v1/topics/clicks/events?reverse=true&limit=200", None),
    "first rows of a statement": ("v1/query", {**_STATEMENT, "reverse": True, "limit": 200}),
}


def fill(root: Path, events: int, segments: int, shape: str) -> None:
    """Fill a catalog: one topic with an index, in the given number of segments."""
    size = events // segments
    rng = np.random.default_rng(1)
    with aggregator.open(root, durability="none", tuning=replace(Tuning(), fan_in=1 << 30)) as catalog:
        topic = catalog.create_topic("clicks", indexes=["type"], roll={"rows": 1 << 40, "age": "1d"})
        for number in range(segments):
            places = np.arange(size)
            places = places * segments + number if shape == "overlap" else number * size + places
            table = pa.table({
                "space": pa.array(rng.zipf(1.3, size) % 100_000).cast(pa.string()),
                "timestamp": START_US + places * STEP_US,
                "type": _TYPES.take(pa.array(rng.choice(5, size, p=[0.62, 0.25, 0.09, 0.03, 0.01]))),
            })  # fmt: skip
            topic.append(table)
            catalog.seal("clicks")
        if len(topic.segments()) != segments:
            raise RuntimeError(f"there are {len(topic.segments())} segments, not {segments}")


def _serve(root: Path, told: Connection) -> None:
    hide_pandas()  # as in `aggregator serve`
    with gc_paused():  # likewise
        from aggregator.server import RunningServer, Settings
    settings = Settings()
    settings = replace(settings, http=replace(settings.http, bind="127.0.0.1:0"))
    with aggregator.open(root, read_only=True) as catalog, RunningServer(catalog, settings) as server:
        gc.freeze()  # likewise
        told.send(server.url)
        while told.recv():
            told.send(time.process_time())


@contextmanager
def serving(root: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """A read-only server for a catalog: its address, and a function that returns its processor seconds."""

    def spent() -> float:
        ours.send(True)
        return float(ours.recv())

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(root, theirs))
    process.start()
    try:
        yield ours.recv(), spent
        ours.send(False)
    finally:
        process.join(30)
        process.kill()


def ask(url: str, body: Mapping[str, Any] | None) -> tuple[float, bytes]:
    """Send a request; return the seconds it took, and the response body."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Accept": "application/x-ndjson"} if "histogram" not in url else {}
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: bytes = answer.read()
    return time.perf_counter() - began, found


def part(events: int, turn: int) -> tuple[dict[str, int], int]:
    """A different time range for each turn, and the number of its events."""
    first, last = events // 10 + 777 * turn, events - 333 * turn
    return {"start": START_US + first * STEP_US, "end": START_US + last * STEP_US}, last - first


def measure(root: Path, events: int, repeats: int) -> dict[str, dict[str, float]]:
    """Measure the seconds of each request: the first after a start, immediately and a moment later; the median and the
    best of some repeats; and processor time.
    """
    found = {}
    for name, (path, body) in _ASKED.items():
        turns = iter(range(events))  # never the same range: the server caches counts

        def answered(url: str, name: str = name, path: str = path, body: Any = body, turns: Any = turns) -> float:
            span, within = part(events, next(turns))
            took, answer = ask(f"{url}/{path.format(**span)}", body)
            count = json.loads(answer)["events"] if "histogram" in name else answer.count(b"\n")
            if count != (200 if "rows" in name else within if "part" in name else events):
                raise RuntimeError(f"{name}: {count:,} events")
            return took

        with serving(root) as (url, spent):
            time.sleep(_SETTLED_S)
            later = answered(url)
        with serving(root) as (url, spent):
            ask(f"{url}/v1/topics", None)
            first = answered(url)
            before = spent()
            taken = [answered(url) for _ in range(repeats)]
            processor = (spent() - before) / repeats
        found[name] = {"first": first, "later": later, "median": median(taken), "best": min(taken)}
        found[name]["processor"] = processor
    return found


def load(root: Path, repeats: int) -> dict[str, float] | None:
    """Bytes and seconds of a first page load with an empty browser cache; None if no browser is installed."""
    program = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        program = None
    if program is None:
        return None
    taken, sizes = [], []
    with serving(root) as (url, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(repeats):
            page: Any = browser.new_context().new_page()
            finished: list[Any] = []
            page.on("requestfinished", partial(_keep, finished))
            began = time.perf_counter()
            page.goto(f"{url}/")
            page.locator(".topic-card").first.wait_for()
            taken.append(time.perf_counter() - began)
            each = [request.sizes() for request in finished]
            sizes.append(sum(size["responseBodySize"] + size["responseHeadersSize"] for size in each))
            page.context.close()
        browser.close()
    return {"bytes": max(sizes), "median": median(taken), "best": min(taken)}


def _keep(finished: list[Any], request: Any) -> None:
    finished.append(request)


def targets() -> list[Target]:
    """The targets, for segments of both shapes."""
    bars = {name: _HISTOGRAM_S if "histogram" in name else _ROWS_S for name in _ASKED}
    asked = [Target(f"{name}, {told}", f"≤ {bar} s", partial(_of, names=(shape, name, "median")), bar, False,
                    "{:.2f} s")
             for shape, told in (("follow", "one segment after the other"), ("overlap", "all at the same time"))
             for name, bar in bars.items()]  # fmt: skip
    size, took = (partial(_of, names=("load", name)) for name in ("bytes", "median"))
    return [
        *asked, Target("first load", "≤ 300 KB", size, _LOAD_BYTES, False, "{:,.0f} bytes"),
        Target("first load", f"≤ {_LOAD_S:g} s", took, _LOAD_S, False, "{:.2f} s"),
    ]  # fmt: skip


def _of(works: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    found: Any = works
    for name in names:
        found = None if found is None else found.get(name)
    return None if found is None else float(found)


def tables(works: Mapping[str, Any]) -> list[Headed]:
    """Tables of the verdicts, and of the seconds of each request by shape."""
    shapes = [shape for shape in SHAPES if shape in works]
    rows = [(name, *(" / ".join(_seconds(works[shape][name].get(each))
                     for each in ("median", "best", "first", "later", "processor"))
                     for shape in shapes)) for name in _ASKED if shapes]  # fmt: skip
    told = "median / best / first since the start, at once / after a moment / processor time, s"
    headings = (told, *(SHAPES[shape] for shape in shapes))
    return [(VERDICT_HEADINGS, verdicts(targets(), works)), (headings, rows)]


def _seconds(taken: float | None) -> str:
    return "not measured" if taken is None else f"{taken:.2f}"


def main() -> int:
    """Measure, and return 0. An incomplete answer raises."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--segments", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", default=",".join(SHAPES), help=f"of {', '.join(SHAPES)}; empty: show earlier results")
    parser.add_argument("--write-docs", action="store_true", help="rewrite the section of docs/benchmarks.md")
    args = parser.parse_args()
    run = json.loads(RESULT.read_text()) if RESULT.exists() else {"works": {}}
    works: dict[str, Any] = run["works"]
    shapes = [shape for shape in args.only.split(",") if shape]
    environment = describe(()) if shapes else run["environment"]
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        for shape in shapes:
            root = Path(folder) / shape
            fill(root, args.events, args.segments, shape)
            works[shape] = measure(root, args.events, args.repeats)
            works["load"] = load(root, args.repeats)
            RESULT.write_text(json.dumps({"environment": environment, "works": works}, indent=1) + "\n")
            shutil.rmtree(root)
    report("benchmarks.page", tables(works), environment, write_docs=args.write_docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
