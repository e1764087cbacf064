"""Stored tables and nodes of templates are read back; invalid bytes are refused."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import read_esdb
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from template_strategies import rows_of, tables, text_of

from esformat.core.caches import Cache
from esformat.core.matching import Matcher
from esformat.core.templates import MOST_SLOTS
from esformat.errors import CorruptSegmentError, EsdbError, UnsupportedVersionError
from esformat.format import template_node
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.encoding import decode_node, encode_node, end_of_node
from esformat.format.node import NODE, DecodeContext, EncodeContext, Shape
from esformat.format.packing import encode_ints
from esformat.format.template_node import TemplateNode
from esformat.format.templates import (
    Kind,
    Template,
    TemplateTable,
    Variable,
    decode_templates,
    end_of_templates,
    table_of,
)
from esformat.write.templated import encode_templated

_HEAD_BYTES = 8
PLAIN = make_compressor(Codec.NONE)
OWN = DecodeContext(Decompressor(), Decompressor())
WRITING = EncodeContext(PLAIN, PLAIN)
WHOLE = TemplateTable((Variable(Kind.STRING),), (Template((b"", b""), (0,)),))


def _reading(table):
    return DecodeContext(OWN.plain, OWN.plain, templates=table.compiled())


def _writing(table):
    templates = table.compiled()
    return replace(WRITING, templates=templates, matcher=Matcher(templates))


@examples(100)
@given(tables(), st.binary(max_size=5))
def test_tables(table, after):
    """Both readers read any table as written, whatever follows it."""
    stored = table.encode(WRITING)
    assert end_of_templates(memoryview(b"?" + stored + after), 1) == 1 + len(stored)
    assert table_of(decode_templates(memoryview(stored), len(table.templates), OWN)) == table
    cursor = read_esdb.Cursor(stored)
    read = read_esdb.read_templates(cursor, len(table.templates))
    assert [tuple(template.literals) for template in read.templates] == [each.literals for each in table.templates]


@pytest.mark.parametrize(("size", "compressed"), [(1000, False), (1100, True)])
def test_few_texts_are_stored_as_they_are(size, compressed):
    """A small table is stored uncompressed, so that a first query need not decompress it."""
    zstd = make_compressor(Codec.ZSTD)
    table = TemplateTable((), (Template((b"x" * size,)),))
    stored = table.encode(EncodeContext(zstd, zstd))
    assert (len(stored) < size) == compressed
    assert table_of(decode_templates(memoryview(stored), 1, OWN)) == table


@examples(150)
@given(st.data())
def test_nodes(data):
    """Any values by any templates are read back, all or in part, also by the independent reader."""
    table = data.draw(tables())
    values = [text_of(table, row) for row in data.draw(rows_of(table))]
    values += data.draw(st.lists(st.none() | st.binary(max_size=4), max_size=3))
    (node,) = encode_templated(pa.array(values, pa.binary()), [0, len(values)], _writing(table))
    body, context = memoryview(node), _reading(table)
    read, end = decode_node(body, 0, len(values), pa.binary(), context)
    assert (read.to_pylist(), end) == (values, len(node))
    assert end_of_node(body, 0, len(values), pa.binary(), context) == len(node)
    stored = read_esdb.Cursor(table.encode(WRITING))
    dictionary = read_esdb.ColumnDictionary(templates=read_esdb.read_templates(stored, len(table.templates)))
    assert read_esdb.read_node(read_esdb.Cursor(node), "binary", len(values), dictionary) == values
    if node[0] == Shape.TEMPLATES:
        low, high = sorted(data.draw(st.lists(st.integers(0, len(values)), min_size=2, max_size=2)))
        opened = TemplateNode(body, 0, len(values), context)
        assert opened.values(low, high, context, Cache(1 << 20)) == values[low:high]
        places = sorted(data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1))) if values else []
        if places:
            assert opened.chosen_values(places, context, Cache(1 << 20)) == [values[place] for place in places]


@examples(300)
@given(st.data())
def test_any_byte_may_be_wrong(data):
    """Any changed byte, with valid checksums, is refused or read as the independent reader reads it."""
    table = data.draw(tables())
    values = [text_of(table, row) for row in data.draw(rows_of(table))]
    (node,) = encode_templated(pa.array(values, pa.binary()), [0, len(values)], _writing(table))
    parts = [bytearray(table.encode(WRITING)), bytearray(node)]
    wrong = data.draw(st.sampled_from(parts))
    wrong[data.draw(st.integers(0, len(wrong) - 1))] = data.draw(st.integers(0, 255))
    count = len(table.templates)
    try:
        ours = _read_ours(bytes(parts[0]), count, bytes(parts[1]), len(values))
    except EsdbError:
        return
    try:
        theirs = read_esdb.ColumnDictionary(templates=read_esdb.read_templates(read_esdb.Cursor(parts[0]), count))
        independent = read_esdb.read_node(read_esdb.Cursor(bytes(parts[1])), "binary", len(values), theirs)
    except (read_esdb.Corrupt, read_esdb.TooNew):
        return
    assert ours == independent


def _read_ours(stored, templates, node, count):
    made = decode_templates(memoryview(stored), templates, OWN)
    context = DecodeContext(OWN.plain, OWN.plain, templates=made)
    return decode_node(memoryview(node), 0, count, pa.binary(), context)[0].to_pylist()


def _stored(variables=1, templates=1, **others):
    """The bytes of a table of templates with some parts replaced."""
    parts = {
        "kinds": [0], "parameters": [0], "value_counts": [0], "values": [], "slot_counts": [1], "slots": [0],
        "literals": [b"", b""],
    } | others  # fmt: skip
    made = [
        encode_node(pa.array(part, pa.binary()), WRITING) if name in ("values", "literals")
        else encode_ints(np.array(part, np.int64), PLAIN)
        for name, part in parts.items()
    ]  # fmt: skip
    body = b"".join(made)
    return struct.pack("<II", len(body), variables) + body


@pytest.mark.parametrize(
    "parts",
    [{"variables": 0}, {"variables": 4097}, {"variables": 1 << 31}, {"kinds": [7]}, {"kinds": [-1]}, {"kinds": [5]},
     {"kinds": [3], "parameters": [19]}, {"parameters": [1]}, {"parameters": [-1]}, {"kinds": [6], "parameters": [10]},
     {"value_counts": [1]}, {"value_counts": [1 << 40]}, {"kinds": [1], "value_counts": [131_073]},
     {"value_counts": [1], "values": [b"a"]}, {"kinds": [1], "value_counts": [1], "values": [None]},
     {"slot_counts": [MOST_SLOTS + 1]}, {"slot_counts": [-1]}, {"slots": [1]}, {"slots": [-1]}, {"literals": [b"abc"]},
     {"literals": [b"", None]}, {"literals": [b"a", b"bc", b"def"]}, {"kinds": [1 << 32]}, {"parameters": [1 << 32]},
     {"slots": [1 << 32]}, {"slot_counts": [1 + (1 << 32)]}],
    ids=str,
)  # fmt: skip
def test_tables_that_break_the_format(parts):
    """Both readers refuse tables that break the format."""
    assert decode_templates(memoryview(_stored()), 1, OWN).count == 1
    stored = _stored(**parts)
    with pytest.raises((CorruptSegmentError, UnsupportedVersionError)):
        decode_templates(memoryview(stored), 1, OWN)
    with pytest.raises((read_esdb.Corrupt, read_esdb.TooNew)):
        read_esdb.read_templates(read_esdb.Cursor(stored), 1)


@pytest.mark.parametrize("templates", [0, 4097])
def test_numbers_of_templates(templates):
    """A wrong number of templates is refused."""
    with pytest.raises(CorruptSegmentError, match=f"{templates} templates of 1 variables"):
        decode_templates(memoryview(_stored()), templates, OWN)


@pytest.mark.parametrize(
    ("parts", "templates"),
    [({"variables": 2, "kinds": [1, 1], "parameters": [0, 0], "value_counts": [1 << 17, 1]}, 1),
     ({"slot_counts": [MOST_SLOTS] * 129}, 129)],
)  # fmt: skip
def test_how_many_values_and_slots(parts, templates):
    """Values and slots are limited in total before memory is allocated, even if each count is valid."""
    with pytest.raises(CorruptSegmentError, match="more than 131072 values or slots"):
        decode_templates(memoryview(_stored(**parts)), templates, OWN)


@pytest.mark.parametrize("parts", [{"kinds": [7]}, {"kinds": [255]}, {"kinds": [6], "parameters": [10]}], ids=str)
def test_kinds_that_came_later(parts):
    """Kinds of a newer version are unsupported, not damage."""
    with pytest.raises(UnsupportedVersionError):
        decode_templates(memoryview(_stored(**parts)), 1, OWN)


def test_tables_that_are_cut_short():
    """A table cut short at any length is refused."""
    stored = _stored()
    for size in range(len(stored)):
        with pytest.raises(CorruptSegmentError, match="cut short"):
            end_of_templates(memoryview(stored[:size]), 0)
        shorter = struct.pack("<I", max(0, size - _HEAD_BYTES)) + stored[4:size]
        with pytest.raises(CorruptSegmentError):
            decode_templates(memoryview(shorter), 1, OWN)
    with pytest.raises(CorruptSegmentError, match="length"):
        decode_templates(memoryview(stored + b"\0"), 1, OWN)
    longer = struct.pack("<I", len(stored) + 1 - _HEAD_BYTES) + stored[4:] + b"\0"
    with pytest.raises(CorruptSegmentError, match="longer than their parts"):
        decode_templates(memoryview(longer), 1, OWN)


def _node(codes, *columns, head=(Shape.TEMPLATES, 0, 0)):
    return memoryview(NODE.pack(*head) + encode_ints(np.array(codes, np.int64), PLAIN) + b"".join(columns))


STRINGS = encode_node(pa.array([b"a", b"b"], pa.binary()), WRITING)


@pytest.mark.parametrize(
    "node",
    [_node([1, 2], STRINGS), _node([1, -1], STRINGS), _node([1, 1]), _node([1, 1], STRINGS[:-1]),
     _node([1, 1], encode_node(pa.array([b"a", None], pa.binary()), WRITING)),
     _node([1, 1], STRINGS, head=(Shape.TEMPLATES, 1, 0)), _node([1, 1], STRINGS, head=(Shape.TEMPLATES, 2, 0)),
     _node([1, 1], STRINGS, head=(Shape.TEMPLATES, 0, 1)), _node([1, 1], STRINGS, head=(Shape.TEMPLATES, 4, 0))],
)  # fmt: skip
def test_nodes_that_break_the_format(node):
    """Both readers refuse nodes that break the format."""
    with pytest.raises(CorruptSegmentError):
        decode_node(node, 0, 2, pa.binary(), _reading(WHOLE))
    templates = read_esdb.read_templates(read_esdb.Cursor(_stored()), 1)
    cursor = read_esdb.Cursor(bytes(node))
    with pytest.raises((read_esdb.Corrupt, read_esdb.TooNew)):
        read_esdb.read_node(cursor, "binary", 2, read_esdb.ColumnDictionary(templates=templates))


def test_a_node_without_templates():
    """A node whose templates are missing is refused."""
    with pytest.raises(CorruptSegmentError, match="no dictionary"):
        decode_node(_node([1, 1], STRINGS), 0, 2, pa.binary(), OWN)


def test_a_node_of_another_type():
    """A node of templates in a column of numbers is refused."""
    with pytest.raises(CorruptSegmentError, match="stored in shape"):
        decode_node(_node([1, 1], STRINGS), 0, 2, pa.int64(), _reading(WHOLE))


def test_text_that_is_not_utf_8():
    """Bytes that are not UTF-8 are refused in a text column, not in a binary one."""
    node = _node([1, 1], encode_node(pa.array([b"a", b"\xff"], pa.binary()), WRITING))
    assert decode_node(node, 0, 2, pa.binary(), _reading(WHOLE))[0].to_pylist() == [b"a", b"\xff"]
    with pytest.raises(CorruptSegmentError, match="broken"):
        decode_node(node, 0, 2, pa.string(), _reading(WHOLE))


def test_many_slots_of_few_bytes():
    """A constant column and a template of many slots, which expand to too many values, are refused immediately."""
    table = TemplateTable((Variable(Kind.ENUM, 0, (b"",)),), (Template((b"",) * 1025, (0,) * 1024),))
    constant = encode_ints(np.zeros(65_536, np.int64), PLAIN)
    with pytest.raises(CorruptSegmentError, match="slots"):
        TemplateNode(_node([1] * 65_536, constant), 0, 65_536, _reading(table))


def test_many_bytes_of_a_few_stored(monkeypatch):
    """A long literal in every row, which exceeds the size of a node, is refused before it is written out."""
    table = TemplateTable((), (Template((b"x" * 1000,)),))
    with pytest.raises(CorruptSegmentError, match="room"):
        decode_node(_node([1] * 20_000), 0, 20_000, pa.binary(), _reading(table))
    monkeypatch.setattr(template_node, "MAX_NODE_BYTES", 20_000_000)
    read, _ = decode_node(_node([1] * 20_000), 0, 20_000, pa.binary(), _reading(table))
    assert read.nbytes > 20_000_000
