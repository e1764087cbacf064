"""The hexadecimal examples of the specification: the code writes exactly these bytes and reads them back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import read_esdb
from spec_document import examples

from esformat.core.keys import read_keys
from esformat.core.matching import Matcher
from esformat.format.codec import CODEC_NAMES, Decompressor, make_compressor
from esformat.format.encoding import decode_node, encode_texts
from esformat.format.layout import BlockHandle, check_header, encode_header
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.packing import decode_ints, encode_ints, encode_planes, read_pack
from esformat.format.templates import Kind, Template, TemplateTable, Variable, decode_templates, table_of
from esformat.write.templated import encode_templated

PLAIN = DecodeContext(Decompressor(), Decompressor())


def _of(name):
    return [pytest.param(facts, stored, id=" ".join(facts)) for found, facts, stored in examples() if found == name]


def test_all_examples_are_tested():
    """Each kind of example is tested below."""
    assert {name for name, _, _ in examples()} == {
        "header", "handle", "pack", "template node", "template table", "text node",
    }  # fmt: skip
    assert len(_of("pack")) == 4


@pytest.mark.parametrize(("facts", "stored"), _of("header"))
def test_header(facts, stored):
    """The header of every segment has the bytes of the example."""
    assert encode_header() == stored
    check_header(stored)


@pytest.mark.parametrize(("facts", "stored"), _of("handle"))
def test_handle(facts, stored):
    """A handle has the bytes of the example."""
    handle = BlockHandle(*(int(facts[name], 0) for name in ("offset", "length", "check")))
    assert handle.encode() == stored


@pytest.mark.parametrize(("facts", "stored"), _of("pack"))
def test_pack(facts, stored):
    """Packed numbers have the bytes of the example, and are read back, also by the independent reader."""
    numbers = [int(number) for number in facts["numbers"].split(",")]
    encode = {"bits": encode_ints, "planes": encode_planes}[facts["form"]]
    assert encode(np.array(numbers), make_compressor(CODEC_NAMES[facts["codec"]])) == stored
    pack = read_pack(memoryview(stored), 0, len(numbers))
    assert pack.end == len(stored)
    assert decode_ints(memoryview(stored), pack, Decompressor()).tolist() == numbers
    cursor = read_esdb.Cursor(stored)
    assert read_esdb.read_pack(cursor, len(numbers)) == numbers
    cursor.end()


@pytest.mark.parametrize(("facts", "stored"), _of("text node"))
def test_front_coded_node(facts, stored):
    """Front-coded keys have the bytes of the example, and are read back, also by the independent reader."""
    plain, keys = make_compressor(CODEC_NAMES[facts["codec"]]), [b"user-1", b"user-12", b"user-3"]
    assert encode_texts(pa.array(keys, pa.binary()), EncodeContext(plain, plain)) == stored
    read, end = read_keys(memoryview(stored), 0, len(keys), PLAIN.plain, PLAIN.plain)
    assert (read.as_list(), end) == (keys, len(stored))
    cursor = read_esdb.Cursor(stored)
    assert read_esdb.read_texts(cursor, len(keys)) == keys
    cursor.end()


TABLE = TemplateTable(
    (Variable(Kind.INTEGER), Variable(Kind.ENUM, 0, (b"a", b"b")), Variable(Kind.STRING)),
    (Template((b'{"n":', b',"s":"', b'"}'), (0, 1)), Template((b"", b""), (2,))),
)
VALUES = [b'{"n":7,"s":"b"}', None, b"x"]


@pytest.mark.parametrize(("facts", "stored"), _of("template table"))
def test_template_table(facts, stored):
    """A table of templates has the bytes of the example, and is read back, also by the independent reader."""
    plain = make_compressor(CODEC_NAMES[facts["codec"]])
    assert TABLE.encode(EncodeContext(plain, plain)) == stored
    assert table_of(decode_templates(memoryview(stored), len(TABLE.templates), PLAIN)) == TABLE
    cursor = read_esdb.Cursor(stored)
    read = read_esdb.read_templates(cursor, len(TABLE.templates))
    cursor.end()
    assert [tuple(each.slots) for each in read.templates] == [each.slots for each in TABLE.templates]


@pytest.mark.parametrize(("facts", "stored"), _of("template node"))
def test_template_node(facts, stored):
    """Values by templates have the bytes of the example, and are read back, also by the independent reader."""
    plain, templates = make_compressor(CODEC_NAMES[facts["codec"]]), TABLE.compiled()
    context = EncodeContext(plain, plain, templates=templates, matcher=Matcher(templates))
    assert encode_templated(pa.array(VALUES, pa.binary()), [0, len(VALUES)], context) == [stored]
    reading = DecodeContext(PLAIN.plain, PLAIN.plain, templates=TABLE.compiled())
    values, end = decode_node(memoryview(stored), 0, len(VALUES), pa.binary(), reading)
    assert (values.to_pylist(), end) == (VALUES, len(stored))
    table = read_esdb.Cursor(_of("template table")[0].values[1])
    dictionary = read_esdb.ColumnDictionary(templates=read_esdb.read_templates(table, len(TABLE.templates)))
    assert read_esdb.read_node(read_esdb.Cursor(stored), "binary", len(VALUES), dictionary) == VALUES
