"""Signatures of keys: 32 bits of each that a search compares instead of the keys. Equal keys have equal signatures.

They are made of a whole column at once, eight bytes of all keys at a time, so that events need no index when they
arrive and little of one when somebody asks. Of a long key they show its first words and its last one; who asks compares
the keys that are found.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

_WORD = 8
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
"""What keeps so many bytes of a little-endian word."""
_ROWS = 4096
"""Keys that are worked on together: their columns fit in a processor's cache."""
_WORDS = 8
"""Words from the front of a key that count: 64 bytes."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio, as in Fibonacci hashing."""
_FOLD = np.uint64(32)


def signatures_of(keys: pa.Array) -> U32:
    """The signature of each key of a column of strings or binary without null."""
    wide = pa.types.is_large_string(keys.type) or pa.types.is_large_binary(keys.type)
    kind = np.dtype(np.int64 if wide else np.int32)
    _, offset_buffer, data = keys.buffers()
    if not len(keys):
        return np.zeros(0, np.uint32)
    offsets = np.frombuffer(offset_buffer, kind, len(keys) + 1, keys.offset * kind.itemsize).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    stored = np.zeros((last - first) // _WORD + 2, np.dtype("<u8"))  # words can be read past the end of the last key
    if last > first:
        stored.view(np.uint8)[: last - first] = np.frombuffer(data, np.uint8, last - first, first)
    signatures = np.empty(len(keys), np.uint32)
    for at in range(0, len(keys), _ROWS):
        some = slice(at, min(at + _ROWS, len(keys)))
        starts, ends = offsets[some] - first, offsets[some.start + 1 : some.stop + 1] - first
        signatures[some] = _hashes(stored, starts, ends - starts) >> _FOLD
    return signatures


def _hashes(stored: U64, starts: I64, lengths: I64) -> U64:
    """64 bits of each of the keys that begin at `starts` of `stored`."""
    hashes = lengths.astype(np.uint64) * _FACTOR
    longest = int(lengths.max())
    for at in range(0, min(longest, _WORDS * _WORD), _WORD):
        left = np.clip(lengths - at, 0, _WORD)
        mixed = _mixed(hashes, _words_at(stored, np.where(left, starts + at, 0)) & _MASKS[left])
        hashes = np.where(left, mixed, hashes)
    if longest > _WORDS * _WORD:
        long = lengths > _WORDS * _WORD
        hashes[long] = _mixed(hashes[long], _words_at(stored, (starts + lengths)[long] - _WORD))
    return hashes


def _words_at(stored: U64, places: I64) -> U64:
    """The eight bytes at each place, of two words where it is not the place of one."""
    at = places >> 3
    shift = (places & 7).astype(np.uint64) << np.uint64(3)
    words: U64 = (stored[at] >> shift) | (stored[at + 1] << np.uint64(1) << (np.uint64(63) - shift))
    return words


def _mixed(hashes: U64, words: U64) -> U64:
    mixed = (hashes ^ words) * _FACTOR
    return (mixed ^ (mixed >> _FOLD)) * _FACTOR


@lru_cache(1024)
def signature_of(key: bytes) -> np.uint32:
    """The signature of one key."""
    return np.uint32(signatures_of(pa.array([key], pa.binary()))[0])
