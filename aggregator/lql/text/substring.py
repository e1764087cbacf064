"""Which texts of a batch hold a substring: two neighbouring bytes of it, sought in the bytes of all texts at once.

NumPy compares a hundred bytes where a search text by text has gone two or three steps, and needs no lock meanwhile.
Bytes are compared in pairs, as numbers of 16 bits at even addresses: a substring of three bytes or more has such a pair
wherever it begins, one of its own if it begins at an even address, and another if it begins at an odd one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

LEAST_BYTES = 1 << 16
"""Below this a search text by text is as fast."""
_CHUNK = 1 << 17  # pairs that are compared at a time: they stay in the processor's cache
_SAMPLE = 1 << 12  # pairs that tell which ones are rare
_CANDIDATES = 64  # first bytes of the substring among which a rare pair is chosen
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Pairs = npt.NDArray[np.uint16]


def texts_with(texts: pa.Array, wanted: bytes) -> Bools | None:
    """Whether each text of a binary array without nulls holds `wanted`; None where looking like this does not pay."""
    _, offsets_buffer, stored = texts.buffers()
    if len(wanted) < 3 or stored is None or not len(texts):
        return None
    kind = np.int64 if pa.types.is_large_binary(texts.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, kind)[texts.offset : texts.offset + len(texts) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first < LEAST_BYTES:
        return None
    begin = first + (stored.address + first) % 2
    data = np.frombuffer(stored, np.uint8)
    places = _places(data[begin : last - (last - begin) % 2].view(np.uint16), wanted, len(texts))
    if places is None:
        return None
    places += begin
    places = places[(places >= first) & (places + len(wanted) <= last)]
    for at, byte in enumerate(wanted):
        if not len(places):
            break
        places = places[data[places + at] == byte]
    rows = np.searchsorted(offsets, places, side="right") - 1
    ends: I64 = offsets[rows + 1].astype(np.int64)
    found = np.zeros(len(texts), np.bool_)
    found[rows[places + len(wanted) <= ends]] = True
    return found


def _places(pairs: Pairs, wanted: bytes, most: int) -> I64 | None:
    """Where `wanted` may begin, as far as a pair of it tells, counted in bytes; None for more than `most` places."""
    sample = pairs[:: max(1, len(pairs) // _SAMPLE) | 1]  # odd: texts of equal length are not always met at one place
    sought = [_rarest(sample, wanted, parity) for parity in (0, 1)]
    equal = np.empty(_CHUNK, np.bool_)
    found: list[I64] = []
    left = most
    for begin in range(0, len(pairs), _CHUNK):
        some = pairs[begin : begin + _CHUNK]
        for at, pair in sought:
            mask = np.equal(some, pair, out=equal[: len(some)])
            if mask.any():
                places = 2 * (np.flatnonzero(mask) + begin) - at
                left -= len(places)
                if left < 0:
                    return None
                found.append(places)
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _rarest(sample: Pairs, wanted: bytes, parity: int) -> tuple[int, np.uint16]:
    """Of the pairs that begin at every second byte, the one that a sample has least often: where it is, and itself."""
    places = range(parity, min(len(wanted) - 1, _CANDIDATES), 2)
    pairs = [(at, np.frombuffer(wanted, np.uint16, 1, at)[0]) for at in places]
    return min(pairs, key=lambda pair: np.count_nonzero(sample == pair[1]))
