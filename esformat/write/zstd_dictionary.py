"""The zstd dictionary of a column, trained on a sample of it, and whether it pays for itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from esformat.format.arrays import bytes_of
from esformat.format.codec import Codec, make_compressor, train_dictionary
from esformat.format.encoding import frame_rows

ZSTD_DICTIONARY_BYTES = 4 << 10
MIN_SAMPLED_BYTES = 64 << 10


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
    pieces: list[bytes | bytearray | memoryview] = [
        bytes(data[a:b]) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True) if b > a
    ]
    trained = train_dictionary(pieces, ZSTD_DICTIONARY_BYTES)
    if trained is None:
        return b""
    without = sum(map(len, make_compressor(codec, level).compress_many(data, edges)))
    with_it = sum(map(len, make_compressor(codec, level, trained).compress_many(data, edges)))
    stored = trained.as_bytes()
    saved = (without - with_it - len(stored)) * byte_count / len(data)  # its own bytes come from the sample: no gain
    return stored if saved > 2 * len(stored) else b""
