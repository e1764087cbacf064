"""The bytes of the log: file header and frames, as specified in `spec/log.md`. Encodes and decodes values; does no I/O.

A frame is a head of fixed size and a body. The appending thread computes the body's checksum before the frame's
position is known. The head's checksum is computed once the position is known, and is seeded with it, so a frame at
another position is invalid.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import ClassVar

from aggregator.errors import CorruptLogError, UnknownVersionError
from aggregator.storage.files.checksum import checksum64

FILE_MAGIC = b"\x89ESL\r\n\x1a\n"
FRAME_MAGIC = b"LFRM"
MAJOR_VERSION, MINOR_VERSION = 1, 0
ALIGNMENT = 8
MAX_BODY_BYTES = 1 << 30

_FILE = struct.Struct(
    "<"  # little-endian, no padding
    "8s"  # magic
    "H"  # major version
    "H"  # minor version
    "I"  # reserved
    "Q"  # position in the log of the file's first byte
    "Q"  # check: xxh3-64 of the bytes before
)
_HEAD = struct.Struct(
    "<"  # little-endian, no padding
    "4s"  # magic
    "B"  # kind
    "3s"  # reserved
    "I"  # body length
    "I"  # count: events
    "Q"  # group: position of the first frame written together with this one
    "Q"  # partition
    "Q"  # first index
    "Q"  # body check
)
_CHECK = struct.Struct("<Q")
_EVENTS = struct.Struct(
    "<"  # little-endian, no padding
    "I"  # schema
    "I"  # producer length
    "q"  # sequence
    "Q"  # fingerprint
)
_NOTED = 1 << 31  # in the producer length: a note follows the name
_LENGTH = struct.Struct("<I")

FILE_HEADER_BYTES = _FILE.size
FRAME_HEAD_BYTES = _HEAD.size + _CHECK.size


class FrameKind(IntEnum):
    """The content of a frame's body."""

    EVENTS = 1
    DEFINITION = 2


def encode_file_header(position: int) -> bytes:
    """The first bytes of the log file that begins at `position` of the log."""
    fields = _FILE.pack(FILE_MAGIC, MAJOR_VERSION, MINOR_VERSION, 0, position, 0)[: -_CHECK.size]
    return fields + _CHECK.pack(checksum64(fields))


def decode_file_header(buf: memoryview | bytes) -> int:
    """The position at which a log file begins. Raises CorruptLogError, UnknownVersionError."""
    if len(buf) < FILE_HEADER_BYTES:
        raise CorruptLogError(f"the file header has {len(buf)} of {FILE_HEADER_BYTES} bytes", offset=0)
    magic, major, _minor, _reserved, position, check = _FILE.unpack_from(buf)
    if magic != FILE_MAGIC:
        raise CorruptLogError(f"not a log file: it begins with {magic!r}", offset=0)
    if check != checksum64(buf[: FILE_HEADER_BYTES - _CHECK.size]):
        raise CorruptLogError("the checksum of the file header does not match", offset=FILE_HEADER_BYTES - _CHECK.size)
    if major != MAJOR_VERSION:
        raise UnknownVersionError(
            f"the log has version {major}, this program knows {MAJOR_VERSION}", hint="open it with a newer version"
        )
    return int(position)


@dataclass(frozen=True, slots=True)
class FrameHead:
    """The fields before a frame's body."""

    SIZE: ClassVar[int] = FRAME_HEAD_BYTES
    kind: int
    body_length: int
    count: int
    group: int
    partition: int
    first_index: int
    body_check: int

    def encode(self, position: int) -> bytes:
        """The head's bytes for a frame at `position` of the log."""
        return encode_head(
            position,
            self.kind,
            self.body_length,
            self.count,
            self.group,
            self.partition,
            self.first_index,
            self.body_check,
        )

    @classmethod
    def decode(cls, buf: memoryview | bytes, at: int, position: int) -> FrameHead:
        """Read the head at byte `at` of `buf`, which is at `position` of the log. Raises CorruptLogError."""
        if len(buf) - at < cls.SIZE:
            raise CorruptLogError("a frame head is cut short", offset=at)
        (check,) = _CHECK.unpack_from(buf, at + _HEAD.size)
        magic, kind, reserved, length, count, group, partition, first, body_check = _HEAD.unpack_from(buf, at)
        if magic != FRAME_MAGIC or check != checksum64(bytes(buf[at : at + _HEAD.size]), position):
            raise CorruptLogError("the checksum of a frame head does not match", offset=at)
        if length > MAX_BODY_BYTES or reserved != b"\0\0\0":
            raise CorruptLogError("a frame head breaks the format", offset=at)
        return cls(kind, length, count, group, partition, first, body_check)


