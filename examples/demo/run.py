"""The first half of the demo: write real events, ask questions about them, measure, draw."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, time_ns

from rich.console import Console
from rich.text import Text

import esformat
from examples.demo import contest
from examples.demo.clickstream import generate, until
from examples.demo.errors import DemoError
from examples.demo.event_set import EventSet
from examples.demo.git_history import read_git_history
from examples.demo.python_files import read_python_files
from examples.demo.screen import format_seconds, show_answer, show_figures, show_heading, show_sizes
from examples.demo.time_line import choose_time_line
from examples.demo.tour import Subject, answers, choose_subject

GENERATED_EVENTS = 300_000
PICTURE = "demo.png"


@dataclass(frozen=True, slots=True)
class _Measured:
    """The events of the contest, and its results."""

    events: EventSet
    sizes: Mapping[str, int]
    figures: list[contest.Figure]

    @property
    def point_read(self) -> contest.Figure:
        return next(figure for figure in self.figures if figure.work == contest.POINT_READ)


def read_real_events(directory: Path) -> EventSet:
    """Read events that every machine has: the git history around `directory`, else this Python's own files."""
    return read_git_history(directory) or read_python_files()


def run_demo(
    folder: Path, console: Console, own: EventSet | None = None, generated_events: int = GENERATED_EVENTS
) -> Path:
    """Write the demo's files to `folder`, show results on `console`, and return the path of the picture.

    If `own` events are given, the questions and measurements are about those, else about real and generated ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix="scratch-") as name:
        scratch = Path(name)
        with console.status("Looking for real events …"):
            real = own or read_real_events(Path.cwd())
        if real.num_events == 0:
            raise DemoError("there are no events to show")
        show_heading(console, "Real events" if own is None else "Your events")
        path, subject = _tell(real, folder, console)
        if own is not None:
            measured = _measure(own, path, subject, scratch, console)
            sizes, events = {own.name: measured.sizes}, {own.name: own.num_events}
        else:
            measured = _measure_generated(generated_events, folder, scratch, console)
            with console.status("Writing the real events in other formats …"):
                real_sizes = _measure_real_sizes(real, path, scratch)
            sizes = {real.name: real_sizes, measured.events.name: measured.sizes}
            events = {real.name: real.num_events, measured.events.name: measured.events.num_events}
        show_heading(console, "Size and speed")
        show_sizes(console, sizes, events)
        show_figures(console, measured.figures)
        with console.status("Drawing …"):
            picture = _draw(real, measured, folder)
    _show_what_is_left(console, picture, path, subject)
    return picture


def _tell(events: EventSet, folder: Path, console: Console) -> tuple[Path, Subject]:
    """Write and verify `events`, then ask the file the questions."""
    console.print(Text(f"{events.num_events:,} event{'' if events.num_events == 1 else 's'}: {events.origin}."))
    path = folder / f"{events.name}.esdb"
    with console.status("Writing and verifying …"):
        started = perf_counter()
        contest.EsdbFile.write(events, path)
        written = perf_counter() - started
        report = esformat.verify(path)
    if not report.ok:
        raise DemoError(f"{path} does not verify: {report.problems[0]}")
    with esformat.open(path) as segment:
        indexes = ", ".join(segment.indexes) or "none"
        facts = f"{segment.num_spaces:,} spaces, {segment.size_bytes:,} bytes, indexes: {indexes}"
        console.print(Text(f"Written in {format_seconds(written)}, verified: {facts}."))
        opening = f'segment = esformat.open("{path}")   # the times below are those of a first call'
        console.print(Text(opening, style="dim"))
        subject = choose_subject(segment)
        for answer in answers(segment, subject):
            show_answer(console, answer)
    return path, subject


def _measure_real_sizes(events: EventSet, path: Path, scratch: Path) -> dict[str, int]:
    """Measure the sizes without DuckDB, whose blocks of 256 KiB are too coarse for a few thousand events."""
    parquet = scratch / f"{events.name}.parquet"
    contest.write_parquet(events, parquet)
    return contest.measure_sizes(events, {contest.PARQUET: parquet, contest.ESDB: path}, scratch)


def _measure_generated(count: int, folder: Path, scratch: Path, console: Console) -> _Measured:
    with console.status(f"Generating {count:,} events of a click stream …"):
        table = until(generate(count), time_ns() // 1000)  # so that yesterday has events
        events = EventSet("click-stream", "a generated click stream", table, ("type", "country"))
    path = folder / f"{events.name}.esdb"
    return _measure(events, path, None, scratch, console)


def _measure(events: EventSet, path: Path, subject: Subject | None, scratch: Path, console: Console) -> _Measured:
    with console.status(f"Writing {events.num_events:,} events: .esdb, Parquet, DuckDB …") as status:
        writing = contest.measure_writing(events, path, scratch)
        status.update("Writing them as JSON lines, plain and compressed …")
        files = {
            contest.DUCKDB: scratch / contest.DUCKDB_FILE,
            contest.PARQUET: scratch / contest.PARQUET_FILE,
            contest.ESDB: path,
        }
        sizes = contest.measure_sizes(events, files, scratch)
        if subject is None:
            with esformat.open(path) as segment:
                subject = choose_subject(segment)
        status.update("Reading: single histories, one index value, everything …")
        contestants = contest.open_contestants(path, scratch)
        try:
            index_value = None if subject.index is None else (subject.index, subject.value_anywhere)
            reading = contest.measure_reading(contestants, events, index_value)
        finally:
            for contestant in contestants.values():
                contestant.close()
    return _Measured(events, sizes, [writing, *reading])


def _draw(real: EventSet, measured: _Measured, folder: Path) -> Path:
    picture = folder / PICTURE
    per_event = {name: size / measured.events.num_events for name, size in measured.sizes.items()}
    read = measured.point_read.by_contestant
    heading = (
        f"{measured.events.num_events:,} events: "
        f"{contest.format_ratio(measured.sizes[contest.ESDB] / measured.sizes[contest.PARQUET])} Parquet's bytes, "
        f"{contest.format_ratio(read[contest.PARQUET] / read[contest.ESDB])} its speed at single histories"
    )
    from examples.demo.picture import draw  # here: matplotlib is the slowest import

    draw(picture, heading, f"Real histories: {real.origin}", choose_time_line(real), per_event, measured.point_read)
    return picture


def _show_what_is_left(console: Console, picture: Path, path: Path, subject: Subject) -> None:
    show_heading(console, "Try it yourself")
    command = _command()
    for line in (
        str(picture),
        f"{command} info {shlex.quote(str(path))}",
        f"{command} scan {shlex.quote(str(path))} --space={shlex.quote(subject.key)} --reverse --limit=10",
    ):
        console.print(Text(f"  {line}"), soft_wrap=True)


def _command() -> str:
    """A command for `esdb` that works in the user's shell, where this environment may not be active."""
    if shutil.which("esdb"):
        return "esdb"
    script = Path(sys.executable).with_name("esdb")
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m esformat"
    return shlex.quote(str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script))
