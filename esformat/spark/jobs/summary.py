"""The summary of a job, its progress callback and its expected failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from esformat.errors import EsdbError

Progress = Callable[[int, int], None]
"""Called from time to time with the bytes done and the total. A method `watch`, if any, first receives the summary."""

FAILURES = (EsdbError, OSError, PySparkException, Py4JError)
"""Errors that cost a job only the current group of files."""

_RAISED = re.compile(
    r"^(?:: |Caused by: )?(?P<error>(?:[\w.$]*\.)?\w+(?:Error|Exception)): (?P<message>(?!Traceback \(most recent).+)$",
    re.MULTILINE,
)
_OURS = ("esformat.", "aggregator.")
_CALL = re.compile(r"An error occurred while calling [\w.]+$")  # a Java object's number, without meaning
_LONGEST_REASON = 500


@dataclass(slots=True)
class Summary:
    """The result of a job.

    files: number processed. made: number published. skipped: done before, or nothing to do.
    events, bytes: published, or checked if the job publishes nothing. failed: files with the reasons.
    """

    job: str
    files: int = 0
    made: int = 0
    skipped: int = 0
    events: int = 0
    bytes: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    _started: float = field(default_factory=perf_counter, repr=False)

    @classmethod
    def begin(cls, job: str, progress: Progress | None) -> Summary:
        """Start the summary of a job, and pass it to the `watch` method of `progress`, if any."""
        summary = cls(job)
        watch = getattr(progress, "watch", None)
        if watch is not None:
            watch(summary)
        return summary

    @property
    def ok(self) -> bool:
        """Whether nothing failed, so nothing was lost."""
        return not self.failed

    def finish(self) -> Summary:
        """Record the duration, and return the summary."""
        self.seconds = perf_counter() - self._started
        return self


def reason_of(error: BaseException) -> str:
    """Return the reason of a failure in one line; for a Spark error, what a task raised rather than where."""
    text = str(error)
    found = list(_RAISED.finditer(text))
    ours = [match for match in found if match["error"].startswith(_OURS)]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _CALL.match(line.strip().rstrip("."))]
    reasons = [match["message"] for match in ours or found] or lines[:1]
    return " ".join("".join(reasons[-1:]).split())[:_LONGEST_REASON] or type(error).__name__
