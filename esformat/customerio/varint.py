"""LEB128 numbers (`uvarint`): decoding and encoding one at a time, or many at once with NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.errors import CorruptSegmentError

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

MAX_BYTES = 9  # 63 bits: no length or offset in a file needs more
PADDING = bytes(16)
"""Padding at the end of buffers, so that a number at the last byte can be read without bounds checks."""
_BROKEN = "a number is cut short, larger than 63 bits or longer than it needs to be"


def decode(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the number at byte `at`, and its end. Raises CorruptSegmentError if it is invalid or not minimal."""
    if at < len(data) and data[at] < 0x80:  # nearly always
        return data[at], at + 1
    value = shift = 0
    for place in range(at, min(at + MAX_BYTES, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte and shift:
                break
            return value, place + 1
        shift += 7
    raise CorruptSegmentError(_BROKEN)


def encode(value: int) -> bytes:
    """Return the bytes of a number."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_many(padded: U8, places: I64) -> tuple[I64, I64]:
    """Return the numbers at `places`, and their ends. `padded` must end in PADDING, which contains no place.

    Raises CorruptSegmentError as `decode` does.
    """
    first = padded[places]
    values = (first & 0x7F).astype(np.int64)
    ends = places + 1
    going = np.flatnonzero(first >= 0x80)
    shift = 7
    while len(going):
        byte = padded[ends[going]]
        if shift == 7 * MAX_BYTES or not byte.all():
            raise CorruptSegmentError(_BROKEN)
        values[going] |= (byte & 0x7F).astype(np.int64) << shift
        ends[going] += 1
        going = going[byte >= 0x80]
        shift += 7
    return values, ends


def sizes(values: I64) -> I64:
    """Return the encoded size of each number."""
    taken = np.ones(len(values), dtype=np.int64)
    rest = values >> 7
    while rest.any():
        taken += rest > 0
        rest >>= 7
    return taken


def encode_many(values: I64) -> pa.Array:
    """Return the bytes of each number as a binary array."""
    taken = sizes(values)
    offsets = np.concatenate([[0], np.cumsum(taken)])
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    places, rest = offsets[:-1].copy(), values.copy()
    going: I64 = np.arange(len(values))
    while len(going):
        more = rest[going] >= 0x80
        out[places[going]] = (rest[going] & 0x7F) | np.where(more, 0x80, 0)
        places[going] += 1
        rest[going] >>= 7
        going = going[more]
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)
