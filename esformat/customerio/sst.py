"""Sorted tables in LevelDB's format, which map keys to values in checksummed blocks of about 4 KiB."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from esformat.customerio.crc import check_crc, masked_crc
from esformat.customerio.varint import decode, encode
from esformat.errors import CorruptSegmentError

MAGIC = bytes.fromhex("57fb808b247547db")
FOOTER_BYTES = 48
_HANDLES_BYTES = FOOTER_BYTES - len(MAGIC)
_TAIL_BYTES = 5  # after each block: its type, then the checksum of both
_BLOCK_BYTES = 4096  # when a data block is full
_RESTART_KEYS = 16  # every 16th key is written in full
_U32 = struct.Struct("<I")

Pair = tuple[bytes, bytes]


class _Handle(NamedTuple):
    offset: int
    length: int

    @classmethod
    def decode(cls, data: bytes, at: int) -> tuple[_Handle, int]:
        offset, at = decode(data, at)
        length, at = decode(data, at)
        return cls(offset, length), at

    def encode(self) -> bytes:
        return encode(self.offset) + encode(self.length)


class Table:
    """A table in memory. Its blocks are verified and decoded on demand."""

    def __init__(self, data: bytes, origin: int) -> None:
        """`origin`: the table's offset in the file, for messages. Raises CorruptSegmentError."""
        self._data, self._origin = data, origin
        if len(data) < FOOTER_BYTES or data[-len(MAGIC) :] != MAGIC:
            raise CorruptSegmentError("a sorted table does not end in its magic bytes", offset=origin + len(data))
        footer = data[-FOOTER_BYTES : -len(MAGIC)]
        meta, at = _Handle.decode(footer, 0)
        index, at = _Handle.decode(footer, at)
        if footer[at:].strip(b"\0"):
            raise CorruptSegmentError("the footer of a sorted table is not padded with zeros", offset=origin)
        if data[meta.offset : meta.offset + len(_NO_PAIRS)] != _NO_PAIRS and self._block(meta):
            raise CorruptSegmentError("a sorted table has meta blocks, which nobody writes", offset=origin)
        self._separators: list[bytes] = []
        self._handles: list[_Handle] = []
        end = 0
        for separator, stored in self._block(index):
            handle, used = _Handle.decode(stored, 0)
            if used != len(stored) or handle.offset != end:
                raise CorruptSegmentError("the blocks of a sorted table do not follow each other", offset=origin)
            end = handle.offset + handle.length + _TAIL_BYTES
            self._separators.append(separator)
            self._handles.append(handle)
        if meta.offset != end or index.offset != meta.offset + meta.length + _TAIL_BYTES:
            raise CorruptSegmentError("the blocks of a sorted table do not follow each other", offset=origin)
        if index.offset + index.length + _TAIL_BYTES + FOOTER_BYTES != len(data):
            raise CorruptSegmentError("a sorted table is longer than its blocks", offset=origin)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if the key is absent."""
        number = bisect_left(self._separators, key)
        if number == len(self._handles):
            return None
        pairs = self._block(self._handles[number])
        at = bisect_left(pairs, key, key=lambda pair: pair[0])
        return pairs[at][1] if at < len(pairs) and pairs[at][0] == key else None

    def items(self) -> Iterator[Pair]:
        """Yield every key and value, in order."""
        last: bytes | None = None
        for separator, handle in zip(self._separators, self._handles, strict=True):
            pairs = self._block(handle)
            if pairs and ((last is not None and pairs[0][0] <= last) or pairs[-1][0] > separator):
                raise CorruptSegmentError("the keys of a sorted table do not ascend", offset=self._origin)
            yield from pairs
            last = pairs[-1][0] if pairs else last

    def _block(self, handle: _Handle) -> list[Pair]:
        start, end = handle.offset, handle.offset + handle.length
        at = self._origin + start
        if end + _TAIL_BYTES > len(self._data):
            raise CorruptSegmentError("a block of a sorted table lies outside it", offset=at)
        (stored,) = _U32.unpack_from(self._data, end + 1)
        check_crc(self._data[start : end + 1], stored, at)
        if self._data[end]:
            raise CorruptSegmentError(f"a block of a sorted table has unknown type {self._data[end]}", offset=at)
        return _decode_block(self._data[start:end], at)


def _decode_block(data: bytes, origin: int) -> list[Pair]:
    """Decode the keys and values of a block. At most 15 keys in a row share a prefix with the previous one."""
    if len(data) < _U32.size:
        raise CorruptSegmentError("a block of a sorted table is cut short", offset=origin)
    end = len(data) - _U32.size * (_U32.unpack_from(data, len(data) - _U32.size)[0] + 1)
    pairs: list[Pair] = []
    key, at, since_restart = b"", 0, 0
    while at < end:
        if data[at] < 0x80 and data[at + 1] < 0x80 and data[at + 2] < 0x80:
            shared, unshared, length = data[at : at + 3]
            at += 3
        else:
            shared, at = decode(data, at)
            unshared, at = decode(data, at)
            length, at = decode(data, at)
        since_restart = since_restart + 1 if shared else 0
        if shared > len(key) or at + unshared + length > end or since_restart >= _RESTART_KEYS:
            raise CorruptSegmentError("an entry of a sorted table does not fit", offset=origin + at)
        before, key = key, key[:shared] + data[at : at + unshared]
        if pairs and key <= before:
            raise CorruptSegmentError("the keys of a sorted table do not ascend", offset=origin + at)
        at += unshared
        pairs.append((key, data[at : at + length]))
        at += length
    if at != end or end < 0:
        raise CorruptSegmentError("a block of a sorted table does not end where it should", offset=origin)
    return pairs


def encode_table(pairs: Iterable[Pair]) -> bytes:
    """Encode a table of ascending keys with their values."""
    out = bytearray()
    index: list[Pair] = []
    block = _BlockWriter()
    last = b""
    full: _Handle | None = None  # the previous block: its separator depends on the next key
    for key, value in pairs:
        if full is not None:
            index.append((_separator(last, key), full.encode()))
            full = None
        block.add(key, value)
        last = key
        if block.size_bytes >= _BLOCK_BYTES:
            full = _append(out, block.finish())
            block = _BlockWriter()
    if block.count:
        full = _append(out, block.finish())
    if full is not None:
        index.append((_successor(last), full.encode()))
    meta = _append(out, _BlockWriter().finish())
    entries = _BlockWriter(restart_keys=1)  # index blocks contain full keys, for binary search
    for key, value in index:
        entries.add(key, value)
    handle = _append(out, entries.finish())
    return bytes(out) + (meta.encode() + handle.encode()).ljust(_HANDLES_BYTES, b"\0") + MAGIC


class _BlockWriter:
    def __init__(self, restart_keys: int = _RESTART_KEYS) -> None:
        self._out = bytearray()
        self._restarts: list[int] = []
        self._restart_keys = restart_keys
        self.count = 0
        self._last = b""

    @property
    def size_bytes(self) -> int:
        return len(self._out) + _U32.size * (len(self._restarts) + 1)

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self.count % self._restart_keys == 0:
            self._restarts.append(len(self._out))
        else:
            shared = _shared_bytes(self._last, key)
        self._out += encode(shared) + encode(len(key) - shared) + encode(len(value)) + key[shared:] + value
        self._last = key
        self.count += 1

    def finish(self) -> bytes:
        restarts = self._restarts or [0]
        return bytes(self._out) + b"".join(map(_U32.pack, (*restarts, len(restarts))))


def _append(out: bytearray, block: bytes) -> _Handle:
    handle = _Handle(len(out), len(block))
    typed = block + b"\0"  # not compressed
    out += typed + _U32.pack(masked_crc(typed))
    return handle


def _shared_bytes(one: bytes, other: bytes) -> int:
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)


def _separator(last: bytes, following: bytes) -> bytes:
    """Return a short key that is at least `last` and below `following`."""
    at = _shared_bytes(last, following)
    if at < min(len(last), len(following)) and last[at] < 0xFF and last[at] + 1 < following[at]:
        return last[:at] + bytes([last[at] + 1])
    return last


def _successor(last: bytes) -> bytes:
    """Return a short key that is at least `last`."""
    at = next((at for at, byte in enumerate(last) if byte != 0xFF), None)
    return last if at is None else last[:at] + bytes([last[at] + 1])


_NO_PAIRS = bytes.fromhex("000000000100000000c0f2a1b0")
"""An empty block with its checksum. Every table has one, so comparing bytes avoids decoding it."""
