"""Rendered rows of templates agree with the independent reader; nothing outside the buffers is read or written."""

from __future__ import annotations

from itertools import accumulate, cycle, pairwise, takewhile

import numpy as np
import pytest
import read_esdb
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from template_strategies import LITERALS, codes_of, columns_of, opened_rows, rows_of, stored_columns, tables, text_of

from esformat.core.rendering import TemplateRows
from esformat.core.templates import SLACK_BYTES
from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.templates import Kind, Template, TemplateTable, Variable

I64 = np.int64
PLAIN, NONE = Decompressor(), make_compressor(Codec.NONE)


def _rendered(render, count, room):
    offsets, out = np.full(count + 2, -1, np.int32), np.full(room + SLACK_BYTES + 1, 7, np.uint8)
    end = render(offsets, 1, out, 1)
    assert (offsets[0], offsets[1], offsets[-1]) == (-1, 1, end)
    assert out[0] == 7
    return [out[a:b].tobytes() for a, b in pairwise(offsets[1:].tolist())]


@examples(400)
@given(st.data())
def test_any_rows(data):
    """Any rows are rendered right: all kinds of variables, as bits or planes, in one slot or several, in long and
    short runs of one template.
    """
    table = data.draw(tables())
    rows = [row for row in data.draw(rows_of(table)) for _ in range(data.draw(st.sampled_from([1, 1, 3, 40, 150])))]
    rows = rows[:400]
    texts = [text_of(table, row) for row in rows]
    opened, strings = opened_rows(
        table, columns_of(table, rows), codes_of(rows), data.draw(st.sampled_from([0.0, 1.0, 9.0]))
    )
    low, high = sorted(data.draw(st.lists(st.integers(0, len(rows)), min_size=2, max_size=2)))
    wanted = [text or b"" for text in texts[low:high]]
    most = opened.most_bytes(low, high, strings, 1 << 30)
    assert sum(map(len, wanted)) <= most
    assert _rendered(lambda *to: opened.render(low, high, strings, *to), high - low, most) == wanted
    assert opened.values(low, high, None, strings, most) == texts[low:high]
    places = sorted(data.draw(st.sets(st.integers(low, high - 1), max_size=9))) if low < high else []
    if data.draw(st.booleans()):  # many, with gaps of all lengths
        gaps = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
        places = list(takewhile(lambda place: place < high, accumulate(cycle(gaps), initial=low)))
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


ONE = TemplateTable((Variable(Kind.INTEGER), Variable(Kind.STRING)), (Template((b"n=", b";", b""), (0, 1)),))
NUMBERS, STRINGS = np.array([5, -6], I64), (np.array([0, 1, 3], I64), b"abc")
CODES = np.array([1, 1], I64)


def _one(strings=(1, 0, *STRINGS), most=99, low=0, high=2, codes=CODES):
    rows = TemplateRows(ONE.compiled(), stored_columns([NUMBERS, STRINGS]), 0, codes, 99)
    return rows.values(low, high, None, [strings] if strings else [], most)


@examples(400)
@given(st.data())
def test_shortened_templates(data):
    """A shortened template shows some of its slots between other literals, even if another shows more of a variable."""
    table = data.draw(tables())
    rows = [row for row in data.draw(rows_of(table)) for _ in range(data.draw(st.sampled_from([1, 1, 3, 40, 150])))]
    short = []
    for template in table.templates:
        slots = [slot for slot in template.slots if data.draw(st.booleans())]
        short.append(Template(tuple(data.draw(LITERALS) for _ in range(len(slots) + 1)), tuple(slots)))
    expected = [text_of(TemplateTable(table.variables, tuple(short)), row) or b"" for row in rows]
    whole, given_strings = opened_rows(table, columns_of(table, rows), codes_of(rows))
    made = whole.shortened(_shortened(table, short))
    shown = {variable for variable, *_ in made.needed(0, len(rows))}
    given_strings = [each for each in given_strings if each[0] in shown]
    low = data.draw(st.integers(0, len(rows)))
    for first in (0, low):
        most = made.most_bytes(first, len(rows), given_strings, 1 << 30)
        parts = _rendered(
            lambda *out, first=first: made.render(first, len(rows), given_strings, *out), len(rows) - first, most
        )
        assert parts == expected[first:]
    table_of = np.arange(len(short) + 1, dtype=np.uint8)
    told = np.zeros(len(rows), np.uint8)
    assert whole.look_up(0, len(rows), None, table_of, told) == int(np.bitwise_or.reduce(told, initial=0))
    assert told.tolist() == codes_of(rows).tolist()


