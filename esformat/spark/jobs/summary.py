"""What a job did, and what it calls while it is at it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from esformat.errors import EsdbError

Progress = Callable[[int, int], None]
"""Called now and then with the bytes done and in all. If it has a method `watch`, that is given the summary before."""

FAILURES = (EsdbError, OSError, PySparkException, Py4JError)
"""What costs a job the group of files that it was at, and not the rest."""

_RAISED = re.compile(
    r"^(?:: |Caused by: )?(?P<error>(?:[\w.$]*\.)?\w+(?:Error|Exception)): (?P<message>(?!Traceback \(most recent).+)$",
    re.MULTILINE,
)
_OURS = ("esformat.", "aggregator.")
_CALL = re.compile(r"An error occurred while calling [\w.]+$")  # of Java, by a number that says nothing
_LONGEST_REASON = 500


@dataclass(slots=True)
class Summary:
    """The end of a job.

    files: that it worked on; made: that it published; skipped: that were done before or had nothing to be done.
    events, bytes: in what it published, or looked at where it publishes nothing. failed: files, and why.
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
        """The summary of a job that begins, which whoever shows its progress may watch."""
        summary = cls(job)
        watch = getattr(progress, "watch", None)
        if watch is not None:
            watch(summary)
        return summary

    @property
    def ok(self) -> bool:
        """Whether nothing failed: then nothing was lost."""
        return not self.failed

    def finish(self) -> Summary:
        """Note how long it took."""
        self.seconds = perf_counter() - self._started
        return self


def reason_of(error: BaseException) -> str:
    """Why something failed, in one line: of an error of Spark, what a task raised rather than where."""
    text = str(error)
    found = list(_RAISED.finditer(text))
    ours = [match for match in found if match["error"].startswith(_OURS)]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _CALL.match(line.strip().rstrip("."))]
    reasons = [match["message"] for match in ours or found] or lines[:1]
    return " ".join("".join(reasons[-1:]).split())[:_LONGEST_REASON] or type(error).__name__
