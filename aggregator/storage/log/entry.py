"""`Entry`: one batch on its way into the log, and the frames of a group of them."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Collection, Sequence
from typing import Any, Self

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


class Entry:
    """What a thread waits for the log's leader to do. The leader calls the methods; here they write nothing."""

    __slots__ = (
        "bearer", "body_check", "body_length", "count", "defines", "error", "fate", "first_index", "following", "joins",
        "key", "offset", "partition", "parts", "settled", "state", "turn",
    )  # fmt: skip

    def __init__(
        self, partition: int = 0, count: int = 0, *, defines: Any = None, key: Any = None, joins: Any = None
    ) -> None:
        """count: of events. defines: what its definition is known by. key: entries with equal ones are never in one
        group. joins: those of a group that have equal ones, other than None, are written as one.
        """
        self.partition, self.count, self.defines, self.key, self.joins = partition, count, defines, key, joins
        self.parts: Sequence[bytes] = ()
        self.body_length = self.body_check = 0
        self.first_index = -1
        self.error: BaseException | None = None
        self.state, self.fate = WAITING, UNKNOWN
        self.turn = allocate_lock()  # at which its thread waits
        self.turn.acquire()
        self.settled: Callable[[], None] | None = None  # called when it is, where no thread waits
        self.following: Entry | None = None  # whom its thread wakes when it leaves
        self.bearer: Entry | None = None  # with which it is written, this many events behind that one's first
        self.offset = 0

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
        """Set the body of one that joins: also of the others, of which this becomes the bearer, or of each by itself.
        Whose events are refused gets its error here.
        """

    def place(self) -> bool:
        """Give it its first record index, called in order; False: there is nothing to write."""
        return False

    def withdraw(self) -> None:
        """Take that back, called in reverse order when the write failed."""

    def publish(self) -> None:
        """Make it visible, called in order when it is as durable as was asked for."""

    def definition(self) -> bytes:
        """The body of the frame that is written before it where the file has no definition of that kind yet."""
        return b""


class Action(Entry):
    """Something that is done between two groups, when what had its place before is published or has failed."""

    __slots__ = ("_act",)

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def place(self) -> bool:
        """Do it."""
        self._act()
        return False


def frames_of(group: Sequence[Entry], position: int, defined: Collection[Any]) -> tuple[list[bytes], int]:
    """The bytes of a group that begins at `position` of the log, and where it ends. defined: keys of definitions that
    the file has.
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