def _shortened(table, short):
    literals = [literal for template in short for literal in template.literals]
    return table.compiled().shortened(
        np.array([len(template.slots) for template in short], I64),
        np.array([slot for template in short for slot in template.slots], I64),
        np.array(list(map(len, literals)), I64),
        b"".join(literals),
    )


def test_shortened_templates_that_do_not_fit():
    table = TemplateTable(
        (Variable(Kind.INTEGER), Variable(Kind.STRING)), (Template((b"a", b""), (0,)), Template((b"", b""), (1,)))
    )
    with pytest.raises(ValueError, match="did not show"):
        _shortened(table, [Template((b"", b""), (1,)), Template((b"",), ())])
    with pytest.raises(ValueError, match="as many templates"):
        _shortened(table, [Template((b"",), ())])
    with pytest.raises(ValueError, match="names variable 2"):
        _shortened(table, [Template((b"", b""), (2,)), Template((b"",), ())])
    rows, _ = opened_rows(table, [np.array([5], I64), (np.array([0], I64), b"")], np.array([1], I64))
    other = TemplateTable((Variable(Kind.STRING),), (Template((b"", b""), (0,)),)).compiled()
    with pytest.raises(ValueError, match="as many as the rows have"):
        rows.shortened(other)


@pytest.mark.parametrize(
    ("low", "high", "places", "table", "told"),
    [
        (0, 2, None, 2, 2),
        (0, 2, None, 3, 1),
        (0, 3, None, 3, 3),
        (0, 2, [2], 3, 1),
        (0, 2, [-1], 3, 1),
        (0, 2, [0], 3, 2),
    ],
)
def test_tell_outside(low, high, places, table, told):
    made = TemplateTable((Variable(Kind.STRING),), (Template((b"x",), ()), Template((b"", b""), (0,))))
    rows, _ = opened_rows(made, [(np.array([0], I64), b"")], np.array([1, 1], I64))
    places = None if places is None else np.array(places, I64)
    with pytest.raises(ValueError, match=r"one byte|fewer rows"):
        rows.look_up(low, high, places, bytes(table), np.zeros(told, np.uint8))


def test_rows_side_by_side():
    """Adjacent rows are rendered, also with the strings of only one of them."""
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
    """Missing or wrong strings are refused; nothing outside them is read."""
    columns = [np.tile(NUMBERS, repeated), (np.arange(2 * repeated + 1), bytes(2 * repeated))]
    rows = TemplateRows(ONE.compiled(), stored_columns(columns), 0, np.tile(CODES, repeated), 99)
    if strings and repeated > 1 and error is IndexError and len(strings[2]) > 2:
        strings = (*strings[:2], np.append(strings[2], np.full(2 * repeated - 2, strings[2][-1])), strings[3])
    for chosen in (None, list(range(2 * repeated))):
        with pytest.raises(error):
            rows.values(0, 2 * repeated, chosen, [strings] if strings else [], 999)


