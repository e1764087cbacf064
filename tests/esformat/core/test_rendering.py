"""Rows of templates beside the independent reader's; and nothing read or written outside."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import read_esdb
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from template_strategies import codes_of, columns_of, rows_of, stored_columns, tables, text_of

from esformat.core.blocks import FIRST_COLUMN_CHUNK
from esformat.core.rendering import TemplateRows, codes_that_may
from esformat.core.templates import SLACK_BYTES
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


def _rows(table, columns, codes, bits_cost=1.0):
    """Some rows, opened behind two other bytes; their strings, as they are given; numbers of planes are held."""
    body = b"ab" + stored_columns(columns, bits_cost)
    rows = TemplateRows(table.compiled(), body, 2, codes, 1 << 20)
    assert rows.end == len(body)
    given_strings = []
    for v, _, _, first, last in rows.needed(0, rows.rows):
        if table.variables[v].kind is Kind.STRING:
            given_strings.append((v, 0, *columns[v]))
        else:
            assert (first, last) == (0, len(columns[v]))
            rows.hold(v, columns[v])
    return rows, given_strings


def _rendered(render, count, room):
    offsets, out = np.full(count + 2, -1, np.int32), np.full(room + SLACK_BYTES + 1, 7, np.uint8)
    end = render(offsets, 1, out, 1)
    assert (offsets[0], offsets[1], offsets[-1]) == (-1, 1, end)
    assert out[0] == 7
    return [out[a:b].tobytes() for a, b in pairwise(offsets[1:].tolist())]


@examples(400)
@given(st.data())
def test_any_rows(data):
    """All kinds of variables, as bits or as planes, shown by one slot or several, in any part of the rows, in long runs
    of one template and short ones.
    """
    table = data.draw(tables())
    rows = [row for row in data.draw(rows_of(table)) for _ in range(data.draw(st.sampled_from([1, 1, 3, 40, 150])))]
    rows = rows[:400]
    texts = [text_of(table, row) for row in rows]
    opened, strings = _rows(table, columns_of(table, rows), codes_of(rows), data.draw(st.sampled_from([0.0, 1.0, 9.0])))
    low, high = sorted(data.draw(st.lists(st.integers(0, len(rows)), min_size=2, max_size=2)))
    wanted = [text or b"" for text in texts[low:high]]
    most = opened.most_bytes(low, high, strings, 1 << 30)
    assert sum(map(len, wanted)) <= most
    assert _rendered(lambda *to: opened.render(low, high, strings, *to), high - low, most) == wanted
    assert opened.values(low, high, None, strings, most) == texts[low:high]
    places = sorted(data.draw(st.sets(st.integers(low, high - 1), max_size=9))) if low < high else []
    given_places = np.array(places, I64)
    chosen = opened.most_chosen(given_places, strings, 1 << 30)
    assert (
        sum(len(texts[place] or b"") for place in places) <= chosen <= opened.most_bytes(0, len(rows), strings, 1 << 30)
    )
    assert opened.most_chosen(given_places, strings, 3) == min(chosen, 3)
    few = _rendered(lambda *to: opened.render_places(given_places, strings, *to), len(places), most)
    assert few == [texts[place] or b"" for place in places]
    assert opened.values(low, high, places, strings, most) == [texts[place] for place in places]
    valid = opened.validity(low, high)
    assert valid == (None if None not in texts[low:high] else bytes(text is not None for text in texts[low:high]))
    assert np.frombuffer(opened.codes(low, high), np.uint16).tolist() == codes_of(rows)[low:high].tolist()


@examples(300)
@given(st.data())
def test_rows_with_numbers(data):
    """The rows in which all variables of a chain have one of their numbers, of bits and of planes."""
    table = data.draw(tables())
    rows = [row for row in data.draw(rows_of(table)) for _ in range(data.draw(st.sampled_from([1, 1, 3, 300])))][:900]
    columns, codes = columns_of(table, rows), codes_of(rows)
    opened, _ = _rows(table, columns, codes, data.draw(st.sampled_from([0.0, 1.0, 9.0])))
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
    assert opened.mark_rows(chain, mask) == any(model)
    assert mask.tolist() == model
    marks = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=len(table.templates) + 1, max_size=len(table.templates) + 1)),
        np.uint8,
    )
    opened.mark_codes(marks, mask)
    assert mask.tolist() == [told or marks[code] > 0 for told, code in zip(model, codes.tolist(), strict=True)]


@examples(300)
@given(st.data())
def test_rows_with_texts(data):
    """The rows whose string of a variable holds one of some texts, also at the edges of other strings."""
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
    opened, _ = _rows(table, columns, codes)
    mask = np.zeros(len(codes), np.uint8)
    opened.mark_texts(variable, texts, PLAIN, PLAIN, mask)
    assert mask.tolist() == model


def test_rows_with_other_texts():
    """Numbers, variables that are not there, empty texts, and other rows."""
    rows = TemplateRows(ONE.compiled(), stored_columns([NUMBERS, STRINGS]), 0, CODES, 99)
    mask = np.zeros(2, np.uint8)
    rows.mark_texts(1, [b"ab", b"d"], PLAIN, PLAIN, mask)  # the first lies across two strings
    assert mask.tolist() == [0, 0]
    rows.mark_texts(1, [b"ab", b"c"], PLAIN, PLAIN, mask)
    assert mask.tolist() == [0, 1]
    for variable in (-1, 0, 2, 1 << 40):
        with pytest.raises(ValueError, match="has no strings"):
            rows.mark_texts(variable, [b"c"], PLAIN, PLAIN, mask)
    with pytest.raises(ValueError, match="empty"):
        rows.mark_texts(1, [b"c", b""], PLAIN, PLAIN, mask)
    for size in (0, 1, 3):
        with pytest.raises(ValueError, match="a byte for each row"):
            rows.mark_texts(1, [b"c"], PLAIN, PLAIN, np.zeros(size, np.uint8))


@pytest.mark.parametrize("lengths", [[-1, 4], [1, 1 << 40], [(1 << 63) - 1, 1], [1, 1], [2, 2]])
def test_texts_of_broken_lengths(lengths):
    """No string is longer than what is stored, and none is read outside of that."""
    stored = bytearray(stored_columns([NUMBERS, STRINGS]))
    numbers, right = encode_ints(NUMBERS, NONE), encode_ints(np.array([1, 2], I64), NONE)
    assert stored[len(numbers) + 4 :].startswith(right)
    wrong = encode_ints(np.array(lengths, I64), NONE)
    stored[len(numbers) + 4 : len(numbers) + 4 + len(right)] = wrong
    rows = TemplateRows(ONE.compiled(), bytes(stored), 0, CODES, 99)
    with pytest.raises(CorruptSegmentError, match=r"out of bounds|expected"):
        rows.mark_texts(1, [b"c"], PLAIN, PLAIN, np.zeros(2, np.uint8))


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
    """Blocks of which a row has a mark of each kind; one that has none counts as marked, and each dictionary has its
    own.
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
    ends = [block.chunks[FIRST_COLUMN_CHUNK + 1] for block in blocks]
    assert all(not each or each[1] == end for each, end in zip(found, ends, strict=True))
    assert len(asked) == len(set(asked)) == len({number for number, _, templated in described if templated})


