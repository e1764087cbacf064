"""Signatures of segments: a small Bloom filter over the spaces of each, so that planning passes over segments whose
span of keys holds a space that they do not have.

They are for segments of few spaces. One of many has none, and is asked itself: its own filter answers in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from aggregator.storage.files.checksum import checksum64

U8 = npt.NDArray[np.uint8]

SIGNATURE_BYTES = 128
"""Of each segment, in memory and in the manifest: 13 MB for 100,000 segments."""
MAX_SPACES = 256
"""A segment of more spaces has no signature: already with so many, one in seven absent spaces seems to be there."""
HASHES = 3
_BITS = 10  # of a hash: a place among 8 × SIGNATURE_BYTES bits


def places_of(space: bytes) -> list[int]:
    """The bits that stand for a space."""
    hashed = checksum64(space)
    return [(hashed >> _BITS * number) % (8 * SIGNATURE_BYTES) for number in range(HASHES)]


def signature_of_spaces(spaces: Iterable[bytes]) -> bytes:
    """The signature of a segment with those spaces."""
    bits = bytearray(SIGNATURE_BYTES)
    for space in spaces:
        for place in places_of(space):
            bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)


def merged_signature(signatures: Sequence[bytes]) -> bytes:
    """The signature of a segment made of others: of all their spaces."""
    if not all(signatures):
        return b""
    merged: U8 = np.bitwise_or.reduce([np.frombuffer(signature, np.uint8) for signature in signatures])
    return merged.tobytes()


def columns_of(signatures: Iterable[bytes]) -> U8:
    """Signatures as columns of a matrix; one that is absent is that of any space."""
    full = b"\xff" * SIGNATURE_BYTES
    whole = b"".join(signature if len(signature) == SIGNATURE_BYTES else full for signature in signatures)
    return np.frombuffer(whole, np.uint8).reshape(-1, SIGNATURE_BYTES).T


def can_hold(columns: U8, space: bytes) -> npt.NDArray[np.bool_]:
    """For each column whether the segment can have the space."""
    mask = np.ones(columns.shape[1], np.bool_)
    for place in places_of(space):
        mask &= (columns[place >> 3] & np.uint8(1 << (place & 7))) != 0
    return mask
