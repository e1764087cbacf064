"""The results of checking a file: `Problem` and `Report`."""

from __future__ import annotations

from dataclasses import dataclass

from esformat.errors import EsdbError, UnsupportedVersionError

MAX_PROBLEMS = 1000
"""Maximum problems kept for a file: a longer list helps nobody, and could grow with the claims of a hostile file."""


RESTORE = "restore the file from a copy, or write it again from its events"


@dataclass(frozen=True, slots=True)
class Problem:
    """A place where a file breaks the format: the byte, what is wrong there, and the consequence or remedy."""

    offset: int
    what: str
    hint: str = RESTORE

    def __str__(self) -> str:
        return " ".join(f"at byte {self.offset}: {self.what}; {self.hint}".split())


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `verify`. `events` and `blocks` count those that were read and are intact."""

    path: str
    size_bytes: int
    events: int
    blocks: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


class Findings:
    """Collects problems: the first MAX_PROBLEMS in full, of the others only the number."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._more = 0

    def __len__(self) -> int:
        return len(self._problems) + self._more

    def add(self, offset: int, what: str, hint: str = RESTORE) -> None:
        """Add a problem."""
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(offset, what, hint))
        else:
            self._more += 1

    def add_error(self, error: Exception, offset: int, hint: str = RESTORE) -> None:
        """Add an error as a problem. offset: its place if the error has none."""
        if isinstance(error, UnsupportedVersionError):
            self.add(offset if error.offset is None else error.offset, error.message, error.hint or hint)
        elif isinstance(error, EsdbError):
            self.add(offset if error.offset is None else error.offset, error.message, hint)
        else:  # bytes so absurd that a library failed on them
            self.add(offset, f"cannot be decoded: {type(error).__name__}: {error}", hint)

    def problems(self) -> tuple[Problem, ...]:
        """All problems, by place."""
        found = sorted(self._problems, key=lambda problem: problem.offset)
        if self._more:
            found.append(Problem(found[-1].offset, f"{self._more} more problems are not listed"))
        return tuple(found)