def encode_head(
    position: int, kind: int, length: int, count: int, group: int, partition: int, first_index: int, body_check: int
) -> bytes:
    """The bytes of a `FrameHead` at `position`, without creating the object, which would cost the log's leader time."""
    fields = _HEAD.pack(
        FRAME_MAGIC, kind, b"\0\0\0", length, count, group, partition, first_index, body_check,
    )  # fmt: skip
    return fields + _CHECK.pack(checksum64(fields, position & 0xFFFF_FFFF_FFFF_FFFF))


def padded(length: int) -> int:
    """The padded size of a body of `length` bytes."""
    return length + -length % ALIGNMENT


def frame_bytes(body_length: int) -> int:
    """The size of a whole frame in bytes."""
    return FRAME_HEAD_BYTES + padded(body_length)


@lru_cache(maxsize=1024)
def plain_prefix(schema: int) -> bytes:
    """The encoded prefix of a batch without producer, sequence or note."""
    return EventsPrefix(schema).encode()


@dataclass(frozen=True, slots=True)
class EventsPrefix:
    """The fields before the record batch in the body of an events frame."""

    schema: int
    producer: str = ""
    sequence: int = 0
    fingerprint: int = 0
    note: str = ""

    def encode(self) -> bytes:
        """The encoded prefix, padded so that the record batch is aligned."""
        name = self.producer.encode()
        length = len(name) | (_NOTED if self.note else 0)
        fixed = _EVENTS.pack(self.schema, length, self.sequence, self.fingerprint)
        return fixed + _padded(name) + (_note(self.note.encode()) if self.note else b"")

    @classmethod
    def decode(cls, body: memoryview | bytes) -> tuple[EventsPrefix, int]:
        """The prefix, and the byte of the body at which the record batch begins. Raises CorruptLogError."""
        if len(body) < _EVENTS.size:
            raise CorruptLogError("the body of an events frame is cut short")
        schema, length, sequence, fingerprint = _EVENTS.unpack_from(body)
        noted, length = bool(length & _NOTED), length & ~_NOTED
        start = _EVENTS.size + padded(length)
        if start > len(body):
            raise CorruptLogError("a producer's name is longer than its frame")
        name = _text(body[_EVENTS.size : _EVENTS.size + length], "name")
        note = ""
        if noted:
            note, start = _read_note(body, start)
        return cls(schema, name, sequence, fingerprint, note), start


def _padded(stored: bytes) -> bytes:
    return stored + bytes(-len(stored) % ALIGNMENT)


def _note(stored: bytes) -> bytes:
    return _padded(_LENGTH.pack(len(stored)) + stored)


def _read_note(body: memoryview | bytes, at: int) -> tuple[str, int]:
    """The note at byte `at`, and where it ends. Raises CorruptLogError."""
    if len(body) - at < _LENGTH.size:
        raise CorruptLogError("a producer's note is cut short")
    (length,) = _LENGTH.unpack_from(body, at)
    end = at + padded(_LENGTH.size + length)
    if end > len(body):
        raise CorruptLogError("a producer's note is longer than its frame")
    return _text(body[at + _LENGTH.size : at + _LENGTH.size + length], "note"), end


def _text(stored: memoryview | bytes, what: str) -> str:
    try:
        return bytes(stored).decode()
    except UnicodeDecodeError:
        raise CorruptLogError(f"a producer's {what} is not UTF-8 text") from None
