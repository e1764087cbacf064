"""Progress of a Spark job: an updating status line on a terminal, a line every 30 seconds in a log."""

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
"""Returns the finished and the total number of Spark's currently active tasks."""


class JobDisplay:
    """The progress of a running job. The job calls it with bytes done and total, and passes its summary to `watch`."""

    def __init__(self, title: str, tasks: Tasks, clock: Callable[[], float] = monotonic) -> None:
        self._title = title
        self._tasks = tasks
        self._clock = clock
        self._began = clock()
        self._summary: Any = None
        self.done = self.total = 0

    def watch(self, summary: Any) -> None:
        """Show the counts of `summary` too, which the job updates."""
        self._summary = summary

    def __call__(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def line(self) -> str:
        """The progress as one line."""
        parts = []
        if self._summary is not None:
            parts = [count(self._summary.files, "file"), count(self._summary.events, "event")]
        if self.total:
            parts.append(f"{size(self.done)} of {size(self.total)}")
        finished, known = self._tasks()
        if known:
            parts.append(f"{finished:,} of {count(known, 'task')} done")
        if 0 < self.done < self.total:
            left = (self._clock() - self._began) * (self.total - self.done) / self.done
            parts.append(f"about {_duration(left)} left")
        return f"{self._title}: {', '.join(parts) or 'starting'}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def displayed(title: str, tasks: Tasks, *, log_seconds: float = LOG_SECONDS) -> Iterator[JobDisplay]:
    """Show the progress of a job on stderr until the block ends."""
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
    """Return a function that counts the tasks of the active stages; it returns zeros if the session has no tracker."""
    context = getattr(session, "sparkContext", None)
    tracker = None if context is None else context.statusTracker()

    def look() -> tuple[int, int]:
        stages = [] if tracker is None else [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)

    return look


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what Java writes to stderr while it starts; print it only if the block fails."""
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
