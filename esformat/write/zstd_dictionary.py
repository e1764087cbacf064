"""Train the zstd dictionary of a column on part of a sample, and test on another part whether it pays off."""

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
"""Most bytes to train on and to try. More would neither improve a dictionary of that size nor the estimate of its
savings, and take longer.
"""
LARGE_BYTES = 16 << 20
"""Training and trial use proportionally less for smaller columns, down to a quarter: there is less to save."""
TRIED = 4
"""One frame in this many is excluded from training, for the trial."""
LEAST_SAVED = 20
"""A dictionary is used if it saves at least one byte in this many: compressing with it takes a third longer."""


def train_on(
    sample: pa.Array, byte_count: int, codec: Codec, level: int | None, frame_bytes: int | None = None
) -> bytes:
    """A zstd dictionary for a column of `byte_count` bytes in total, or b"" if it does not pay off.

    `sample`: rows of the column in segment order, many short groups of them. `frame_bytes`: as in `frame_rows`.
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
    """The part of `most_bytes` to use for a column of this size."""
    return max(most_bytes // 4, most_bytes * min(byte_count, LARGE_BYTES) // LARGE_BYTES)


def _spread(frames: list[bytes], most_bytes: int) -> list[bytes]:
    """Frames of about `most_bytes` in total, at least one, evenly spread over `frames`."""
    share = most_bytes / max(most_bytes, sum(map(len, frames)))
    return [frame for place, frame in enumerate(frames) if int((place + 1) * share) > int(place * share)] or frames[:1]


def _stored_bytes(frames: list[bytes], compressor: Compressor) -> int:
    """The compressed size of frames, in bytes."""
    edges = np.cumsum([0, *map(len, frames)])
    return sum(map(len, compressor.compress_many(memoryview(b"".join(frames)), edges)))