def test_codes_of_broken_blocks():
    """The head of a node, its codes, and a chunk that is not there."""
    codes = encode_ints(np.array([1, 2], I64), NONE)
    for chunk in (b"\x08", b"\x08\1\0\0" + codes, b"\x08\0\0\1" + codes, b"\x08\0\0\0" + codes[:-1]):
        with pytest.raises(CorruptSegmentError, match=r"head|cut short"):
            codes_that_may([block_of(chunk, 2, 1)], FIRST_COLUMN_CHUNK, lambda _: [], PLAIN)
    assert codes_that_may([block_of(b"", 2, 1)], FIRST_COLUMN_CHUNK, lambda _: [], PLAIN) == [None]
    with pytest.raises(TypeError, match="missing"):
        codes_that_may([None], FIRST_COLUMN_CHUNK, lambda _: [], PLAIN)
    for chunk in (-1, FIRST_COLUMN_CHUNK + 1, 1 << 40):
        with pytest.raises(ValueError, match="no chunk"):
            codes_that_may([block_of(b"", 2, 1)], chunk, lambda _: [], PLAIN)


def test_rows_with_other_numbers():
    """Strings, variables that are not there, numbers that do not ascend or are not at hand, and other rows."""
    rows = TemplateRows(ONE.compiled(), stored_columns([NUMBERS, STRINGS]), 0, CODES, 99)
    mask, five = np.zeros(2, np.uint8), np.array([5], I64)
    assert rows.mark_rows([(0, five)], mask)
    assert mask.tolist() == [1, 0]
    assert not rows.mark_rows([], mask)
    assert not rows.mark_rows([(0, np.zeros(0, I64))], mask)
    for variable in (-1, 1, 2, 1 << 40):
        with pytest.raises(ValueError, match="has no numbers"):
            rows.mark_rows([(variable, five)], mask)
    for wrong in ([5, 5], [6, 5]):
        with pytest.raises(ValueError, match="ascend"):
            rows.mark_rows([(0, np.array(wrong, I64))], mask)
    for size in (0, 1, 3):
        with pytest.raises(ValueError, match="a byte for each row"):
            rows.mark_rows([(0, five)], np.zeros(size, np.uint8))
    for marks, size in ((1, 2), (3, 2), (2, 1), (2, 3)):
        with pytest.raises(ValueError, match="each template and each row"):
            rows.mark_codes(np.ones(marks, np.uint8), np.zeros(size, np.uint8))
    planes = TemplateRows(ONE.compiled(), stored_columns([NUMBERS, STRINGS], 0.0), 0, CODES, 99)
    assert planes.lacks(0)
    with pytest.raises(ValueError, match="not at hand"):
        planes.mark_rows([(0, five)], mask)
    planes.hold(0, NUMBERS)
    assert not planes.lacks(0)
    assert planes.mark_rows([(0, five)], mask)


