"""Templates are used if they make a column at least a tenth smaller."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
import read_esdb
from noise import noise
from payloads import payload

import esformat
from esformat.format.codec import Codec, Decompressor
from esformat.format.dictionary import context_of
from esformat.format.encoding import decode_node, encode_slices
from esformat.write.template_choice import choose_dictionary, column_context, may_have_templates, variable_raws
from esformat.write.templated import encode_templated

ROWS = [payload(random.Random(n)) for n in range(1500)]
SAMPLE = pa.array(ROWS, pa.binary())


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_payloads_that_share_their_shape(kind):
    """Payloads with a common shape become a fifth smaller, and are read back."""
    sample = SAMPLE.cast(kind)
    chosen = choose_dictionary(3, sample, 50 << 20, Codec.ZSTD, None, templates=True)
    assert (chosen.column, chosen.templates is None) == (3, False)
    assert choose_dictionary(3, sample, 50 << 20, Codec.ZSTD, None, templates=True) == chosen
    context = column_context(chosen, Codec.ZSTD, None, None)
    context = column_context(chosen, Codec.ZSTD, None, None, raws=variable_raws(sample, context))
    (node,) = encode_templated(sample, [0, len(sample)], context)
    (plain,) = encode_slices(sample, [0, len(sample)], column_context(None, Codec.ZSTD, None, None))
    assert 5 * len(node) < 4 * len(plain)
    assert getattr(choose_dictionary(3, sample, 50 << 20, Codec.ZSTD, None), "templates", None) is None  # not requested
    read, _ = decode_node(memoryview(node), 0, len(sample), kind, context_of(chosen, Decompressor()))
    assert read.equals(sample)


def test_values_of_which_most_cannot_be_guessed():
    """Random hexadecimal digits take half their characters, as with zstd; savings elsewhere are enough."""
    token = random.Random(1).randbytes
    sample = pa.array([b'{"kind":"%s","id":"%s"}' % (b"abc"[n % 3 :], token(24).hex().encode()) for n in range(3000)])
    chosen = choose_dictionary(0, sample, 50 << 20, Codec.ZSTD, None, templates=True)
    (node,) = encode_templated(sample, [0, len(sample)], column_context(chosen, Codec.ZSTD, None, None))
    (plain,) = encode_slices(sample, [0, len(sample)], column_context(None, Codec.ZSTD, None, None))
    assert 0.8 < len(node) / len(plain) < 0.9


@pytest.mark.parametrize(
    ("sample", "byte_count", "codec"),
    [
        (SAMPLE, 50 << 20, Codec.LZ4),
        (SAMPLE, 50 << 20, Codec.NONE),
        (SAMPLE, 1000, Codec.ZSTD),
        (SAMPLE.slice(0, 20), 20_000, Codec.ZSTD),
        (noise(np.random.default_rng(0), 1000, 100), 50 << 20, Codec.ZSTD),
        (pa.array([], pa.binary()), 0, Codec.ZSTD),
    ],
    ids=["lz4", "none", "small", "few", "noise", "no rows"],
)
def test_no_templates_where_they_do_not_pay(sample, byte_count, codec):
    """Other codecs, small columns and noise get no templates even if requested."""
    chosen = choose_dictionary(0, sample, byte_count, codec, None, templates=True)
    assert getattr(chosen, "templates", None) is None


def test_types():
    """Only text and binary columns may have templates."""
    assert may_have_templates(pa.binary())
    assert may_have_templates(pa.string())
    assert not any(map(may_have_templates, [pa.large_binary(), pa.binary(4), pa.int64(), pa.list_(pa.string())]))


@pytest.mark.parametrize(
    ("codec", "asked", "used"),
    [("zstd", None, True), ("zstd", False, False), ("lz4", None, False), ("none", None, False)],
)
def test_the_default(tmp_path, codec, asked, used):
    """By default templates are used with zstd."""
    with esformat.create(tmp_path / "a.esdb", codec=codec, templates=asked) as writer:
        writer.add_table(pa.table({"space": ["a"] * len(ROWS), "timestamp": range(len(ROWS)), "data": SAMPLE}))
    file = read_esdb.File((tmp_path / "a.esdb").read_bytes())
    assert any(entry.templates for column in file.dictionaries.values() for entry in column.values()) == used
    assert file.metadata.get("templates", False) == used


def test_only_with_zstd(tmp_path):
    """Templates require zstd, which compresses their strings."""
    with pytest.raises(esformat.UsageError, match='templates need codec "zstd"'):
        esformat.create(tmp_path / "a.esdb", codec="lz4", templates=True)
