"""Output for people: sizes and times in words, progress bars, lines on stdout and stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TextIO

import click

from esformat.io.publish import naming_stdout

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether `stream` is a terminal; None means that it was closed before the program started."""
    return stream is not None and stream.isatty()


def say(message: str) -> None:
    """Print one line of a result."""
    with naming_stdout():
        click.echo(message)


def warn(message: str) -> None:
    """Print one line on stderr, outside the result."""
    click.echo(message, err=True)


def count(number: int, noun: str) -> str:
    """Format a count with its noun: "1 event", "12,345 events"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    """Format a number of bytes in the largest fitting unit: bytes, kB, MB, GB or TB (powers of 1000)."""
    if number < 1000:
        return count(number, "byte")
    power = next((power for power in (1, 2, 3) if number / 1000**power < 999.95), 4)  # not "1000.0 kB" but "1.0 MB"
    return f"{number / 1000**power:.1f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def length(micros: int) -> str:
    """Format a duration in the largest unit that divides it evenly: days, hours or minutes; else in seconds."""
    for unit, noun in ((86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute")):
        if micros % unit == 0:
            return count(micros // unit, noun)
    return f"{micros / 1_000_000:,.6g} seconds"


def moment(micros: int | None) -> str:
    """Format microseconds since 1970 as ISO 8601, without a fraction if it is zero; None as "-"."""
    if micros is None:
        return "-"
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{micros} µs"


@contextmanager
def progress(title: str, *, things: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on stderr; yield a function that updates it, or None if stderr is not a terminal.

    The function takes the bytes done and the total, which is 0 if unknown.
    things: count events or segments instead of bytes.
    """
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    counted = MofNCompleteColumn() if things else DownloadColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), counted, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=max(total, done) if total else None)
            if done >= total > 0:
                bar.update(task, description="finishing")

        yield show