ONE = TemplateTable((Variable(Kind.INTEGER), Variable(Kind.STRING)), (Template((b"n=", b";", b""), (0, 1)),))
NUMBERS, STRINGS = np.array([5, -6], I64), (np.array([0, 1, 3], I64), b"abc")
CODES = np.array([1, 1], I64)


def _one(strings=(1, 0, *STRINGS), most=99, low=0, high=2, codes=CODES):
    rows = TemplateRows(ONE.compiled(), stored_columns([NUMBERS, STRINGS]), 0, codes, 99)
    return rows.values(low, high, None, [strings] if strings else [], most)


def test_rows_side_by_side():
    """What stands for two rows, and a part of the strings for one of them."""
    assert _one() == [b"n=5;a", b"n=-6;bc"]
    assert _one((1, 1, np.array([1, 3], I64), b"abc"), low=1) == [b"n=-6;bc"]


@pytest.mark.parametrize("repeated", [1, 20], ids=["few", "many"])
@pytest.mark.parametrize(
    ("strings", "error"),
    [(None, IndexError), ((1, 0, STRINGS[0][:2], b"abc"), IndexError), ((1, 0, STRINGS[0], b"ab"), IndexError),
     ((1, 1, *STRINGS), IndexError), ((1, 0, np.array([0, 3, 1], I64), b"abc"), IndexError),
     ((1, 0, np.array([-1, 1, 3], I64), b"abc"), IndexError), ((1, 0, np.zeros(0, I64), b""), IndexError),
     ((1, 0, np.array([0, 1 << 62, 3], I64), b"abc"), IndexError), ((0, 0, *STRINGS), ValueError),
     ((2, 0, *STRINGS), ValueError), ((-1, 0, *STRINGS), ValueError), ((1, -1, *STRINGS), ValueError)],
)  # fmt: skip
def test_strings_that_are_not_there(strings, error, repeated):
    """Nothing is read outside of what is given."""
    columns = [np.tile(NUMBERS, repeated), (np.arange(2 * repeated + 1), bytes(2 * repeated))]
    rows = TemplateRows(ONE.compiled(), stored_columns(columns), 0, np.tile(CODES, repeated), 99)
    if strings and repeated > 1 and error is IndexError and len(strings[2]) > 2:
        strings = (*strings[:2], np.append(strings[2], np.full(2 * repeated - 2, strings[2][-1])), strings[3])
    with pytest.raises(error):
        rows.values(0, 2 * repeated, None, [strings] if strings else [], 999)


