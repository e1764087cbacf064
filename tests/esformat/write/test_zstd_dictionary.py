"""zstd dictionaries of columns are trained if they save more than they cost."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from clicks import click_table
from noise import noise

from esformat.format.codec import Codec
from esformat.write.zstd_dictionary import TRIED, ZSTD_DICTIONARY_BYTES, train_on

CLICKS = click_table(6000)["data"].combine_chunks()
RANDOM = np.random.default_rng(0)
_SHARED = RANDOM.bytes(150)


def test_a_dictionary_that_pays_for_itself():
    """Payloads with a common structure get a dictionary; the same input gives the same one."""
    dictionary = train_on(CLICKS, 50 << 20, Codec.ZSTD, None)
    assert 0 < len(dictionary) <= ZSTD_DICTIONARY_BYTES
    assert train_on(CLICKS, 50 << 20, Codec.ZSTD, None) == dictionary


@pytest.mark.parametrize(
    ("sample", "byte_count", "codec"),
    [
        (CLICKS, 50 << 20, Codec.LZ4),
        (CLICKS, 50 << 20, Codec.NONE),
        (CLICKS.slice(0, 100), 5000, Codec.ZSTD),
        (noise(RANDOM, 3000, 100), 50 << 20, Codec.ZSTD),
        (pa.array([_SHARED + RANDOM.bytes(3996) for _ in range(300)]), 50 << 20, Codec.ZSTD),
        (pa.array([b""] * 5000), 1 << 20, Codec.ZSTD),
        (pa.array([], pa.binary()), 0, Codec.ZSTD),
    ],
    ids=["lz4", "none", "small", "noise", "little in common", "empty payloads", "no rows"],
)
def test_no_dictionary_where_none_pays(sample, byte_count, codec):
    """Other codecs, small columns, noise, and payloads with little in common get none."""
    assert train_on(sample, byte_count, codec, None) == b""


def test_tried_on_what_it_was_not_trained_on():
    """A dictionary is tested on frames other than those it was trained on."""
    noise = np.random.default_rng(1)
    shared = noise.bytes(800)
    frames = [noise.bytes(4096) if number % TRIED == 0 else shared + noise.bytes(3296) for number in range(300)]
    assert train_on(pa.array(frames), 50 << 20, Codec.ZSTD, None, 4096) == b""
    assert train_on(pa.array([shared + frame[800:] for frame in frames]), 50 << 20, Codec.ZSTD, None, 4096)
