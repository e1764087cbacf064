"""The memory budget of a writer, and how it is divided."""

from __future__ import annotations

from dataclasses import dataclass

from esformat.base.quantity import parse_size
from esformat.errors import UsageError

DEFAULT_MEMORY = 1 << 30
MIN_MEMORY = 1 << 20
MIN_CHUNK = 8 << 10
ROW_OVERHEAD = 100
"""Memory in bytes that sorting takes for each event, whatever it contains: ranks of its keys, time, position."""
COLUMN_OVERHEAD = 500
"""Memory that each column of a table takes, however few its rows, in bytes."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory of one writer and its shares, in bytes. Shares add up to less: allocators keep some freed memory."""

    memory: int

    @classmethod
    def of(cls, memory: int | str | None) -> Budget:
        """The budget for an option; None means DEFAULT_MEMORY. Raises UsageError if it is too small to work with."""
        try:
            size = DEFAULT_MEMORY if memory is None else parse_size(memory)
        except ValueError as error:
            raise UsageError(f"memory: {error}") from None
        if size < MIN_MEMORY:
            raise UsageError(f"memory of {size} bytes is too little", hint=f"give at least {MIN_MEMORY >> 20} MiB")
        return cls(size)

    @property
    def held(self) -> int:
        """The share for events held in memory, and for sorting them."""
        return self.memory * 3 // 4

    @property
    def piece(self) -> int:
        """The share for a part of a table that is checked and added at a time, because that copies it."""
        return self.memory // 4

    @property
    def step(self) -> int:
        """The share for events merged at a time: three times as many are in memory while the next ones are read."""
        return self.memory // 8

    @property
    def chunk(self) -> int:
        """The share for a part of a sorted run that is read at a time; there can be one for each run."""
        return max(MIN_CHUNK, min(self.memory // 1024, 512 << 10))

    @property
    def flight(self) -> int:
        """The share for events that are being encoded."""
        return self.memory // 8

    @property
    def postings(self) -> int:
        """The share for row numbers of indexes that are not yet written; all indexes divide it."""
        return self.memory // 8
