"""zstd dictionaries of columns: trained where they pay for themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from clicks import click_table

from esformat.format.codec import Codec
from esformat.write.zstd_dictionary import ZSTD_DICTIONARY_BYTES, train_on

CLICKS = click_table(6000)["data"].combine_chunks()


def test_a_dictionary_that_pays_for_itself():
    """Payloads that share their structure get one; the same input gives the same one."""
    dictionary = train_on(CLICKS, 50 << 20, Codec.ZSTD, None)
    assert 0 < len(dictionary) <= ZSTD_DICTIONARY_BYTES
    assert train_on(CLICKS, 50 << 20, Codec.ZSTD, None) == dictionary


@pytest.mark.parametrize(
    ("sample", "byte_count", "codec"),
    [
        (CLICKS, 50 << 20, Codec.LZ4),
        (CLICKS, 50 << 20, Codec.NONE),
        (CLICKS.slice(0, 100), 5000, Codec.ZSTD),
        (pa.array([np.random.default_rng(n).bytes(100) for n in range(3000)]), 50 << 20, Codec.ZSTD),
        (pa.array([b""] * 5000), 1 << 20, Codec.ZSTD),
        (pa.array([], pa.binary()), 0, Codec.ZSTD),
    ],
    ids=["lz4", "none", "small", "noise", "empty payloads", "no rows"],
)
def test_no_dictionary_where_none_pays(sample, byte_count, codec):
    """Other codecs, small columns, noise."""
    assert train_on(sample, byte_count, codec, None) == b""