@pytest.mark.parametrize("repeated", [1, 20], ids=["few", "many"])
def test_too_little_room(repeated):
    """What does not fit is refused before it is written; 32 bytes more are needed."""
    columns = [np.tile(NUMBERS, repeated), (np.arange(0, 2 * repeated + 1), b"ab" * repeated)]
    rows = TemplateRows(ONE.compiled(), stored_columns(columns), 0, np.tile(CODES, repeated), 99)
    strings, count = [(1, 0, *columns[1])], 2 * repeated
    size = 11 * repeated
    for room in (0, 1, size - 1, size):
        guarded = np.full(room + SLACK_BYTES + 8, 7, np.uint8)
        offsets = np.zeros(count + 1, np.int32)
        if room == size:
            assert rows.render(0, count, strings, offsets, 0, guarded[: room + SLACK_BYTES], 0) == size
        else:
            with pytest.raises(OverflowError):
                rows.render(0, count, strings, offsets, 0, guarded[: room + SLACK_BYTES], 0)
            with pytest.raises(OverflowError):
                rows.values(0, count, None, strings, room)
        assert (guarded[room + SLACK_BYTES :] == 7).all()


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (1, 0), (0, 3), (3, 3)])
def test_rows_outside(low, high):
    """Rows that are not there are not asked for."""
    rows, strings = _rows(ONE, [NUMBERS, STRINGS], CODES)
    offsets, out = np.zeros(9, np.int32), np.zeros(99, np.uint8)
    for ask in (
        lambda: rows.render(low, high, strings, offsets, 0, out, 0), lambda: rows.needed(low, high),
        lambda: rows.values(low, high, None, strings, 9), lambda: rows.most_bytes(low, high, strings, 1),
        lambda: rows.validity(low, high), lambda: rows.codes(low, high),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="fewer rows"):
            ask()


@pytest.mark.parametrize("places", [[2], [-1], [1, 0], [0, 0], [1 << 62]])
def test_places_of_rows_outside(places):
    """They ascend, and are those of rows."""
    rows, strings = _rows(ONE, [NUMBERS, STRINGS], CODES)
    with pytest.raises(ValueError, match="fewer rows"):
        rows.render_places(np.array(places, I64), strings, np.zeros(9, np.int32), 0, np.zeros(99, np.uint8), 0)
    with pytest.raises(ValueError, match="fewer rows"):
        rows.values(0, 2, places, strings, 99)


@pytest.mark.parametrize("place", [2, -1, 1 << 62])
def test_bounds_of_places_outside(place):
    """What a row takes is told of rows alone."""
    rows, strings = _rows(ONE, [NUMBERS, STRINGS], CODES)
    with pytest.raises(ValueError, match="fewer rows"):
        rows.most_chosen(np.array([0, place], I64), strings, 99)


@pytest.mark.parametrize("spread", [1, 2, 5, 300, 2000])
def test_many_rows_before(spread):
    """Rows behind many others, of codes that come in runs of any length."""
    table = TemplateTable(
        (Variable(Kind.INTEGER), Variable(Kind.HEX, 16)),
        (Template((b"a", b""), (0,)), Template((b"b", b",", b"."), (1, 0)), Template((b"c",), ())),
    )
    codes = np.arange(2000) // spread * 7 % 4
    numbers = np.arange(2000) * 10**15 // 7
    columns = [numbers[: int(np.isin(codes, [1, 2]).sum())], numbers[: int((codes == 2).sum())]]
    rows, _ = _rows(table, columns, codes)
    places, texts = [0, 0], []
    for code in codes.tolist():
        shown = [
            int(column[min(place, len(column) - 1)]) if len(column) else 0
            for column, place in zip(columns, places, strict=True)
        ]
        texts.append((None, b"a%d" % shown[0], b"b%016x,%d." % (shown[1], shown[0]), b"c")[code])
        places = [places[0] + (code in (1, 2)), places[1] + (code == 2)]
    for low, high in [(0, 2000), (255, 300), (256, 257), (511, 1900), (1999, 2000), (1024, 1024)]:
        assert rows.values(low, high, None, [], 1 << 20) == texts[low:high]
        wanted = [text or b"" for text in texts[low:high]]
        assert _rendered(lambda *to: rows.render(low, high, [], *to), high - low, 1 << 17) == wanted  # noqa: B023
    for chosen in ([255], [256], [3, 256, 1999], list(range(0, 2000, 130))):
        assert rows.values(0, 2000, chosen, [], 1 << 20) == [texts[place] for place in chosen]


