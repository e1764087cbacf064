"""Searches for numbers and texts in rows of templates agree with a model; nothing outside the buffers is accessed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from template_strategies import codes_of, columns_of, opened_rows, rows_of, stored_columns, tables

from esformat.core.blocks import FIRST_COLUMN_CHUNK
from esformat.core.rendering import TemplateRows
from esformat.core.searching import codes_that_may, mark_codes, mark_rows, mark_texts
from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.data_block import DataBlock, encode_data_block
from esformat.format.frame import decode_block
from esformat.format.layout import BlockKind
from esformat.format.node import NODE, Shape
from esformat.format.packing import encode_ints
from esformat.format.templates import Kind, Template, TemplateTable, Variable

I64 = np.int64
PLAIN, NONE = Decompressor(), make_compressor(Codec.NONE)
ONE = TemplateTable((Variable(Kind.INTEGER), Variable(Kind.STRING)), (Template((b"n=", b";", b""), (0, 1)),))
NUMBERS, STRINGS = np.array([5, -6], I64), (np.array([0, 1, 3], I64), b"abc")
CODES = np.array([1, 1], I64)


@examples(300)
@given(st.data())
def test_rows_with_numbers(data):
    """The rows in which all variables of a chain have one of their numbers are found, in bits and planes."""
    table = data.draw(tables())
    rows = [row for row in data.draw(rows_of(table)) for _ in range(data.draw(st.sampled_from([1, 1, 3, 300])))][:900]
    columns, codes = columns_of(table, rows), codes_of(rows)
    opened, _ = opened_rows(table, columns, codes, data.draw(st.sampled_from([0.0, 1.0, 9.0])))
    numbered = [v for v, variable in enumerate(table.variables) if variable.kind is not Kind.STRING]
    if not numbered:
        return
    chain = []
    for variable in data.draw(st.lists(st.sampled_from(numbered), min_size=1, max_size=3)):
        known = columns[variable].tolist()
        some = st.sampled_from(known) if known else st.integers(-5, 5)
        chain.append((variable, np.array(sorted(data.draw(st.sets(some | st.integers(-2, 2), max_size=4))), I64)))
    shown = [set(table.templates[code - 1].slots) if code else set() for code in codes.tolist()]
    model = []
    places = dict.fromkeys(numbered, 0)
    for row in range(len(codes)):
        has = {v: int(columns[v][places[v]]) for v in numbered if v in shown[row]}
        places |= {v: places[v] + 1 for v in has}
        model.append(all(v in has and has[v] in wanted.tolist() for v, wanted in chain))
    mask = np.zeros(len(codes), np.uint8)
    assert mark_rows(opened, chain, mask) == any(model)
    assert mask.tolist() == model
    marks = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=len(table.templates) + 1, max_size=len(table.templates) + 1)),
        np.uint8,
    )
    mark_codes(opened, marks, mask)
    assert mask.tolist() == [told or marks[code] > 0 for told, code in zip(model, codes.tolist(), strict=True)]


@examples(300)
@given(st.data())
def test_rows_with_texts(data):
    """The rows whose string contains one of some texts are found, also at the edges of neighbouring strings."""
    table = data.draw(tables())
    rows = [row for row in data.draw(rows_of(table)) for _ in range(data.draw(st.sampled_from([1, 1, 3, 300])))][:900]
    columns, codes = columns_of(table, rows), codes_of(rows)
    strings = [v for v, variable in enumerate(table.variables) if variable.kind is Kind.STRING]
    if not strings:
        return
    variable = data.draw(st.sampled_from(strings))
    edges, stored = columns[variable]
    held = [stored[a:b] for a, b in pairwise(edges.tolist())]
    some = st.binary(min_size=1, max_size=2)
    if len(stored):
        first = data.draw(st.integers(0, len(stored) - 1))
        some |= st.just(bytes(stored[first : first + data.draw(st.integers(1, 5))]))
    texts = data.draw(st.lists(some, max_size=3))
    shown = [code > 0 and variable in table.templates[code - 1].slots for code in codes.tolist()]
    wanted = iter([any(text in value for text in texts) for value in held])
    model = [shows and next(wanted) for shows in shown]
    opened, _ = opened_rows(table, columns, codes)
    mask = np.zeros(len(codes), np.uint8)
    mark_texts(opened, variable, texts, PLAIN, PLAIN, mask)
    assert mask.tolist() == model


def test_rows_with_other_texts():
    """Variables without strings and masks of another length are refused; a text across two strings is not found."""
    rows = TemplateRows(ONE.compiled(), stored_columns([NUMBERS, STRINGS]), 0, CODES, 99)
    mask = np.zeros(2, np.uint8)
    mark_texts(rows, 1, [b"ab", b"d"], PLAIN, PLAIN, mask)  # the first spans two strings
    assert mask.tolist() == [0, 0]
    mark_texts(rows, 1, [b"ab", b"c"], PLAIN, PLAIN, mask)
    assert mask.tolist() == [0, 1]
    for variable in (-1, 0, 2, 1 << 40):
        with pytest.raises(ValueError, match="has no strings"):
            mark_texts(rows, variable, [b"c"], PLAIN, PLAIN, mask)
    with pytest.raises(ValueError, match="empty"):
        mark_texts(rows, 1, [b"c", b""], PLAIN, PLAIN, mask)
    for size in (0, 1, 3):
        with pytest.raises(ValueError, match="one byte for each row"):
            mark_texts(rows, 1, [b"c"], PLAIN, PLAIN, np.zeros(size, np.uint8))


@pytest.mark.parametrize("lengths", [[-1, 4], [1, 1 << 40], [(1 << 63) - 1, 1], [1, 1], [2, 2]])
def test_texts_of_broken_lengths(lengths):
    """String lengths beyond the stored bytes are refused; nothing outside is read."""
    stored = bytearray(stored_columns([NUMBERS, STRINGS]))
    numbers, right = encode_ints(NUMBERS, NONE), encode_ints(np.array([1, 2], I64), NONE)
    assert stored[len(numbers) + 4 :].startswith(right)
    wrong = encode_ints(np.array(lengths, I64), NONE)
    stored[len(numbers) + 4 : len(numbers) + 4 + len(right)] = wrong
    rows = TemplateRows(ONE.compiled(), bytes(stored), 0, CODES, 99)
    with pytest.raises(CorruptSegmentError, match=r"out of bounds|expected"):
        mark_texts(rows, 1, [b"c"], PLAIN, PLAIN, np.zeros(2, np.uint8))


def block_of(chunk: bytes, count: int, dictionary: int) -> DataBlock:
    """A block of one column."""
    stored = encode_data_block(0, 1, count, [b"", b"", chunk], dictionary)
    return DataBlock(decode_block(stored, BlockKind.DATA, None, 0), 1)


@examples(200)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 2),
            st.lists(st.integers(-2, 9) | st.sampled_from([-(1 << 63), (1 << 63) - 1]), min_size=1, max_size=9),
            st.booleans(),
        ),
        max_size=4,
    ),
    st.lists(st.binary(max_size=8), max_size=2),
)
def test_codes_with_marks(described, marks):
    """Blocks in which some row has each mark are found. Codes without a mark count as marked; each dictionary has
    its own marks, which are asked for once.
    """
    blocks, model, asked = [], [], []
    for dictionary, codes, templated in described:
        head = NODE.pack(Shape.TEMPLATES if templated else Shape.BYTES, 0, 0)
        packed = encode_ints(np.array(codes, I64), NONE)
        blocks.append(block_of(head + packed, len(codes), dictionary))
        mine = marks if dictionary == 1 else []
        told = all(any(not 0 <= code < len(mark) or mark[code] for code in codes) for mark in mine)
        model.append(None if not templated else codes if told else ())

    def possible(dictionary):
        asked.append(dictionary)
        return marks if dictionary == 1 else []

    found = codes_that_may(blocks, FIRST_COLUMN_CHUNK, possible, PLAIN)
    assert [each and each[0].tolist() for each in found] == model
    ends = [block.end_of(FIRST_COLUMN_CHUNK) for block in blocks]
    assert all(not each or each[1] == end for each, end in zip(found, ends, strict=True))
    assert len(asked) == len(set(asked)) == len({number for number, _, templated in described if templated})


def test_codes_of_broken_blocks():
    """Damaged heads and codes, and missing chunks, are refused."""
    codes = encode_ints(np.array([1, 2], I64), NONE)
    for chunk in (b"\x08", b"\x08\1\0\0" + codes, b"\x08\0\0\1" + codes, b"\x08\0\0\0" + codes[:-1]):
        with pytest.raises(CorruptSegmentError, match=r"head|cut short"):
            codes_that_may([block_of(chunk, 2, 1)], FIRST_COLUMN_CHUNK, lambda _: [], PLAIN)
    assert codes_that_may([block_of(b"", 2, 1)], FIRST_COLUMN_CHUNK, lambda _: [], PLAIN) == [None]
    with pytest.raises(TypeError, match="missing"):
        codes_that_may([None], FIRST_COLUMN_CHUNK, lambda _: [], PLAIN)
    for chunk in (-1, FIRST_COLUMN_CHUNK + 1, 1 << 40):
        with pytest.raises(IndexError, match="fewer chunks"):
            codes_that_may([block_of(b"", 2, 1)], chunk, lambda _: [], PLAIN)


def test_rows_with_other_numbers():
    """Variables without numbers, numbers that do not ascend or are not decoded, and wrong lengths are refused."""
    rows = TemplateRows(ONE.compiled(), stored_columns([NUMBERS, STRINGS]), 0, CODES, 99)
    mask, five = np.zeros(2, np.uint8), np.array([5], I64)
    assert mark_rows(rows, [(0, five)], mask)
    assert mask.tolist() == [1, 0]
    assert not mark_rows(rows, [], mask)
    assert not mark_rows(rows, [(0, np.zeros(0, I64))], mask)
    for variable in (-1, 1, 2, 1 << 40):
        with pytest.raises(ValueError, match="has no numbers"):
            mark_rows(rows, [(variable, five)], mask)
    for wrong in ([5, 5], [6, 5]):
        with pytest.raises(ValueError, match="ascend"):
            mark_rows(rows, [(0, np.array(wrong, I64))], mask)
    for size in (0, 1, 3):
        with pytest.raises(ValueError, match="one byte for each row"):
            mark_rows(rows, [(0, five)], np.zeros(size, np.uint8))
    for marks, size in ((1, 2), (3, 2), (2, 1), (2, 3)):
        with pytest.raises(ValueError, match="each template and each row"):
            mark_codes(rows, np.ones(marks, np.uint8), np.zeros(size, np.uint8))
    planes = TemplateRows(ONE.compiled(), stored_columns([NUMBERS, STRINGS], 0.0), 0, CODES, 99)
    assert planes.lacks(0)
    with pytest.raises(ValueError, match="not decoded"):
        mark_rows(planes, [(0, five)], mask)
    planes.hold(0, NUMBERS)
    assert not planes.lacks(0)
    assert mark_rows(planes, [(0, five)], mask)


@pytest.mark.parametrize("rows", [None, b"ab"])
def test_no_rows(rows):
    """Anything other than a node of templates is refused."""
    one, mask = np.ones(1, np.uint8), np.zeros(1, np.uint8)
    for search in (
        lambda: mark_codes(rows, one, mask),
        lambda: mark_rows(rows, [(0, np.array([5], I64))], mask),
        lambda: mark_texts(rows, 1, [b"c"], PLAIN, PLAIN, mask),
    ):
        with pytest.raises(TypeError, match=r"TemplateColumns|must not be None"):
            search()
