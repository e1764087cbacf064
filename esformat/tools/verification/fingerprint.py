"""Fingerprints of sets of (value, number) pairs, to compare two sets of any size without storing either.

A pair is hashed to 64 bits, and the hashes of a set are added modulo 2^64. Different sets have the same sum with a
probability of 1 in 2^64.
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
    """A 64-bit hash of an index value."""
    return checksum64(value.encode() if isinstance(value, str) else b"%d" % value)


def hash_pairs(values: U64, numbers: I64) -> U64:
    """The hash of each pair of a hashed value and a number, from parallel arrays."""
    mixed = values + numbers.view(np.uint64) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    hashes: U64 = mixed ^ (mixed >> np.uint64(31))
    return hashes


def sum_of(value: int, numbers: I64) -> int:
    """The fingerprint of the set that pairs one hashed value with each number."""
    return int(hash_pairs(np.array([value], dtype=np.uint64), numbers).sum(dtype=np.uint64)) & _MASK
