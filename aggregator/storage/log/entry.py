"""`Entry`: one batch on its way into the log, and the frames of a group of them."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Collection, Sequence
from typing import Any, Self

from aggregator.storage.files.checksum import checksum64, hasher64
from aggregator.storage.log.frame import ALIGNMENT, FrameKind, encode_head, frame_bytes, padded

_EVENTS, _DEFINITION = int(FrameKind.EVENTS), int(FrameKind.DEFINITION)
WAITING, TAKEN, DONE = range(3)
"""Progress of an entry. TAKEN: a leader is processing it."""
UNKNOWN, PLACING, PLACED, PASSED, PUBLISHING, PUBLISHED = range(6)
"""The outcome of an entry. From PASSED on it is settled. PASSED: there was nothing to write, or the entry itself was
invalid. PUBLISHING: it is acknowledged and stays, even if an interrupt arrives.
"""

SMALL_BYTES = 1 << 14
"""The parts of a smaller body are joined, which is faster than writing each part separately."""


class Entry:
    """Work that a thread hands to the log's leader. The leader calls the methods; here they write nothing."""

    __slots__ = (
        "bearer", "body_check", "body_length", "count", "defines", "error", "fate", "first_index", "following", "joins",
        "key", "offset", "partition", "parts", "settled", "state", "turn",
    )  # fmt: skip

    def __init__(
        self, partition: int = 0, count: int = 0, *, defines: Any = None, key: Any = None, joins: Any = None
    ) -> None:
        """count: number of events. defines: the key of its definition. key: entries with equal keys are never in the
        same group. joins: entries of a group with equal values, other than None, are written as one.
        """
        self.partition, self.count, self.defines, self.key, self.joins = partition, count, defines, key, joins
        self.parts: Sequence[bytes] = ()
        self.body_length = self.body_check = 0
        self.first_index = -1
        self.error: BaseException | None = None
        self.state, self.fate = WAITING, UNKNOWN
        self.turn = allocate_lock()  # its thread waits for this lock
        self.turn.acquire()
        self.settled: Callable[[], None] | None = None  # called when it is settled, if no thread waits
        self.following: Entry | None = None  # the entry whose thread its thread wakes when it leaves
        self.bearer: Entry | None = None  # the entry that it is written with
        self.offset = 0  # its first event, counted from the bearer's first

    def carry(self, parts: Sequence[bytes]) -> None:
        """Set the body of its frame."""
        self.parts, self.body_length = parts, sum(map(len, parts))
        if self.body_length < SMALL_BYTES:
            whole = b"".join(parts)
            self.parts, self.body_check = [whole], checksum64(whole)
        else:
            hasher = hasher64()
            for part in parts:
                hasher.update(part)
            self.body_check = hasher.intdigest()

    def join(self, others: Sequence[Self]) -> None:
        """Set the bodies of entries that join: one body for all, of which this entry becomes the bearer, or a separate
        body for each. An entry whose events are refused gets its error here.
        """

    def place(self) -> bool:
        """Assign the first record index; called in order. Returns False if there is nothing to write."""
        return False

    def withdraw(self) -> None:
        """Undo `place`; called in reverse order if the write failed."""

    def publish(self) -> None:
        """Make the entry visible; called in order when it is as durable as requested."""

    def definition(self) -> bytes:
        """The body of the definition frame to write first if the file has no definition of that key yet."""
        return b""


class Action(Entry):
    """An action between two groups, after everything placed before it is published or has failed."""

    __slots__ = ("_act",)

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def place(self) -> bool:
        """Run the action."""
        self._act()
        return False


def frames_of(group: Sequence[Entry], position: int, defined: Collection[Any]) -> tuple[list[bytes], int]:
    """The bytes of a group that begins at `position` of the log, and where it ends. defined: keys that the file
    defines.
    """
    buffers: list[bytes] = []
    first = position
    fresh: set[Any] = set()
    for entry in group:
        key = entry.defines
        if key not in defined and key not in fresh:
            fresh.add(key)
            body = entry.definition()
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
