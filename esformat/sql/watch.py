"""What happens while a statement reads: which blocks each scan looks at, and what failed in one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from esformat.sql.table import Table

Interrupt = Callable[[], None]
Guard = Callable[[Interrupt], AbstractContextManager[None]]
"""Gives a context in which DuckDB works for a statement, and in which that can be ended."""


def unguarded(interrupt: Interrupt) -> AbstractContextManager[None]:
    """No guard."""
    return nullcontext()


class Watch:
    """The scans that DuckDB makes of the tables of one statement."""

    def __init__(self, interrupt: Interrupt = lambda: None, guard: Guard = unguarded) -> None:
        """interrupt: ends the statement."""
        self._interrupt, self._guard = interrupt, guard
        self.dry = False
        """Whether scans give no rows, and their blocks are counted instead."""
        self.tables: dict[str, Table] = {}
        """By the name that the statement has for each."""
        self.lines: list[str] = []
        """What a dry scan would read, as people are told."""
        self.failure: Exception | None = None
        """The first error of a scan, which DuckDB passes on as text alone."""

    def counted(self, name: str, values: int, *, tallied: bool) -> None:
        """A table's values are known without reading its events; tallied: from the codes of all of them."""
        instead = f"codes alone, {values:,} combinations of them" if tallied else f"no block, {values:,} counts instead"
        self.lines.append(f"{name}: {instead}")

    def guarded(self) -> AbstractContextManager[None]:
        """A context in which DuckDB works for the statement."""
        return self._guard(self._interrupt)

    def of(self, name: str) -> ScanWatch:
        """What a dataset tells of its scans."""
        return ScanWatch(self, name)


class ScanWatch:
    """What is told of the scans of one table."""

    def __init__(self, watch: Watch, name: str) -> None:
        self._watch = watch
        self._name = name

    @property
    def dry(self) -> bool:
        """Whether scans give no rows."""
        return self._watch.dry

    def began(self, read: int, blocks: int, columns: list[str]) -> None:
        """A dry scan would read so many of so many blocks."""
        self._watch.lines.append(f"{self._name}: {read:,} of {blocks:,} blocks, columns {', '.join(columns)}")

    def failed(self, error: Exception) -> None:
        """A scan ends with an error."""
        self._watch.failure = self._watch.failure or error
