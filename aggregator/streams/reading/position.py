"""Positions of readers in streams, as opaque text that is validated when it is used.

Reading proceeds in rounds. A round covers the record indexes [begin, end) of each partition, in order of time,
partition and record index. Records that arrive meanwhile, however old their timestamps, belong to the next round. So
each record is in exactly one round, and the order within a round never changes. A position contains the round and the
last record of it that was returned; its size grows with the number of partitions, not of streams.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from aggregator.errors import InvalidRequestError
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.manifest.lineage import NAME_BYTES, Lineage

Key = tuple[int, int, int]
"""The sort key of records: time in µs, number of the partition, record index."""

_PREFIX = "p1"  # also keeps the text a word of LQL, which needs no quotes
_CHECK_BYTES = 6
_IDENTITY_BYTES = 8
_HEAD_BYTES = _IDENTITY_BYTES + NAME_BYTES  # with the incarnation that assigned the newest record before it
_TIME = struct.Struct("<q")
_MAX_TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class Position:
    """begin, end: record indexes by partition, 0 by default. `after` is None if nothing of the round was returned yet.

    A position between rounds has an empty `end`: the next round begins at `begin`.
    """

    begin: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)
    after: Key | None = None

    @property
    def ends(self) -> dict[int, int]:
        """For each partition, the record index below which all records had been assigned when this was created."""
        return {**self.begin, **{number: max(end, self.begin.get(number, 0)) for number, end in self.end.items()}}


def encode(position: Position, lineage: Lineage) -> str:
    """The text of a position in the catalog with that lineage."""
    after = position.after
    body = bytearray(lineage.identity[:_IDENTITY_BYTES])
    body += lineage.name_of(position.ends)
    body.append(after is not None)
    if after is not None:
        body += _TIME.pack(after[0])
        _put(body, after[1])
        _put(body, after[2] + 1)  # -1 is before the first
    partitions = sorted({*position.begin, *position.end} if after is not None else position.begin)
    _put(body, len(partitions))
    for number in partitions:
        _put(body, number)
        begin = position.begin.get(number, 0)
        _put(body, begin)
        if after is not None:
            _put(body, max(0, position.end.get(number, 0) - begin))
    checksum = checksum64(bytes(body)).to_bytes(8, "little")[:_CHECK_BYTES]
    return _PREFIX + base64.urlsafe_b64encode(bytes(body) + checksum).decode().rstrip("=")


def decode(text: str, lineage: Lineage, visible: Mapping[int, int]) -> Position:
    """Decode a position. visible: the record index after the last visible record of each partition.

    Raises InvalidRequestError if it was mistyped, or is from another catalog or from a state that this one does not
    have.
    """
    wrong = InvalidRequestError(
        f"invalid position {text[:40]!r}", hint="use a position exactly as a result returned it, or HEAD or TAIL"
    )
    if not text.startswith(_PREFIX) or len(text) > _MAX_TEXT or not text.isascii():
        raise wrong
    stored = text[len(_PREFIX) :]
    try:
        whole = base64.b64decode(stored + "=" * (-len(stored) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise wrong from None
    body, checksum = whole[:-_CHECK_BYTES], whole[-_CHECK_BYTES:]
    exact = base64.urlsafe_b64encode(whole).decode().rstrip("=") == stored
    if not exact or checksum64(body).to_bytes(8, "little")[:_CHECK_BYTES] != checksum:
        raise wrong
    if body[:_IDENTITY_BYTES] != lineage.identity[:_IDENTITY_BYTES]:
        raise InvalidRequestError(
            "the position belongs to another catalog", hint="use it with that catalog, or start at HEAD"
        )
    try:
        position = _read(body)
    except (IndexError, struct.error):
        raise wrong from None
    lineage.check(body[_IDENTITY_BYTES:_HEAD_BYTES], position.ends, visible)
    return position


def _read(body: bytes) -> Position:
    at = _HEAD_BYTES + 1
    after: Key | None = None
    if body[_HEAD_BYTES]:
        (time,) = _TIME.unpack_from(body, at)
        partition, at = _get(body, at + _TIME.size)
        index, at = _get(body, at)
        after = (time, partition, index - 1)
    count, at = _get(body, at)
    begin: dict[int, int] = {}
    end: dict[int, int] = {}
    for _ in range(count):
        number, at = _get(body, at)
        begin[number], at = _get(body, at)
        if after is not None:
            length, at = _get(body, at)
            end[number] = begin[number] + length
    return Position(begin, end, after)


def _put(body: bytearray, number: int) -> None:
    """Append a nonnegative number, seven bits at a time, lowest first."""
    while number >= 0x80:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)


def _get(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at
