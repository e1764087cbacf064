"""The catalog's clock: how far the machine's is trusted, stored in the manifest; doubts are reported as a problem."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock

from aggregator.base.age_clock import AgeClock
from aggregator.base.reports import ClockReport
from aggregator.model import Problem
from aggregator.storage.files.layout import manifest_files
from aggregator.storage.manifest import CLOCK, Manifest
from aggregator.storage.state.state import CatalogState

logger = logging.getLogger("aggregator")

NOTE_EVERY_US = 60_000_000
SUBJECT = "clock"
"""The subject of the problem that reports a doubted clock."""


def steady_us() -> int:
    """A time in µs that is independent of changes to the clock, and also advances while the machine sleeps."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


def written_us(manifest: Manifest) -> int:
    """When the manifest was last written, by the clock of the file system."""
    return max(path.stat().st_mtime_ns for path in manifest_files(manifest.path)[:2] if path.exists()) // 1000


class Ages:
    """The time that ages are counted by. Thread-safe."""

    def __init__(self, state: CatalogState, manifest: Manifest, clock: Callable[[], int]) -> None:
        self._state, self._manifest, self._clock = state, manifest, clock
        self._lock = Lock()
        self._ages = AgeClock(clock(), steady_us(), manifest.get(CLOCK))
        self._noted_us: int | None = None
        self._doubt_shown = False
        self._ends: dict[int, int] = {}
        self._forget()
        self._show_doubt()

    def now(self) -> int:
        """The time that ages are counted by, µs."""
        with self._lock:
            return self._ages.now(self._clock(), steady_us())

    def report(self) -> ClockReport:
        """Which time is believed."""
        with self._lock:
            wall_us = self._clock()
            return report_of(wall_us, self._ages.now(wall_us, steady_us()), self._ages)

    def believe(self) -> ClockReport:
        """Count ages by the machine's clock from now on. Raises ManifestFailedError."""
        with self._lock:
            self._ages.believe(self._clock(), steady_us())
            self._noted_us = None
        self.note()
        return self.report()

    def note(self) -> None:
        """Store the believed time, judge a doubted clock, and report changes. Called regularly."""
        with self._lock:
            believed_us = self._ages.now(self._clock(), steady_us())
            if self._noted_us is None or abs(believed_us - self._noted_us) >= NOTE_EVERY_US:
                self._manifest.put(CLOCK, self._ages.encode())
                self._noted_us = believed_us
                if self._ages.doubt is not None:
                    self._ages.hear(self._clock(), steady_us(), self._arrived(), written_us(self._manifest))
        self._show_doubt()

    def _arrived(self) -> list[int]:
        """The newest timestamp of each partition that has unsealed events and received some since the last call."""
        with self._state.view_lock:
            found = []
            for number, (_, partition) in self._state.partitions.items():
                end = partition.visible_end
                batches = partition.memtable.batches
                if batches and end != self._ends.get(number):
                    found.append(batches[-1].max_timestamp)
                self._ends[number] = end
            return found

    def _show_doubt(self) -> None:
        doubt = self._ages.doubt
        if (doubt is not None) != self._doubt_shown:  # for readers, and the next opening
            self._manifest.put(CLOCK, self._ages.encode())
        if doubt is None and self._doubt_shown:
            self._forget()
            logger.info("the clock is trusted again")
        elif doubt is not None and not self._doubt_shown:
            report = self.report()
            message = (
                f"the clock shows {_moment(report.wall_us)}, more time than can have passed: "
                f"ages are computed as if it were {_moment(report.believed_us)}"
            )
            logger.warning("%s", message)
            action = "retention by age is paused; if the clock is right, run `aggregator clock --believe`"
            self._manifest.add_problem(Problem(SUBJECT, message, action, report.believed_us))
        self._doubt_shown = doubt is not None

    def _forget(self) -> None:
        known = [problem for problem in self._manifest.problems() if problem.subject == SUBJECT]
        if known:
            self._manifest.forget_problems(known)


def report_of(wall_us: int, believed_us: int, ages: AgeClock) -> ClockReport:
    """The report for users on what an `AgeClock` believes."""
    doubt = ages.doubt
    if doubt is None:
        return ClockReport(wall_us, believed_us, believed=True, agreed_s=0, events_for=0, events_against=0)
    return ClockReport(wall_us, believed_us, False, doubt.agreed_us // 1_000_000, doubt.near, doubt.far)


def stored_report(manifest: Manifest, wall_us: int) -> ClockReport:
    """The same of a catalog that is only read: what would be believed if it were opened now."""
    ages = AgeClock(wall_us, 0, manifest.get(CLOCK))
    return report_of(wall_us, ages.now(wall_us, 0), ages)


def _moment(us: int) -> str:
    try:
        return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError):
        return f"{us} µs"
