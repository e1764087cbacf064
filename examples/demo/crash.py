"""The second half of the demo: events as a stream, a crash in the middle, retention, compaction, erasure, a server.

The events come from .esdb files, such as those that the first half of the demo wrote. The process that is killed is
`aggregator append`.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import aggregator
import esformat
from aggregator import AggregatorError, CatalogNotFoundError, OverloadedError, Topic
from examples.demo.server import serve_page, show_server

CATALOG = "aggregator-demo"
STREAM = "stream.parquet"
BATCHES = 60  # of the stream that crashes; the catalog remembers the last 64 of a producer
THREADS = 4
LOAD_BATCH_ROWS = 1000
ROLL_ROWS = 5_000
HISTORIES = 200  # most histories to read for the median
_PAGE = "{} shows it in a browser, until Ctrl-C here: who did most yesterday, and what she did last"
COMMAND = (sys.executable, "-m", "aggregator")


def run_demo(folder: Path, inputs: Sequence[Path] = (), *, serve: bool = False) -> None:
    """Demonstrate the aggregator with the events of `inputs`, by default of the .esdb files in `folder`.

    serve: serve the catalog to browsers at the end, until Ctrl-C.

    Raises CatalogNotFoundError if there is no .esdb file, OSError, esformat.EsdbError.
    """
    files = sorted(inputs or folder.glob("*.esdb"), key=lambda path: path.stat().st_size)
    if not files:
        raise CatalogNotFoundError(
            "no .esdb files are there", path=str(folder), hint="run `python -m examples.demo files` first"
        )
    root = folder / CATALOG
    if (root / "manifest.sqlite").exists():  # from the last run
        shutil.rmtree(root)
    console = Console()
    _heading(console, "The same events as a stream, and a crash")
    stream = _by_time(files[0])
    with aggregator.open(root) as catalog:
        catalog.create_topic("stream", indexes=_indexes(files[0]))
    pa.parquet.write_table(stream, root / STREAM)
    acknowledged = _ingest_and_kill(console, root, stream)
    _reopen(console, root, stream, acknowledged)
    _heading(console, "Retention, merging and erasure")
    spaces = _keep_house(console, root, files[-1])
    _heading(console, "Over HTTP")
    with console.status("Asking over HTTP …"):
        good = show_server(
            root, "clicks", spaces, COMMAND, lambda text: _code(console, text), lambda t: _tell(console, t)
        )
    if not good:
        raise AggregatorError("the log is not complete", path=str(root))
    _heading(console, "Try it yourself")
    for line in ("stats", "scan", "tail"):
        words = [line, str(root), *(["clicks"] if line != "stats" else [])]
        console.print(Text(f"  {_command()} {shlex.join(words)}"), soft_wrap=True)
    console.print(Text(f"  {_command()} serve {shlex.quote(str(root))}"), soft_wrap=True)
    if serve:
        serve_page(root, COMMAND, lambda url: _tell(console, _PAGE.format(url), "bold green"))
    else:
        _tell(console, "then open http://127.0.0.1:3030 in a browser")


# ------------------------------------------------------------ events


def _by_time(path: Path) -> pa.Table:
    """The events of a file, sorted by time."""
    with esformat.open(path) as segment:
        return segment.scan().to_table().sort_by("timestamp")


def _indexes(path: Path) -> tuple[str, ...]:
    with esformat.open(path) as segment:
        return tuple(segment.indexes)


# ------------------------------------------------------------ the crash


def _ingest_and_kill(console: Console, root: Path, events: pa.Table) -> list[dict[str, Any]]:
    """Run a process that appends, kill it after some receipts, and return the receipts that it printed."""
    process = subprocess.Popen(_append(root, events.num_rows), stdout=subprocess.PIPE)  # noqa: S603 - our own command
    assert process.stdout is not None
    lines = []
    with process:
        for line in process.stdout:
            lines.append(line)
            if len(lines) == BATCHES // 3:
                process.send_signal(signal.SIGKILL)
    receipts = [json.loads(line) for line in lines if line.endswith(b"\n")]
    rows = sum(receipt["last"] - receipt["first"] + 1 for receipt in receipts)
    _code(console, "aggregator append … --producer demo --receipts   # and kill -9")
    killed = "killed" if process.returncode == -signal.SIGKILL else "done before it could be killed"
    told = f"{killed}; {len(receipts)} batches had been acknowledged, {rows:,} of {events.num_rows:,} events"
    _tell(console, f"process {process.pid} {told}")
    return receipts


def _append(root: Path, rows: int) -> list[str]:
    """The command that appends the stream."""
    options = ["--producer", "demo", "--batch-rows", str(max(1, -(-rows // BATCHES))), "--receipts"]
    return [*COMMAND, "append", str(root), "stream", str(root / STREAM), *options]


def _reopen(console: Console, root: Path, events: pa.Table, receipts: list[dict[str, Any]]) -> None:
    """Reopen the catalog, compare its events with the acknowledged ones, and append the rest."""
    began = perf_counter()
    with aggregator.open(root) as catalog:
        opened = perf_counter() - began
        topic = catalog.topic("stream")
        end = max((receipt["last"] + 1 for receipt in receipts), default=0)
        found = topic.read("0").to_table()
        same = found.num_rows >= end and _same(found.slice(0, end), events.slice(0, end))
        _code(console, f'catalog = aggregator.open("{root}")   # {_seconds(opened)}, the log is read back')
        verdict = "every acknowledged event is there, unchanged" if same else "ACKNOWLEDGED EVENTS ARE MISSING"
        more = found.num_rows - end
        besides = f", and {more:,} of a batch that was not acknowledged any more" if more else ""
        _tell(console, f"{found.num_rows:,} events: {verdict}{besides}", "bold green" if same else "bold red")
        catalog.seal()
    again = subprocess.run(_append(root, events.num_rows), stdout=subprocess.PIPE, check=True)  # noqa: S603 - our own command
    known = sum(json.loads(line)["duplicate"] for line in again.stdout.splitlines())
    with aggregator.open(root) as catalog:
        topic = catalog.topic("stream")
        stored = topic.scan().count()
        _code(console, "aggregator append …   # the same command again")
        _tell(console, f"{known} batches were already stored; {stored:,} events, none lost, none duplicated")
        facts = topic.stats()
        space = _largest_space(events)
        history = list(topic.scan(space=space, reverse=True, limit=3, columns=["timestamp"]))
        _code(console, f"topic.scan(space={space!r}, reverse=True)")
        newest = ", ".join(str(np.datetime64(event.timestamp, "us")).rstrip("0").rstrip(".") for event in history)
        all_of_it = topic.scan(space=space).count()
        parts = f"{facts['sealed_rows']:,} sealed and {facts['unsealed_rows']:,} unsealed ones"
        _tell(console, f"{all_of_it:,} events of {parts}, newest first: {newest} …")


def _same(found: pa.Table, sent: pa.Table) -> bool:
    names = [name for name in sent.schema.names if name in found.schema.names]
    return len(names) == sent.num_columns and all(
        found[name].cast(sent[name].type).combine_chunks().equals(sent[name].combine_chunks()) for name in names
    )


def _largest_space(events: pa.Table) -> str:
    counts = events["space"].value_counts()
    largest: str = max(counts.to_pylist(), key=lambda each: each["counts"])["values"]
    return largest


# ------------------------------------------------------------ keeping house


def _keep_house(console: Console, root: Path, path: Path) -> list[str]:
    """Append a larger load, run retention, compaction and erasure on it, and return some of the remaining spaces."""
    with console.status(f"Reading {path.name} …"):
        events = _by_time(path)
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("clicks", indexes=_indexes(path), roll={"rows": ROLL_ROWS})
        board = _Board(topic, _some_spaces(events))
        with console.status(f"Appending {events.num_rows:,} events, {LOAD_BATCH_ROWS:,} synced at a time …"):
            took, p99_ms = _load(topic, events)
            catalog.seal("clicks")
            board.note("appended", took)
        with console.status("Retention, compaction, erasure …"):
            facts = topic.stats()
            half = facts["sealed_bytes"] // 2048 * 1024  # in whole KiB, as the page shows it
            topic.set_policy(retention={"bytes": half})
            board.time(f"kept to {half / 1e6:,.1f} MB", topic.retain)
            removed = facts["rows"] - topic.stats()["rows"]
            board.time("compacted", topic.compact)
            erased = _unlike_others(board.spaces, events)
            began = perf_counter()
            erasure = topic.erase(erased)
            hidden = perf_counter() - began
            board.time("a space erased", topic.compact)
            gone = topic.traces(erased).gone
        problems = len(catalog.problems())
    console.print(board.table)
    rate = f"{events.num_rows / took:,.0f} events/s over {THREADS} threads and partitions, each append synced to disk"
    _tell(console, f"{rate}; 99 of 100 waited less than {p99_ms:.1f} ms")
    _tell(console, f"retention removed the oldest {removed:,} events")
    trace = "no trace is left on disk" if gone else "SOMETHING IS LEFT ON DISK"
    _tell(console, f"{erasure.events:,} events of {erased} hidden within {_seconds(hidden)}; after compaction {trace}")
    _tell(console, f"problems found: {problems}")
    return [space for space in board.spaces if space != erased]


class _Board:
    """A table of the state of the topic after each step."""

    def __init__(self, topic: Topic, spaces: list[str]) -> None:
        self._topic, self.spaces = topic, spaces
        self.table = Table(box=box.SIMPLE_HEAD, header_style="bold")
        for name in ("", "took", "events", "segments", "on disk", "one history"):
            self.table.add_column(name, justify="right" if name else "left")

    def time(self, what: str, work: Callable[[], object]) -> None:
        """Do some work, and add a row with the time it took."""
        began = perf_counter()
        work()
        self.note(what, perf_counter() - began)

    def note(self, what: str, seconds: float) -> None:
        """Add a row with the current state of the topic."""
        facts = self._topic.stats()
        size = f"{facts['sealed_bytes'] / 1e6:,.1f} MB"
        history = _seconds(_history_seconds(self._topic, self.spaces))
        self.table.add_row(what, _seconds(seconds), f"{facts['rows']:,}", str(facts["segments"]), size, history)


def _load(topic: Topic, events: pa.Table) -> tuple[float, float]:
    """Append from several threads, each to its own partition; return the seconds, and the p99 latency in ms."""
    batches = [
        batch for whole in events.to_batches() for start in range(0, len(whole), LOAD_BATCH_ROWS)
        for batch in [whole.slice(start, LOAD_BATCH_ROWS)]
    ]  # fmt: skip
    waits: list[float] = []

    def work(thread: int) -> None:
        for batch in batches[thread::THREADS]:
            began = perf_counter()
            while True:
                try:
                    topic.append(batch, str(thread))
                    break
                except OverloadedError as error:
                    sleep(error.retry_after_s)
            waits.append(perf_counter() - began)

    began = perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    return perf_counter() - began, float(np.percentile(waits, 99)) * 1000


def _some_spaces(events: pa.Table) -> list[str]:
    """The spaces of the newest events, which retention keeps."""
    spaces: list[str] = events["space"].slice(max(0, events.num_rows - HISTORIES)).unique().to_pylist()
    return spaces


def _unlike_others(spaces: list[str], events: pa.Table) -> str:
    """Choose a space whose key is not part of another's: otherwise the search for its traces finds those, too."""
    known = events["space"].unique()
    lonely = (space for space in spaces if pc.sum(pc.match_substring(known, space)).as_py() == 1)
    return next(lonely, spaces[0])


def _history_seconds(topic: Topic, spaces: list[str]) -> float:
    """The median time to read the newest events of a space."""
    times = []
    for space in spaces:
        began = perf_counter()
        list(topic.scan(space=space, reverse=True, limit=10))
        times.append(perf_counter() - began)
    return float(np.median(times))


# ------------------------------------------------------------ screen


def _heading(console: Console, text: str) -> None:
    console.print()
    console.rule(Text(text, style="bold"), align="left", style="cyan")


def _code(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"), soft_wrap=True)


def _tell(console: Console, text: str, style: str = "") -> None:
    console.print(Text(f"  {text}", style=style), soft_wrap=True)


def _seconds(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:,.1f} {unit}"
    return f"{seconds * 1e6:,.0f} µs"


def _command() -> str:
    """A command for `aggregator` that works in the user's shell, where this environment may not be active."""
    if shutil.which("aggregator"):
        return "aggregator"
    script = Path(sys.executable).with_name("aggregator")
    if not script.exists():
        return shlex.join(COMMAND)
    return shlex.quote(str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script))
