"""Dictionary blocks: the values that column nodes refer to."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from damage import assert_refused_or_read

from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.dictionary import (
    ColumnDictionary,
    StoredDictionary,
    decode_dictionary,
    encode_dictionary,
    open_dictionary,
    with_null,
)
from esformat.format.frame import decode_block, encode_block
from esformat.format.layout import BlockKind
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.schema import Field
from esformat.format.templates import Kind, Template, TemplateTable, Variable

PLAIN = Decompressor()
READ = DecodeContext(PLAIN, PLAIN)
WRITE = EncodeContext(make_compressor(Codec.ZSTD), make_compressor(Codec.ZSTD))
FIELDS = [
    Field("data", pa.binary()),
    Field("type", pa.string()),
    Field("note", pa.large_string()),
    Field("n", pa.int64()),
]
TEMPLATES = TemplateTable(
    (Variable(Kind.ENUM, 0, (b"a", b"b")), Variable(Kind.STRING)),
    (Template((b"x=", b""), (0,)), Template((b"", b""), (1,))),
)
COLUMNS = [
    ColumnDictionary(0, b"zstd dictionary"),
    ColumnDictionary(1, values=pa.array(["", "page", "signup"])),
    ColumnDictionary(2, b"all", pa.array(["é"], pa.large_string()), TEMPLATES),
]


def decode(body: bytes, count: int) -> list[ColumnDictionary]:
    """The columns of a dictionary block with this body."""
    stored = encode_block(BlockKind.DICTIONARY, body, count=count)
    return decode_dictionary(decode_block(stored, BlockKind.DICTIONARY, None, 0), FIELDS, READ)


def body_of(columns: list[ColumnDictionary]) -> bytes:
    """The body of the block with some columns."""
    return bytes(decode_block(encode_dictionary(columns, WRITE), BlockKind.DICTIONARY, None, 0).body)


@pytest.mark.parametrize("columns", [[], COLUMNS[:1], COLUMNS[1:2], COLUMNS])
def test_dictionary_comes_back(columns):
    """Zstd dictionaries, values and templates are read back, in any combination."""
    found = decode(body_of(columns), len(columns))
    assert [(c.column, c.zstd, c.templates) for c in found] == [(c.column, c.zstd, c.templates) for c in columns]
    for mine, given in zip(found, columns, strict=True):
        assert (mine.values is None) == (given.values is None)
        assert given.values is None or mine.values.equals(given.values)


WRONG = [
    ("cut short", b"\0" * 11, 1, "cut short"),
    ("column that is not there", struct.pack("<HHII", 4, 0, 0, 0), 1, "breaks the format"),
    ("templates beyond the block", struct.pack("<HHIIII", 0, 1, 0, 0, 1, 0), 1, "cut short"),
    ("templates of numbers", struct.pack("<HHIIII", 3, 1, 0, 0, 0, 0), 1, "has templates"),
    ("dictionary beyond the block", struct.pack("<HHII", 0, 0, 1, 0), 1, "breaks the format"),
    ("absurd number of values", struct.pack("<HHII", 0, 0, 0, 2**32 - 1), 1, "breaks the format"),
    ("null among the values", body_of([ColumnDictionary(1, values=pa.array(["a", None]))]), 1, "holds a null"),
    ("more than its columns", body_of(COLUMNS), 2, "longer than its columns"),
]


@pytest.mark.parametrize(("body", "count", "message"), [c[1:] for c in WRONG], ids=[c[0] for c in WRONG])
def test_dictionaries_that_no_writer_makes(body, count, message):
    """A dictionary that no writer makes is refused; the error names the fault."""
    with pytest.raises(CorruptSegmentError, match=message):
        decode(body, count)


def test_damaged_dictionary():
    """Damage beneath a valid checksum is refused or yields other columns."""
    assert_refused_or_read(body_of(COLUMNS), lambda damaged: decode(damaged, len(COLUMNS)))


def stored(values: pa.Array) -> StoredDictionary:
    """A column of a dictionary block, not yet decoded."""
    block = encode_block(BlockKind.DICTIONARY, body_of([ColumnDictionary(1, values=values)]), count=1)
    (column,) = open_dictionary(decode_block(block, BlockKind.DICTIONARY, None, 0), FIELDS, READ)
    return column


@pytest.mark.parametrize(
    "texts", [[""], ["a"], ["", "page", "Straße", "\U0001f600"], [f"page-{n}" for n in range(3000)]]
)
def test_values_as_objects(texts):
    """Values as objects (for events) and as an Arrow array (for columns) are the same; code 0 is null."""
    values = stored(pa.array(texts)).shared_values()
    assert values.listed == [None, *texts]
    assert values.take(np.arange(len(texts) + 1)).to_pylist() == values.listed


@pytest.mark.parametrize("texts", [[b"\xff"], [b"a\xc3", b"\xa9"]])
def test_values_that_are_no_text(texts):
    """Values that are not UTF-8, and a character split between two values, are refused in both forms."""
    given = pa.array(texts, pa.binary())
    broken = pa.Array.from_buffers(pa.string(), len(texts), given.buffers())
    for ask in (lambda values: values.listed, lambda values: values.take(np.array([0]))):
        with pytest.raises(CorruptSegmentError, match="text is broken"):
            ask(stored(broken).shared_values())


def test_code_0_is_null():
    """The values by code begin with null."""
    assert with_null(pa.array(["a", "b"])).to_pylist() == [None, "a", "b"]