def test_places_outside():
    """Offsets and bytes begin where there is room."""
    rows, strings = _rows(ONE, [NUMBERS, STRINGS], CODES)
    offsets, out = np.zeros(3, np.int32), np.zeros(99, np.uint8)
    both = np.array([0, 1], I64)
    for row in (1, -1, 9):
        with pytest.raises(ValueError, match="fewer places"):
            rows.render(0, 2, strings, offsets, row, out, 0)
        with pytest.raises(ValueError, match="fewer places"):
            rows.render_places(both, strings, offsets, row, out, 0)
    for at in (-1, 68, 99, 1 << 40):
        with pytest.raises(OverflowError):
            rows.render(0, 2, strings, offsets, 0, out, at)
        with pytest.raises(OverflowError):
            rows.render_places(both, strings, offsets, 0, out, at)
    for most in (-1, 1 << 31):
        with pytest.raises(OverflowError):
            rows.values(0, 2, None, strings, most)


def test_numbers_held():
    """Numbers are held once, as many as the variable has values, and of a variable of numbers."""
    codes, columns = np.tile(CODES, 4), [np.arange(8) * 100_000, (np.zeros(9, I64), b"")]
    rows = TemplateRows(ONE.compiled(), stored_columns(columns, 0.0), 0, codes, 99)
    assert [each[0] for each in rows.needed(0, 8)] == [0, 1]
    for v, numbers in ((0, np.zeros(7, I64)), (1, np.zeros(8, I64)), (2, np.zeros(8, I64)), (-1, np.zeros(8, I64))):
        with pytest.raises(ValueError, match="numbers"):
            rows.hold(v, numbers)
    with pytest.raises(IndexError):
        rows.values(0, 8, None, [(1, 0, *columns[1])], 999)
    rows.hold(0, columns[0])
    rows.hold(0, np.zeros(8, I64))
    assert [each[0] for each in rows.needed(0, 8)] == [1]
    assert rows.values(0, 2, None, [(1, 0, *columns[1])], 99) == [b"n=0;", b"n=100000;"]


@pytest.mark.parametrize("code", [2, -1, 1 << 62])
def test_codes_outside(code):
    """A code without a template is refused."""
    with pytest.raises(CorruptSegmentError, match="template that is not there"):
        _one(codes=np.array([1, code], I64))


def test_more_slots_than_allowed():
    """What the rows show together is bounded before anything is decoded."""
    with pytest.raises(CorruptSegmentError, match="show 4 slots"):
        TemplateRows(ONE.compiled(), stored_columns([NUMBERS, STRINGS]), 0, CODES, 3)


def test_damaged_columns():
    """Cut or flipped anywhere, the columns of variables are refused, or others: nothing is read outside."""
    stored = stored_columns([NUMBERS, STRINGS])
    damaged = [stored[:size] for size in range(len(stored))]
    damaged += [
        stored[:n] + bytes([stored[n] ^ 1 << bit]) + stored[n + 1 :] for n in range(len(stored)) for bit in range(8)
    ]
    refused = 0
    for body in damaged:
        try:
            rows = TemplateRows(ONE.compiled(), body, 0, CODES, 99)
        except CorruptSegmentError:
            refused += 1
            continue
        assert rows.end <= len(body)
        assert len(rows.columns) == 2
    assert refused > len(stored)


@pytest.mark.parametrize("repeated", [1, 40], ids=["few", "many"])
@pytest.mark.parametrize(
    ("kind", "parameter", "number"),
    [(Kind.PADDED, 2, 100), (Kind.PADDED, 18, 10**18), (Kind.PADDED, 3, -1), (Kind.HEX, 1, 16), (Kind.HEX, 15, -1),
     (Kind.DATE, 0, -719_163), (Kind.DATE, 0, 2_932_897), (Kind.DATE, 1, -719_162 * 1440 - 1), (Kind.DATE, 4, 1 << 62),
     (Kind.DATE, 9, -(1 << 63)), (Kind.ENUM, 0, 2), (Kind.ENUM, 0, -1), (Kind.ENUM, 0, 1 << 40)],
)  # fmt: skip
def test_numbers_that_a_kind_cannot_show(kind, parameter, number, repeated):
    """They are refused, by the independent reader as well."""
    variable = Variable(kind, parameter, (b"a", b"b") if kind is Kind.ENUM else ())
    table = TemplateTable((variable,), (Template((b"", b""), (0,)),))
    for numbers in (np.full(repeated, number, I64), np.array([0] * (repeated - 1) + [number], I64)):
        rows, _ = _rows(table, [numbers], np.ones(repeated, I64))
        with pytest.raises((ValueError, IndexError)):
            rows.values(0, repeated, None, [], 9999)
    with pytest.raises(read_esdb.Corrupt):
        text_of(table, (0, {0: number}))
