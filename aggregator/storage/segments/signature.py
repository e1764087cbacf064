"""Signatures of segments: a small Bloom filter over the spaces of each. Planning uses it to skip segments that lack a
space although it is between their smallest and largest key.

Only segments of few spaces have a signature. For others, the segment's own filter is queried, which takes microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from aggregator.storage.files.checksum import checksum64

U8 = npt.NDArray[np.uint8]

SIGNATURE_BYTES = 128
"""Size of each signature, in memory and in the manifest: 13 MB for 100,000 segments."""
MAX_SPACES = 256
"""A segment with more spaces has no signature: even with this many, one in seven absent spaces appears to be present.
"""
HASHES = 3
_BITS = 10  # of a hash: a position among 8 × SIGNATURE_BYTES bits


def places_of(space: bytes) -> list[int]:
    """The positions of a space's bits."""
    hashed = checksum64(space)
    return [(hashed >> _BITS * number) % (8 * SIGNATURE_BYTES) for number in range(HASHES)]


def signature_of_spaces(spaces: Iterable[bytes]) -> bytes:
    """The signature of a segment with these spaces."""
    bits = bytearray(SIGNATURE_BYTES)
    for space in spaces:
        for place in places_of(space):
            bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)


def merged_signature(signatures: Sequence[bytes]) -> bytes:
    """The signature of a merged segment: of all spaces of the others; empty if one of them has no signature."""
    if not all(signatures):
        return b""
    merged: U8 = np.bitwise_or.reduce([np.frombuffer(signature, np.uint8) for signature in signatures])
    return merged.tobytes()


def columns_of(signatures: Iterable[bytes]) -> U8:
    """Signatures as columns of a matrix; an absent signature matches every space."""
    full = b"\xff" * SIGNATURE_BYTES
    whole = b"".join(signature if len(signature) == SIGNATURE_BYTES else full for signature in signatures)
    return np.frombuffer(whole, np.uint8).reshape(-1, SIGNATURE_BYTES).T


def can_hold(columns: U8, space: bytes) -> npt.NDArray[np.bool_]:
    """For each column, whether the segment may contain the space."""
    mask = np.ones(columns.shape[1], np.bool_)
    for place in places_of(space):
        mask &= (columns[place >> 3] & np.uint8(1 << (place & 7))) != 0
    return mask
