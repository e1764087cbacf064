"""The zstd dictionary of a column, trained on a part of a sample, and whether it pays for itself on another part."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from esformat.format.arrays import bytes_of
from esformat.format.codec import Codec, Compressor, make_compressor, train_dictionary
from esformat.format.encoding import frame_rows

ZSTD_DICTIONARY_BYTES = 4 << 10
MIN_SAMPLED_BYTES = 64 << 10
TRAINED_BYTES, TRIED_BYTES = 1 << 20, 256 << 10
"""More of a sample makes no better dictionary of that size, and no better guess at what it saves; both take longer."""
LARGE_BYTES = 16 << 20
"""Of a column that is smaller as much less is trained on and tried, down to a quarter: it has less to save."""
TRIED = 4
"""One frame in so many is not trained on, and tried afterwards."""
LEAST_SAVED = 20
"""A dictionary is taken where it saves one byte in so many: compressing with it takes a third more time."""


def train_on(
    sample: pa.Array, byte_count: int, codec: Codec, level: int | None, frame_bytes: int | None = None
) -> bytes:
    """A zstd dictionary for a column of `byte_count` bytes in all, or b"" where it does not pay for itself.

    `sample`: rows of the column in segment order, many short runs of them. `frame_bytes`: as `frame_rows` takes it.
    """
    offsets, data = bytes_of(sample)
    if codec is not Codec.ZSTD or byte_count < MIN_SAMPLED_BYTES or not len(data):
        return b""
    rows = frame_rows(len(sample), len(data), frame_bytes)
    edges = offsets[np.append(np.arange(0, len(sample), rows), len(sample))]
    frames = [bytes(data[a:b]) for a, b in pairwise(edges.tolist()) if b > a]
    tried = _spread(frames[::TRIED], _share(byte_count, TRIED_BYTES))
    del frames[::TRIED]
    trained = train_dictionary(_spread(frames, _share(byte_count, TRAINED_BYTES)), ZSTD_DICTIONARY_BYTES)
    if trained is None:
        return b""
    stored = trained.as_bytes()
    without, with_it = make_compressor(codec, level), make_compressor(codec, level, trained)
    plain = _stored_bytes(tried, without)
    saved = plain - _stored_bytes(tried, with_it)
    pays = saved * byte_count > 2 * len(stored) * sum(map(len, tried))
    return stored if pays and saved * LEAST_SAVED >= plain else b""


def _share(byte_count: int, most_bytes: int) -> int:
    """So much of a sample of a column of that size."""
    return max(most_bytes // 4, most_bytes * min(byte_count, LARGE_BYTES) // LARGE_BYTES)


def _spread(frames: list[bytes], most_bytes: int) -> list[bytes]:
    """Frames of about so many bytes together, at least one, evenly spread over those given."""
    share = most_bytes / max(most_bytes, sum(map(len, frames)))
    return [frame for place, frame in enumerate(frames) if int((place + 1) * share) > int(place * share)] or frames[:1]


def _stored_bytes(frames: list[bytes], compressor: Compressor) -> int:
    """What frames take when they are compressed."""
    edges = np.cumsum([0, *map(len, frames)])
    return sum(map(len, compressor.compress_many(memoryview(b"".join(frames)), edges)))
