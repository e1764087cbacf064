"""The examples of the specification in hexadecimal: the code writes exactly these bytes and reads them back."""

from __future__ import annotations

import numpy as np
import pytest
import read_esdb
from spec_document import examples

from esformat.format.codec import CODEC_NAMES, Decompressor, make_compressor
from esformat.format.layout import BlockHandle, check_header, encode_header
from esformat.format.packing import decode_ints, encode_ints, read_pack


def _of(name):
    return [pytest.param(facts, stored, id=" ".join(facts)) for found, facts, stored in examples() if found == name]


def test_all_examples_are_tested():
    """Each kind of example has a test below."""
    assert {name for name, _, _ in examples()} == {"header", "handle", "pack"}
    assert len(_of("pack")) == 2


@pytest.mark.parametrize(("facts", "stored"), _of("header"))
def test_header(facts, stored):
    """The header of every segment."""
    assert encode_header() == stored
    check_header(stored)


@pytest.mark.parametrize(("facts", "stored"), _of("handle"))
def test_handle(facts, stored):
    """A handle and its bytes, read either way."""
    handle = BlockHandle(*(int(facts[name], 0) for name in ("offset", "length", "check")))
    assert handle.encode() == stored
    assert BlockHandle.decode(stored, 0) == handle


@pytest.mark.parametrize(("facts", "stored"), _of("pack"))
def test_pack(facts, stored):
    """Packed numbers and their bytes, read either way, and by the independent reader."""
    numbers = [int(number) for number in facts["numbers"].split(",")]
    assert encode_ints(np.array(numbers), make_compressor(CODEC_NAMES[facts["codec"]])) == stored
    pack = read_pack(memoryview(stored), 0, len(numbers))
    assert pack.end == len(stored)
    assert decode_ints(memoryview(stored), pack, Decompressor()).tolist() == numbers
    cursor = read_esdb.Cursor(stored)
    assert read_esdb.read_pack(cursor, len(numbers)) == numbers
    cursor.end()
