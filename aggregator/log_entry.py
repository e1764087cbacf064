"""`Entry`: one batch on its way into the log."""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aggregator.checksum import hasher64

WAITING, TAKEN, LEADING, DONE = range(4)
"""How far an entry is. TAKEN: a leader is at it, or will give it back to those that wait."""


@dataclass(eq=False, slots=True)
class Entry:
    """One batch on its way into the log.

    place: gives it its first record index, called by the leader, in order; False: there is nothing to write.
    withdraw: takes that back, called in reverse order when the write failed.
    publish: makes it visible, called in order when it is as durable as was asked for.
    definition: `(key, body)`, written before it where the file does not define the key yet.
    """

    partition: int
    count: int
    parts: Sequence[Any]
    place: Callable[[Entry], bool]
    withdraw: Callable[[Entry], None]
    publish: Callable[[Entry], None]
    definition: tuple[Any, Callable[[], bytes]]
    key: Any = None  # entries with equal keys are never in one group
    first_index: int = -1
    body_length: int = field(init=False)
    body_check: int = field(init=False)
    error: BaseException | None = None
    state: int = WAITING
    turn: LockType = field(default_factory=allocate_lock)

    def __post_init__(self) -> None:
        hasher = hasher64()
        self.body_length = 0
        for part in self.parts:
            hasher.update(part)
            self.body_length += len(part)
        self.body_check = hasher.intdigest()
        self.turn.acquire()