@pytest.mark.parametrize("repeated", [1, 20], ids=["few", "many"])
def test_too_little_room(repeated):
    """A buffer too small for the rows and 32 spare bytes is refused before anything is written."""
    columns = [np.tile(NUMBERS, repeated), (np.arange(0, 2 * repeated + 1), b"ab" * repeated)]
    rows = TemplateRows(ONE.compiled(), stored_columns(columns), 0, np.tile(CODES, repeated), 99)
    strings, count = [(1, 0, *columns[1])], 2 * repeated
    every = np.arange(count)
    size = 11 * repeated
    for room in (0, 1, size - 1, size):
        guarded = np.full(room + SLACK_BYTES + 8, 7, np.uint8)
        offsets = np.zeros(count + 1, np.int32)
        if room == size:
            assert rows.render(0, count, strings, offsets, 0, guarded[: room + SLACK_BYTES], 0) == size
            assert rows.render_places(every, strings, offsets, 0, guarded[: room + SLACK_BYTES], 0) == size
        else:
            with pytest.raises(OverflowError):
                rows.render(0, count, strings, offsets, 0, guarded[: room + SLACK_BYTES], 0)
            with pytest.raises(OverflowError):
                rows.render_places(every, strings, offsets, 0, guarded[: room + SLACK_BYTES], 0)
            with pytest.raises(OverflowError):
                rows.values(0, count, None, strings, room)
        assert (guarded[room + SLACK_BYTES :] == 7).all()


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (1, 0), (0, 3), (3, 3)])
def test_rows_outside(low, high):
    """Rows out of range are refused."""
    rows, strings = opened_rows(ONE, [NUMBERS, STRINGS], CODES)
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
    """Row numbers that do not ascend or are out of range are refused."""
    rows, strings = opened_rows(ONE, [NUMBERS, STRINGS], CODES)
    with pytest.raises(ValueError, match="fewer rows"):
        rows.render_places(np.array(places, I64), strings, np.zeros(9, np.int32), 0, np.zeros(99, np.uint8), 0)
    with pytest.raises(ValueError, match="fewer rows"):
        rows.values(0, 2, places, strings, 99)


@pytest.mark.parametrize("place", [2, -1, 1 << 62])
def test_bounds_of_places_outside(place):
    """The size of rows out of range is not computed."""
    rows, strings = opened_rows(ONE, [NUMBERS, STRINGS], CODES)
    with pytest.raises(ValueError, match="fewer rows"):
        rows.most_chosen(np.array([0, place], I64), strings, 99)


@pytest.mark.parametrize("spread", [1, 2, 5, 300, 2000])
def test_many_rows_before(spread):
    """Rows after many others are rendered right, with runs of codes of any length."""
    table = TemplateTable(
        (Variable(Kind.INTEGER), Variable(Kind.HEX, 16)),
        (Template((b"a", b""), (0,)), Template((b"b", b",", b"."), (1, 0)), Template((b"c",), ())),
    )
    codes = np.arange(2000) // spread * 7 % 4
    numbers = np.arange(2000) * 10**15 // 7
    columns = [numbers[: int(np.isin(codes, [1, 2]).sum())], numbers[: int((codes == 2).sum())]]
    rows, _ = opened_rows(table, columns, codes)
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
    for chosen in ([255], [256], [3, 256, 1999], *(list(range(step // 2, 2000, step)) for step in (1, 2, 3, 11, 130))):
        assert rows.values(0, 2000, chosen, [], 1 << 20) == [texts[place] for place in chosen]


def test_places_outside():
    """Offsets and bytes that would begin outside their buffers are refused."""
    rows, strings = opened_rows(ONE, [NUMBERS, STRINGS], CODES)
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
    """Numbers are accepted once, for a variable of numbers, and as many as it has values."""
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
    with pytest.raises(CorruptSegmentError, match="missing template"):
        _one(codes=np.array([1, code], I64))


def test_more_slots_than_allowed():
    """The number of slots that the rows show is limited before anything is decoded."""
    with pytest.raises(CorruptSegmentError, match="show 4 slots"):
        TemplateRows(ONE.compiled(), stored_columns([NUMBERS, STRINGS]), 0, CODES, 3)


def test_damaged_columns():
    """Columns of variables that are cut or flipped anywhere are refused, or stay within their bytes."""
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
    """A number that a kind cannot show is refused, by the independent reader as well."""
    variable = Variable(kind, parameter, (b"a", b"b") if kind is Kind.ENUM else ())
    table = TemplateTable((variable,), (Template((b"", b""), (0,)),))
    for numbers in (np.full(repeated, number, I64), np.array([0] * (repeated - 1) + [number], I64)):
        rows, _ = opened_rows(table, [numbers], np.ones(repeated, I64))
        for chosen in (None, [*range(0, repeated - 1, 3), repeated - 1]):
            with pytest.raises((ValueError, IndexError)):
                rows.values(0, repeated, chosen, [], 9999)
    with pytest.raises(read_esdb.Corrupt):
        text_of(table, (0, {0: number}))
