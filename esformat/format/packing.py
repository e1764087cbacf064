"""Packed integers: a sequence of whole numbers, stored as fixed-width bits or as byte planes, most of them compressed.

Every count, length, code and fixed-width value of the format is stored this way. First the minimum (the base) is
subtracted. If the numbers compress little, each is stored in as many bits as the largest needs, so that any of them can
be read without the others. Otherwise they are stored plane by plane: all lowest bytes, then all second bytes, … The
lowest planes of noisy numbers do not compress, so a writer may leave some raw.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.numbers import BITS, Pack, join_many, join_planes, pack_bits, read_columns, read_pack
from esformat.format.codec import Compressor, Decompressor

__all__ = [
    "BITS",
    "Pack",
    "best_raw",
    "decode_columns",
    "decode_ints",
    "decode_many",
    "encode_int_slices",
    "encode_ints",
    "encode_planes",
    "plane_bytes",
    "read_pack",
    "read_packs",
]

_PACK = struct.Struct(
    "<"
    "B"  # width: bytes stored of each number, 0…8; in a pack of bits, bits of each number, 1…64
    "B"  # raw planes: how many low planes are stored uncompressed, before the compressed ones; BITS for a pack of bits
    "B"  # base length: bytes of the base that follow, 0 or 8
    "B"  # codec of the compressed planes
    "I"  # stored length of the compressed planes, or of the bits
)
SPARE_BITS = 1.125
"""Bits per number that a pack of bits may take beyond planes when `bits_cost` is above 1: a lot relative to a small
number, but little relative to an event.
"""
_MASK = (1 << 64) - 1

Bytes2D = npt.NDArray[np.uint8]


def _planes_of(values: npt.NDArray[np.generic]) -> Bytes2D:
    return values.view(np.uint8).reshape(len(values), 8)


def _assemble(matrix: Bytes2D, raw: int, base: int, compressor: Compressor) -> bytes:
    """Assemble a pack of planes from `matrix` (numbers × stored bytes): header, base, raw planes, compressed planes."""
    width = matrix.shape[1]
    raw = min(raw, width)
    planes = matrix.T.tobytes()
    cut = raw * len(matrix)
    rest = planes[cut:]
    codec, stored = 0, rest
    if rest:
        packed = compressor.compress(rest)
        if len(packed) < len(rest):
            codec, stored = int(compressor.codec), packed
    return _head(width, raw, base, codec, len(stored)) + planes[:cut] + stored


def _head(width: int, raw: int, base: int, codec: int, stored_bytes: int) -> bytes:
    base_bytes = base.to_bytes(8, "little", signed=True) if base else b""
    return _PACK.pack(width, raw, len(base_bytes), codec, stored_bytes) + base_bytes


def _encode(
    values: npt.NDArray[np.integer], low: int, high: int, compressor: Compressor, raw: int, bits_cost: float
) -> bytes:
    """Pack numbers between `low` and `high` as bits or as planes."""
    if low == high:
        return _head(0, 0, low, 0, 0)
    base, bits = _bits(low, high, len(values))
    head = _head(bits, BITS, base, 0, (bits * len(values) + 7) // 8)
    if raw < _width(high - low):  # otherwise planes would be no smaller
        planes = encode_planes(values, compressor, raw=raw, low=low, high=high)
        most = bits_cost * len(planes)
        if bits_cost > 1:
            most = max(most, len(planes) + SPARE_BITS * len(values) / 8)
        if len(head) + (bits * len(values) + 7) // 8 > most:
            return planes
    return head + pack_bits(values, base, bits)


def _bits(low: int, high: int, count: int) -> tuple[int, int]:
    """The base of a pack of bits, and the bits of each number. The base is 0 unless it saves more than it takes."""
    with_base = (high - low).bit_length()
    if low < 0 or count * (high.bit_length() - with_base) > 64:
        return low, with_base
    return 0, high.bit_length()


def encode_planes(
    values: npt.NDArray[np.integer],
    compressor: Compressor,
    *,
    raw: int = 0,
    low: int | None = None,
    high: int | None = None,
) -> bytes:
    """Pack whole numbers as planes. low, high: the smallest and the largest of them, if known."""
    low = int(values.min()) if low is None else low
    high = int(values.max()) if high is None else high
    if low >= 0 and _width(high) == _width(high - low):
        low = 0  # a base would save no byte
    shifted = values.view(np.uint64) - np.uint64(low & _MASK) if low else np.ascontiguousarray(values)
    return _assemble(_planes_of(shifted)[:, : _width(high - low)], raw, low, compressor)


def encode_ints(
    values: npt.NDArray[np.integer], compressor: Compressor, *, raw: int = 0, bits_cost: float = 1.0
) -> bytes:
    """Pack whole numbers of any integer dtype; uint64 as the int64 with the same bits.

    raw: the number of planes left uncompressed. bits_cost: numbers are stored as bits if that takes at most this many
    times the size of planes; if it is above 1, also if it takes at most SPARE_BITS more per number.
    """
    if not len(values):
        return _PACK.pack(0, 0, 0, 0, 0)
    values = values.astype(np.int64, copy=False)
    low, high = int(values.min()), int(values.max())
    return _encode(np.ascontiguousarray(values), low, high, compressor, raw, bits_cost)


def encode_int_slices(
    values: npt.NDArray[np.integer], bounds: list[int], compressor: Compressor, *, raw: int = 0, bits_cost: float = 1.0
) -> list[bytes]:
    """Pack values[bounds[i]:bounds[i+1]] for each i, with its own base and width. Options as in `encode_ints`."""
    if len(bounds) == 2:  # few array operations: they dominate for small segments and directory leaves
        return [encode_ints(values[bounds[0] : bounds[1]], compressor, raw=raw, bits_cost=bits_cost)]
    if len(values) == 0:
        return [_PACK.pack(0, 0, 0, 0, 0)] * (len(bounds) - 1)
    values = np.ascontiguousarray(values.astype(np.int64, copy=False))
    starts = np.asarray(bounds[:-1])
    filled = np.diff(bounds) > 0
    low = np.zeros(len(starts), dtype=np.int64)
    high = np.zeros(len(starts), dtype=np.int64)
    low[filled] = np.minimum.reduceat(values, starts[filled])
    high[filled] = np.maximum.reduceat(values, starts[filled])
    return [
        _encode(values[a:b], least, most, compressor, raw, bits_cost) if a < b else _PACK.pack(0, 0, 0, 0, 0)
        for a, b, least, most in zip(bounds[:-1], bounds[1:], low.tolist(), high.tolist(), strict=True)
    ]


def _width(span: int) -> int:
    """The number of bytes that a number needs."""
    return (span.bit_length() + 7) // 8


def plane_bytes(body: memoryview, pack: Pack, decompressor: Decompressor) -> bytes:
    """The byte planes of a pack, lowest first: byte k of number i is at k × count + i. Bits are unpacked to planes."""
    if pack.bits:
        return _unpacked(body, pack)
    if pack.raw == pack.width:
        return bytes(body[pack.raw_at : pack.stored_at])
    rest = _rest(body, pack, decompressor)
    return bytes(body[pack.raw_at : pack.stored_at]) + rest if pack.raw else rest


def _unpacked(body: memoryview, pack: Pack) -> bytes:
    """The byte planes of the numbers in a pack of bits, without its base."""
    numbers = np.empty(pack.numbers, np.int64)
    join_planes(body, pack, b"", 0, 0, numbers, 0, pack.numbers)
    if pack.base:
        numbers -= pack.base
    return _planes_of(numbers)[:, : pack.width].T.tobytes()


def _rest(body: memoryview, pack: Pack, decompressor: Decompressor) -> bytes:
    """Decompress the planes of a pack that are not raw."""
    if pack.bits or pack.raw == pack.width:
        return b""
    return decompressor.decompress(pack.codec, body[pack.stored_at : pack.end], (pack.width - pack.raw) * pack.numbers)


def decode_ints(
    body: memoryview, pack: Pack, decompressor: Decompressor, low: int = 0, high: int | None = None
) -> npt.NDArray[np.int64]:
    """Decode numbers [low, high) of a pack as int64."""
    numbers = np.empty((pack.numbers if high is None else high) - low, np.int64)
    join_planes(body, pack, _rest(body, pack, decompressor), 0, low, numbers, 0, len(numbers))
    return numbers


def decode_many(parts: list[tuple[memoryview, Pack]], decompressor: Decompressor) -> npt.NDArray[np.integer]:
    """Decode the numbers of several packs, one after another: as bytes if all are stored as bytes, else as int64."""
    joined = join_many(parts, decompressor, pa.allocate_buffer)  # from Arrow's pool, which reuses its pages
    return np.frombuffer(joined, np.int64) if isinstance(joined, pa.Buffer) else np.asarray(joined)


def decode_columns(
    body: memoryview, at: int, count: int, columns: int, decompressor: Decompressor
) -> tuple[npt.NDArray[np.int64], int]:
    """Decode adjacent packs of `count` numbers each, as (columns × count), and return the byte after the last."""
    numbers = np.empty(columns * count, np.int64)
    end = read_columns(body, at, count, columns, numbers)
    if end < 0:
        packs = read_packs(body, at, count, columns)
        many = decode_many([(body, pack) for pack in packs], decompressor)
        numbers, end = many.astype(np.int64, copy=False), packs[-1].end
    return numbers.reshape(columns, count), end


def read_packs(body: memoryview, at: int, count: int, columns: int) -> list[Pack]:
    """Read the headers of several adjacent packs of `count` numbers each."""
    packs = []
    for _ in range(columns):
        pack = read_pack(body, at, count)
        packs.append(pack)
        at = pack.end
    return packs


def best_raw(values: npt.NDArray[np.integer], compressor: Compressor) -> int:
    """The number of low planes that a writer should leave raw for such numbers: the one with the smallest result."""
    if not len(values):
        return 0
    values = np.ascontiguousarray(values.astype(np.int64, copy=False))
    sizes = [len(encode_planes(values, compressor, raw=raw)) for raw in range(9)]
    return sizes.index(min(sizes))
