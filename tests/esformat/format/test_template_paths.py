"""Values at paths of JSON stored by templates equal those in the documents, or are not available."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from field_counts import count_fields
from hypothesis import given
from hypothesis import strategies as st
from template_strategies import codes_of, columns_of, stored_columns, text_of, values_of

from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.json_fields import FieldCounts
from esformat.format.json_values import JsonValues
from esformat.format.node import DecodeContext
from esformat.format.packing import encode_ints
from esformat.format.template_node import TemplateNode
from esformat.format.template_paths import sample_documents, value_templates
from esformat.format.template_search import TemplateTexts
from esformat.format.templates import Kind, Template, TemplateTable, Variable

PLAIN = Decompressor()
PIECES = (
    b'{"a":', b'{"a":"', b'"}', b"}", b",", b'","b":"', b'":', b'"', b"[", b"]", b' "b" : ', b"\\", b"-", b"1", b" ",
    b"", "é".encode(), b"\xc3", b"null", b'"a":{"b":"x',
)  # fmt: skip
SHOWN = (b"", b"x", b"a", b'"', b"\\", b'","b":"y', b"\n", "é".encode(), b"\xa9", b"7", b"null", b'"q"', b"n")
VARIABLES = (
    Variable(Kind.STRING), Variable(Kind.ENUM, 0, (b"x", b"y/z")), Variable(Kind.ENUM, 0, (b"1", b"2.5", b"true")),
    Variable(Kind.ENUM, 0, (b"null",)), Variable(Kind.INTEGER), Variable(Kind.DECIMAL, 2), Variable(Kind.HEX, 4),
    Variable(Kind.PADDED, 3), Variable(Kind.DATE, 9), Variable(Kind.ENUM, 0, (b'x","b":"y', b"\xc3")),
    Variable(Kind.ENUM, 0, (b"5", b"-7")), Variable(Kind.STRING), Variable(Kind.ENUM, 0, (b"a", b"b")),
    Variable(Kind.ENUM, 0, (b"1", b"x")), Variable(Kind.ENUM, 0, (b"null", b"3")),
    Variable(Kind.ENUM, 0, (b'"x"', b"1 ")),
)  # fmt: skip
HELD = [st.sampled_from(SHOWN) if each.kind is Kind.STRING else values_of(each) for each in VARIABLES]
FITTING = {"s": (0, 1, 4, 5, 6, 7, 8, 9, 11, 12), "v": (2, 3, 4, 5, 7, 10, 13, 14, 15)}
"""Variables for slots within strings, and for slots that are whole values."""
SHAPES = (
    ((b'{"a":"', b'","b":', b"}"), "sv"), ((b'{"a":', b',"b":"', b'"}'), "vs"), ((b'{"a":9,"', b'":', b"}"), "sv"),
    ((b'["', b'",', b"]"), "sv"), ((b'{"a":"x', b"-", b'y"}'), "ss"), ((b'{"a":', b",", b"}"), "vs"),
    ((b'{"b":"\\n\\"', b'","a":"', b'\\u00e9"}'), "ss"), ((b'{"a":{"b":[1,', b',"', b'"]}}'), "vs"),
    ((b'{"a":1', b',"b":-', b"}"), "vv"), ((b'{"a":"\\', b'","b":"\\u00', b'0"}'), "ss"),
    ((b'{"a":', b'1,"b":', b"}"), "vv"), ((b'{"a":"\xc3', b'","b":"', b'\xa9"}'), "ss"), ((b"[", b",", b"] "), "vv"),
    ((b'{"a":[', b', {"a":', b'}],"b":{}}'), "vv"), ((b'{"b":"', b'\\","a":"', b'"}'), "ss"),
)  # fmt: skip


@st.composite
def templates(draw):
    """Templates, most of which are JSON."""
    if draw(st.integers(0, 4)):
        literals, places = draw(st.sampled_from(SHAPES))
        return Template(literals, tuple(draw(st.sampled_from(FITTING[place])) for place in places))
    literals = draw(st.lists(st.sampled_from(PIECES), min_size=2, max_size=5).map(tuple))
    return Template(literals, tuple(draw(st.integers(0, len(VARIABLES) - 1)) for _ in literals[1:]))


@st.composite
def rows_of(draw, table):
    """The template of each row, and the values of its variables."""
    rows = []
    for _ in range(draw(st.integers(1, 8))):
        code = draw(st.integers(-1, len(table.templates) - 1))
        shown = sorted(set(table.templates[code].slots)) if code >= 0 else ()
        held = {v: draw(HELD[v]) for v in shown}
        rows.append((code, held) if code >= 0 else None)
    return rows


def node_of(table, rows):
    """A node of some rows, its decoding context, and its templates."""
    codes = encode_ints(codes_of(rows), make_compressor(Codec.NONE))
    stored = b"\x08\0\0\0" + codes + stored_columns(columns_of(table, rows))
    templates = table.compiled()
    context = DecodeContext(PLAIN, PLAIN, templates=templates)
    return TemplateNode(memoryview(stored), 0, len(rows), context), context, TemplateTexts(templates)


def told(table, rows, steps):
    """The values at a path according to the templates, of all rows and of every second one; None if not available."""
    node, context, texts = node_of(table, rows)
    known = value_templates(texts, steps)
    found = [node.value_at(known, 0, len(rows), places, context, None) for places in (None, np.arange(0, len(rows), 2))]
    return [None if value is None else as_values(*value) for value in found]


def as_values(decoded, kinds):
    from esformat.read.decode.block_group import _found_in

    (array,) = _found_in([(decoded, kinds)])
    return JsonValues.of(array)


@examples(2000)
@given(st.data())
def test_values_of_templates(data):
    """Values from templates equal those in the documents, including their kinds."""
    table = TemplateTable(VARIABLES, tuple(data.draw(st.lists(templates(), min_size=1, max_size=3))))
    rows = data.draw(rows_of(table))
    steps = data.draw(st.sampled_from([("a",), ("b",), ("a", "b"), ("a", "b", 0), (0,), (-1,), ("a", "b", -1)]))
    documents = [text_of(table, row) for row in rows]
    for found, held in zip(told(table, rows, steps), (documents, documents[::2]), strict=True):
        if found is None:
            continue
        expected = JsonValues(pa.array(held, pa.binary()), steps)
        assert found.kinds.tolist() == expected.kinds.tolist()
        for form in ("texts", "numbers", "booleans"):
            assert getattr(found, form)().to_pylist() == getattr(expected, form)().to_pylist()


KNOWN = {
    "a string": ((b'{"a":"', b'","b":', b"}"), (0, 4), {0: b"x", 4: 7}, ("a",)),
    "a number beside it": ((b'{"a":"', b'","b":', b"}"), (0, 4), {0: b"x", 4: 7}, ("b",)),
    "a member that is absent": ((b'{"a":"', b'","b":', b"}"), (0, 4), {0: b"x", 4: 7}, ("a", "b")),
    "an element of a list": ((b'{"a":{"b":[1,', b',"', b'"]}}'), (4, 1), {4: 7, 1: 0}, ("a", "b", 1)),
    "an enumeration": ((b'{"a":', b',"b":"', b'"}'), (4, 1), {4: 7, 1: 1}, ("b",)),
}
"""Templates that determine the value at a path: literals, slots, the values of variables, and the path."""


@pytest.mark.parametrize("case", KNOWN)
def test_values_that_templates_determine(case):
    """Templates of ordinary documents determine values and fields, unless a string has a character to escape."""
    literals, slots, held, steps = KNOWN[case]
    table = TemplateTable(VARIABLES, (Template(literals, slots),))
    rows = [(0, held)] * 3
    documents = [text_of(table, row) for row in rows]
    for found, those in zip(told(table, rows, steps), (documents, documents[::2]), strict=True):
        expected = JsonValues(pa.array(those, pa.binary()), steps)
        assert found.texts().to_pylist() == expected.texts().to_pylist()
    node, context, texts = node_of(table, rows)
    assert node.count_documents(sample_documents(texts), 0, len(rows), None, context)
    if 0 in held:
        quoted = [(0, held), (0, held | {0: b'"'}), (0, held)]
        assert told(table, quoted, steps) == [None, None]
        node, context, texts = node_of(table, quoted)
        assert node.count_documents(sample_documents(texts), 0, len(rows), None, context) is None


@examples(2000)
@given(st.data())
def test_fields_of_templates(data):
    """The fields and kinds of values, counted on one document per template, are those of all documents."""
    table = TemplateTable(VARIABLES, tuple(data.draw(st.lists(templates(), min_size=1, max_size=3))))
    rows = data.draw(rows_of(table))
    node, context, texts = node_of(table, rows)
    known = sample_documents(texts)
    documents = [text_of(table, row) for row in rows]
    for places, held in ((None, documents), (np.arange(0, len(rows), 2), documents[::2])):
        alike = node.count_documents(known, 0, len(rows), places, context)
        if alike is not None:
            counts = FieldCounts()
            for document, count in alike:
                counts.add_alike(document, count)
            assert counts.found() == count_fields([pa.array(held, pa.binary())])
