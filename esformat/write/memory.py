"""How much memory a writer may take, and how it is shared out among what it does."""

from __future__ import annotations

from dataclasses import dataclass

from esformat.base.quantity import parse_size
from esformat.errors import UsageError

DEFAULT_MEMORY = 1 << 30
MIN_MEMORY = 1 << 20
MIN_CHUNK = 8 << 10
ROW_OVERHEAD = 100
"""Bytes that sorting takes for each event, whatever it holds: ranks of its keys, its time, its place."""
COLUMN_OVERHEAD = 500
"""Bytes that each column of a table takes, however few its rows."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Memory of one writer, in bytes, and its shares. They add up to less: allocators keep some of what was freed."""

    memory: int

    @classmethod
    def of(cls, memory: int | str | None) -> Budget:
        """The budget for an option; None is DEFAULT_MEMORY. Raises UsageError for one that is too small to work in."""
        try:
            size = DEFAULT_MEMORY if memory is None else parse_size(memory)
        except ValueError as error:
            raise UsageError(f"memory: {error}") from None
        if size < MIN_MEMORY:
            raise UsageError(f"memory of {size} bytes is too little", hint=f"give at least {MIN_MEMORY >> 20} MiB")
        return cls(size)

    @property
    def held(self) -> int:
        """Events that wait in memory, and what sorting them takes."""
        return self.memory * 3 // 4

    @property
    def piece(self) -> int:
        """A part of a table that is checked and taken at once: as little of it as is copied then."""
        return self.memory // 4

    @property
    def step(self) -> int:
        """Events that are merged at once: three times that is alive while the next ones are read."""
        return self.memory // 8

    @property
    def chunk(self) -> int:
        """A part of a sorted run that is read at once; there can be one for each run."""
        return max(MIN_CHUNK, min(self.memory // 1024, 512 << 10))

    @property
    def flight(self) -> int:
        """Events that are being encoded."""
        return self.memory // 8

    @property
    def postings(self) -> int:
        """Row numbers that wait for one of the indexes to be written; shared by all of them."""
        return self.memory // 8
