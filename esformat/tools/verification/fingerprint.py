"""Sets of (value, number) pairs as one number each, to compare two of any size without keeping either.

A pair is hashed to 64 bits and the hashes of a set are added up modulo 2^64. Sets that differ have the same sum by
chance once in 2^64 times.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from esformat.format.checksum import checksum64

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

# The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def hash_value(value: str | int | bool) -> int:
    """64 bits of a value of an index."""
    return checksum64(value.encode() if isinstance(value, str) else b"%d" % value)


def hash_pairs(values: U64, numbers: I64) -> U64:
    """The hash of each pair, of hashed values and numbers side by side."""
    mixed = values + numbers.view(np.uint64) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    hashes: U64 = mixed ^ (mixed >> np.uint64(31))
    return hashes


def sum_of(value: int, numbers: I64) -> int:
    """The sum of the set that pairs one hashed value with each of some numbers."""
    return int(hash_pairs(np.array([value], dtype=np.uint64), numbers).sum(dtype=np.uint64)) & _MASK
