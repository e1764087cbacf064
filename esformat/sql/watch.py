"""Observation of a statement's scans: the blocks that each would read, and the first failure."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from esformat.sql.table import Table

Interrupt = Callable[[], None]
Guard = Callable[[Interrupt], AbstractContextManager[None]]
"""Returns a context in which DuckDB runs a statement that can be interrupted."""


def unguarded(interrupt: Interrupt) -> AbstractContextManager[None]:
    """Return a context that does nothing."""
    return nullcontext()


class Watch:
    """Observes the scans of the tables of one statement."""

    def __init__(
        self,
        interrupt: Interrupt = lambda: None,
        guard: Guard = unguarded,
        broken: Callable[[], None] = lambda: None,
    ) -> None:
        """interrupt: stops the statement. broken: called if an error leaves DuckDB's database unusable."""
        self._interrupt, self._guard, self.broken = interrupt, guard, broken
        self.dry = False
        """Whether scans return no rows and report their blocks instead."""
        self.tables: dict[str, Table] = {}
        """The tables, by their names in the statement."""
        self.lines: list[str] = []
        """Lines for EXPLAIN about the blocks that scans would read."""
        self.failure: Exception | None = None
        """The first error of a scan, which DuckDB passes on only as text."""

    def counted(self, name: str, values: int, *, tallied: bool) -> None:
        """Report that a summary replaces a table's events. tallied: it is built from the codes of all events."""
        instead = f"codes alone, {values:,} combinations of them" if tallied else f"no block, {values:,} counts instead"
        self.lines.append(f"{name}: {instead}")

    def guarded(self) -> AbstractContextManager[None]:
        """Return the context in which DuckDB runs the statement."""
        return self._guard(self._interrupt)

    def of(self, name: str) -> ScanWatch:
        """Return the observer of a dataset's scans."""
        return ScanWatch(self, name)


class ScanWatch:
    """Observes the scans of one table."""

    def __init__(self, watch: Watch, name: str) -> None:
        self._watch = watch
        self._name = name

    @property
    def dry(self) -> bool:
        """Whether scans return no rows."""
        return self._watch.dry

    def began(self, read: int, blocks: int, columns: list[str]) -> None:
        """Report that a dry scan would read `read` of `blocks` blocks."""
        self._watch.lines.append(f"{self._name}: {read:,} of {blocks:,} blocks, columns {', '.join(columns)}")

    def failed(self, error: Exception) -> None:
        """Record the error of a scan."""
        self._watch.failure = self._watch.failure or error
