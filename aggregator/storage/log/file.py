"""Log files: list them and read their frames."""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from aggregator.errors import CorruptLogError
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.log.frame import FILE_HEADER_BYTES, FRAME_MAGIC, FrameHead, decode_file_header, frame_bytes

SUFFIX = ".log"
MARK_NAME = "acknowledged"
_NAME = re.compile(r"[0-9a-f]{16}\.log")
_MARK = struct.Struct("<QQ")


def file_name(position: int) -> str:
    """The name of the log file that begins at a position."""
    return f"{position:016x}{SUFFIX}"


def list_files(directory: Path) -> list[tuple[int, Path]]:
    """The start position, from its name, and the path of each log file, oldest first."""
    files = sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    return [(int(path.stem, 16), path) for path in files]


def encode_mark(number: int) -> bytes:
    """Encode a number for the file `acknowledged`."""
    stored = number.to_bytes(8, "little")
    return stored + checksum64(stored).to_bytes(8, "little")


def decode_mark(stored: bytes) -> int | None:
    """The number; None if it is being written."""
    if len(stored) != _MARK.size:
        return None
    number, check = _MARK.unpack(stored)
    return int(number) if check == checksum64(stored[:8]) else None


@dataclass(frozen=True, slots=True)
class Marks:
    """The contents of the file `acknowledged`: up to where other processes may read, and the manifest's latest change.

    None: unknown.
    """

    SIZE: ClassVar[int] = 2 * _MARK.size
    CHANGE_AT: ClassVar[int] = _MARK.size
    position: int | None = None
    change: int | None = None

    @classmethod
    def read(cls, directory: Path) -> Marks:
        """Read the marks of a log. Raises OSError."""
        try:
            with (directory / MARK_NAME).open("rb") as file:
                stored = file.read(cls.SIZE)
        except FileNotFoundError:
            return cls()
        return cls(decode_mark(stored[: cls.CHANGE_AT]), decode_mark(stored[cls.CHANGE_AT :]))

    def lacking(self, reached: int) -> int:
        """Number of acknowledged bytes after `reached`, the position up to which frames were found. The header of a
        file without frames does not count.
        """
        lacking = (self.position or 0) - reached
        return lacking if lacking > FILE_HEADER_BYTES else 0


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the log: its position, its head, and its body without padding."""

    position: int
    head: FrameHead
    body: memoryview

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + frame_bytes(self.head.body_length)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [position, end) of the log that are not valid frames, in `path` from byte `offset`; `message` says why.

    torn: whether they are the end of a write that was never acknowledged.
    """

    path: Path
    offset: int
    position: int
    end: int
    message: str
    torn: bool

    @property
    def description(self) -> str:
        """The message for users, with the location."""
        return f"{self.message} (at byte {self.offset}, {self.end - self.position} bytes)"


def describe_gap(position: int, end: int) -> str:
    """A message for users: bytes [position, end) of the log are in no file."""
    return f"up to {end - position} bytes of acknowledged batches are missing, from position {position} to {end}"


def read_frames(data: memoryview, path: Path, start: int, *, at: int = FILE_HEADER_BYTES) -> Iterator[Frame | Damage]:
    """The frames and damages of a log file that begins at position `start`, from byte `at` on, in order.

    A damaged frame, with everything up to the next valid one, is one Damage. It is torn if no valid frame of a later
    group follows: then a crash interrupted the write, and any frames that follow belong to its group.
    """
    while at < len(data):
        try:
            frame = _frame(data, at, start + at)
        except CorruptLogError as error:
            following = list(_good_frames(data, at + 1, start))
            torn = all(frame.head.group <= start + at for frame in following)
            end = start + len(data) if torn else following[0].position
            yield Damage(path, at, start + at, end, error.message, torn)
            at = end - start
            continue
        yield frame
        at += frame_bytes(frame.head.body_length)


def _frame(data: memoryview, at: int, position: int) -> Frame:
    head = FrameHead.decode(data, at, position)
    begin = at + FrameHead.SIZE
    body = data[begin : begin + head.body_length]
    if len(body) < head.body_length or at + frame_bytes(head.body_length) > len(data):
        raise CorruptLogError("a frame's body is cut short", offset=begin)
    if checksum64(body) != head.body_check:
        raise CorruptLogError("the checksum of a frame's body does not match", offset=begin)
    return Frame(position, head, body)


def _good_frames(data: memoryview, at: int, start: int) -> Iterator[Frame]:
    """Valid frames from byte `at` on, at any offset."""
    haystack = bytes(data[at:])
    found = haystack.find(FRAME_MAGIC)
    while found >= 0:
        with contextlib.suppress(CorruptLogError):
            yield _frame(data, at + found, start + at + found)
        found = haystack.find(FRAME_MAGIC, found + 1)


def read_file(path: Path, start: int) -> memoryview:
    """The bytes of a log file, with its header checked. Raises CorruptLogError, UnknownVersionError, OSError."""
    data = path.read_bytes()
    try:
        position = decode_file_header(data)
    except CorruptLogError as error:
        error.path = str(path)
        raise
    if position != start:
        raise CorruptLogError(f"the file header has position {position}, but its name says {start}", path=str(path))
    return memoryview(data)


@dataclass(slots=True)
class LogFile:
    """The log's bookkeeping for one file: bytes [position, end), and where each partition's indexes end in it."""

    path: Path
    position: int
    end: int
    ends: dict[int, int] = field(default_factory=dict)  # partition -> index after its last event in this file

    def is_sealed(self, sealed: Mapping[int, int]) -> bool:
        """Whether every event in the file is in a segment."""
        return all(sealed.get(partition, 0) >= end for partition, end in list(self.ends.items()))
