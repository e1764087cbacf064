"""`Entry`: one batch on its way into the log, and the frames of a group of them."""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from aggregator.storage.files.checksum import checksum64, hasher64
from aggregator.storage.log.frame import ALIGNMENT, FrameKind, encode_head, frame_bytes, padded

_EVENTS, _DEFINITION = int(FrameKind.EVENTS), int(FrameKind.DEFINITION)
WAITING, TAKEN, DONE = range(3)
"""How far an entry is. TAKEN: a leader is at it."""
UNKNOWN, PLACING, PLACED, PASSED, PUBLISHING, PUBLISHED = range(6)
"""What became of it. From PASSED on it is settled. PASSED: there was nothing to write, or its own thread is to blame.
PUBLISHING: it is acknowledged, and stays, wherever an interrupt came.
"""

SMALL_BYTES = 1 << 14
"""Of a body below this the parts are put together: that is quicker than to write each by itself."""


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
    parts: Sequence[bytes]
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
    fate: int = UNKNOWN
    turn: LockType = field(default_factory=allocate_lock)
    following: Entry | None = None  # whom its thread wakes when it leaves

    def __post_init__(self) -> None:
        self.body_length = sum(map(len, self.parts))
        if self.body_length < SMALL_BYTES:
            self.parts = [b"".join(self.parts)]
            self.body_check = checksum64(self.parts[0])
        else:
            hasher = hasher64()
            for part in self.parts:
                hasher.update(part)
            self.body_check = hasher.intdigest()
        self.turn.acquire()


def frames_of(group: Sequence[Entry], position: int, defined: Collection[Any]) -> tuple[list[bytes], int]:
    """The bytes of a group that begins at `position` of the log, and where it ends. defined: keys of definitions that
    the file has.
    """
    buffers: list[bytes] = []
    first = position
    fresh: set[Any] = set()
    for entry in group:
        key, make_definition = entry.definition
        if key not in defined and key not in fresh:
            fresh.add(key)
            body = make_definition()
            buffers.append(
                encode_head(position, _DEFINITION, len(body), 0, first, entry.partition, 0, checksum64(body))
            )
            buffers += [body, bytes(padded(len(body)) - len(body))]
            position += frame_bytes(len(body))
        length = entry.body_length
        head = encode_head(
            position, _EVENTS, length, entry.count, first, entry.partition, entry.first_index, entry.body_check
        )
        buffers += [head, *entry.parts]
        if length % ALIGNMENT:
            buffers.append(bytes(-length % ALIGNMENT))
        position += frame_bytes(length)
    return buffers, position
