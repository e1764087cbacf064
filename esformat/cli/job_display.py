"""What a job of Spark shows while it works: a line that changes on a terminal, a line now and then in a log."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from esformat.cli.console import count, is_terminal, size, warn

LOG_SECONDS = 30.0
_TERMINAL_SECONDS = 0.5

Tasks = Callable[[], tuple[int, int]]
"""How many of Spark's tasks that are known now are done, and how many there are."""


class JobDisplay:
    """What is known of a running job. Jobs call it with bytes done and in all, and give it their summary to watch."""

    def __init__(self, title: str, tasks: Tasks, clock: Callable[[], float] = monotonic) -> None:
        self._title = title
        self._tasks = tasks
        self._clock = clock
        self._began = clock()
        self._summary: Any = None
        self.done = self.total = 0

    def watch(self, summary: Any) -> None:
        """Look at the counts of a summary, which grow."""
        self._summary = summary

    def __call__(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def line(self) -> str:
        """All of it in one line."""
        parts = []
        if self._summary is not None:
            parts = [count(self._summary.files, "file"), count(self._summary.events, "event")]
        if self.total:
            parts.append(f"{size(self.done)} of {size(self.total)}")
        finished, known = self._tasks()
        if known:
            parts.append(f"{finished:,} of {count(known, 'task')} at work")
        if 0 < self.done < self.total:
            left = (self._clock() - self._began) * (self.total - self.done) / self.done
            parts.append(f"about {_duration(left)} left")
        return f"{self._title}: {', '.join(parts) or 'looking'}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def displayed(title: str, tasks: Tasks, *, log_seconds: float = LOG_SECONDS) -> Iterator[JobDisplay]:
    """Show how a job gets on, on stderr, until the block ends."""
    display = JobDisplay(title, tasks)
    if is_terminal(sys.stderr):
        from rich.console import Console

        with (
            Console(stderr=True).status(display.line()) as status,
            _now_and_then(lambda: status.update(display.line()), _TERMINAL_SECONDS),
        ):
            yield display
    else:
        with _now_and_then(lambda: warn(display.line()), log_seconds):
            yield display


@contextmanager
def _now_and_then(show: Callable[[], None], seconds: float) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            show()

    thread = threading.Thread(target=run, name="esformat-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def tasks_of(session: Any) -> Tasks:
    """The tasks of the stages that a session works on now; none where it cannot say."""
    context = getattr(session, "sparkContext", None)
    tracker = None if context is None else context.statusTracker()

    def look() -> tuple[int, int]:
        stages = [] if tracker is None else [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)

    return look


@contextmanager
def quiet() -> Iterator[None]:
    """Keep from stderr what Java says there from its start on: told only if the block fails."""
    sys.stderr.flush()
    shown = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(shown, kept.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(shown, 2)
            os.close(shown)
