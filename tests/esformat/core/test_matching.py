"""Values split by templates are restored to the same bytes, and a value takes the first template that fits."""

from __future__ import annotations

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from template_strategies import rows_of, stored_columns, tables, text_of

from esformat.core.matching import Matcher, gathered
from esformat.core.rendering import TemplateRows
from esformat.format.templates import Kind, Template, TemplateTable, Variable

I64 = np.int64


def _match(table, values):
    """The code of each value, and the numbers or strings of each variable."""
    templates, count = table.compiled(), len(values)
    data = b"".join(value or b"" for value in values)
    edges = np.cumsum([0, *(len(value or b"") for value in values)]).astype(I64)
    valid = np.array([value is not None for value in values], np.uint8)
    codes, counts = np.empty(count, I64), np.empty(templates.variables, I64)
    numbers, lengths = np.zeros(templates.variables * count, I64), np.zeros(templates.variables * count, I64)
    Matcher(templates).match(data, edges, valid, codes, numbers, lengths, counts)
    columns = []
    for v, held in enumerate(counts.tolist()):
        found = numbers[v * count : v * count + held]
        if table.variables[v].kind is Kind.STRING:
            sizes = lengths[v * count : v * count + held]
            columns.append((np.append(0, np.cumsum(sizes)).astype(I64), gathered(data, found, sizes)))
        else:
            columns.append(found)
    return codes, columns


def _back(table, codes, columns):
    templates = table.compiled()
    rows = TemplateRows(templates, stored_columns(columns), 0, codes, 1 << 20)
    given_strings = [(v, 0, *column) for v, column in enumerate(columns) if isinstance(column, tuple)]
    for v, column in enumerate(columns):
        if not isinstance(column, tuple) and len(column):
            rows.hold(v, column)
    return rows.values(0, len(codes), None, given_strings, 1 << 16)


@examples(400)
@given(st.data())
def test_the_same_bytes(data):
    """Values that fit templates, nearly fit them, or are arbitrary are restored exactly."""
    table = data.draw(tables())
    values = [text_of(table, row) for row in data.draw(rows_of(table))]
    values += data.draw(st.lists(st.none() | st.binary(max_size=9), max_size=4))
    for value in values[:4]:
        if value:
            at = data.draw(st.integers(0, len(value) - 1))
            values.append(value[:at] + data.draw(st.binary(max_size=1)) + value[at + 1 :])
    codes, columns = _match(table, values)
    assert [code == 0 for code in codes.tolist()] == [value is None for value in values]
    assert _back(table, codes, columns) == values


@st.composite
def alike_tables(draw):
    """Tables of templates with a common beginning and any number of slots, and texts that they produce."""
    kinds = [(Kind.STRING, 0, ()), (Kind.INTEGER, 0, ()), (Kind.ENUM, 0, (b"a", b"b", b"ab")), (Kind.PADDED, 2, ())]
    variables = tuple(Variable(*draw(st.sampled_from(kinds))) for _ in range(draw(st.integers(1, 4))))
    literal = st.sampled_from([b"", b" ", b"a", b"a ", b"-"])
    templates = [(Template((b"", b""), (draw(st.integers(0, len(variables) - 1)),)))]
    for _ in range(draw(st.integers(1, 5))):
        before = draw(st.sampled_from(templates))
        kept = draw(st.integers(0, len(before.slots)))
        slots = (*before.slots[:kept], *draw(st.lists(st.integers(0, len(variables) - 1), max_size=3)))
        literals = before.literals[: kept + 1] + tuple(draw(literal) for _ in range(len(slots) - kept))
        templates.append(Template(literals, slots))
    texts = st.lists(st.sampled_from([b"a", b"b", b"ab", b" ", b"-", b"0", b"7", b"07", b"12"]), max_size=8)
    whole = Template((b"", b""), (len(variables),))
    table = TemplateTable((*variables, Variable(Kind.STRING)), (*dict.fromkeys(templates), whole))
    return table, draw(st.lists(texts.map(b"".join), min_size=1, max_size=8))


@examples(600)
@given(alike_tables())
def test_the_first_template_that_fits(given_table):
    """A template's failure is not repeated for the next with the same beginning; the result is as if each was tried."""
    table, values = given_table
    alone = [TemplateTable(table.variables, (each, table.templates[-1])) for each in table.templates]
    for value in values:
        fits = [_match(one, [value])[0].tolist() == [1] for one in alone]
        codes, columns = _match(table, [value])
        assert codes.tolist() == [fits.index(True) + 1]
        assert _back(table, codes, columns) == [value]
    codes, columns = _match(table, values)
    assert _back(table, codes, columns) == values


def test_text_to_the_end_is_not_tried_first():
    """A template that accepts any rest of a row is not tried first for later rows."""
    table = TemplateTable(
        (Variable(Kind.INTEGER), Variable(Kind.STRING), Variable(Kind.STRING)),
        (Template((b"a ", b" b"), (0,)), Template((b"a ", b" ", b""), (0, 1)), Template((b"", b""), (2,))),
    )
    codes, _ = _match(table, [b"a 1 b", b"a 1 c", b"a 2 b", b"x", b"a 3 b"])
    assert codes.tolist() == [1, 2, 1, 3, 1]


def _kind_takes(kind, parameter, text, values=()):
    """Whether a variable alone accepts a text."""
    table = TemplateTable(
        (Variable(kind, parameter, values), Variable(Kind.STRING)),
        (Template((b"", b""), (0,)), Template((b"", b""), (1,))),
    )
    codes, columns = _match(table, [text])
    assert _back(table, codes, columns) == [text]
    return codes.tolist() == [1]


@pytest.mark.parametrize(
    ("kind", "parameter", "taken", "refused"),
    [
        (Kind.INTEGER, 0, [b"0", b"-1", b"10", b"9" * 18, b"-" + b"9" * 18],
         [b"", b"-", b"-0", b"00", b"01", b"+1", b" 1", b"1 ", b"1.0", b"1e3", b"9" * 19, b"a"]),
        (Kind.PADDED, 3, [b"000", b"007", b"999"], [b"", b"07", b"0007", b"-07", b"07a", b"7  "]),
        (Kind.DECIMAL, 2, [b"0.00", b"-0.01", b"12.50", b"9" * 16 + b".99"],
         [b"-0.00", b".50", b"01.50", b"1.5", b"1.500", b"1", b"1.", b"1,50", b"9" * 17 + b".99", b"--1.00"]),
        (Kind.HEX, 4, [b"0000", b"00ff", b"dead"], [b"DEAD", b"00fg", b"0ff", b"0x00", b"00ff0"]),
        (Kind.HEX, 16, [b"f" * 16, b"0" * 16], [b"f" * 17]),
        (Kind.DATE, 0, [b"2024-02-29", b"0001-01-01", b"9999-12-31"],
         [b"2023-02-29", b"1900-02-29", b"0000-01-01", b"2024-13-01", b"2024-00-10", b"2024-04-31", b"2024-04-00",
          b"2024/04/01", b"2024-4-01"]),
        (Kind.DATE, 1, [b"2024-02-29T23:59"], [b"2024-02-29 23:59", b"2024-02-29T24:00",
          b"2024-02-29T23:60", b"2024-02-29"]),
        (Kind.DATE, 6, [b"1969-12-31 23:59:59"], [b"1969-12-31 23:59:60", b"1969-12-31T23:59:59", b"1969-12-31 23:59"]),
        (Kind.DATE, 3, [b"2024-02-29T23:59:59.001"], [b"2024-02-29T23:59:59.01", b"2024-02-29T23:59:59,001"]),
        (Kind.DATE, 8, [b"2024-02-29 23:59:59.000001"], [b"2024-02-29 23:59:59.001"]),
        (Kind.DATE, 9, [b"29/Feb/2024:23:59:59"], [b"29/feb/2024:23:59:59", b"30/Feb/2024:23:59:59",
         b"29/Foo/2024:23:59:59"]),
    ],
)  # fmt: skip
def test_kinds_are_strict(kind, parameter, taken, refused):
    """A kind accepts exactly the texts that it would write."""
    assert [text for text in taken if not _kind_takes(kind, parameter, text)] == []
    assert [text for text in refused if _kind_takes(kind, parameter, text)] == []


@pytest.mark.parametrize("digits", [1, 4, 7, 8, 13, 16])
def test_any_byte_where_a_hexadecimal_digit_stands(digits):
    """Only the sixteen hexadecimal digits are accepted, each with its value."""
    table = TemplateTable(
        (Variable(Kind.HEX, digits), Variable(Kind.STRING)),
        (Template((b"", b""), (0,)), Template((b"", b""), (1,))),
    )
    texts = ["0123456789abcdef"[-digits:].encode(), b"f" * digits, b"0" * digits]
    values = [
        text[:at] + bytes([byte]) + text[at + 1 :] for text in texts for at in range(digits) for byte in range(256)
    ]
    codes, columns = _match(table, values)
    expected = [text for text in values if set(text) <= set(b"0123456789abcdef")]
    assert codes.tolist() == [1 if text in expected else 2 for text in values]
    assert columns[0].view(np.uint64).tolist() == [int(text, 16) for text in expected]


def test_values_of_an_enumeration():
    """Every value of an enumeration is accepted, whatever its length; other texts are not."""
    values = tuple(b"v" * size + b"%d" % n for size in range(20) for n in range(50))
    assert all(_kind_takes(Kind.ENUM, 0, value, values) for value in values[::37])
    assert not any(_kind_takes(Kind.ENUM, 0, text, values) for text in (b"", b"v", b"v50", b"v" * 19 + b"500"))


def test_a_slot_that_repeats_another():
    """A variable that occurs twice fits only if both texts are equal, and is stored once."""
    table = TemplateTable(
        (Variable(Kind.STRING), Variable(Kind.STRING)), (Template((b"", b"=", b""), (0, 0)), Template((b"", b""), (1,)))
    )
    codes, columns = _match(table, [b"ab=ab", b"ab=ac", b"ab=abc"])
    assert codes.tolist() == [1, 2, 2]
    assert columns[0][1] == b"ab"


def test_a_template_with_strings_only_is_not_tried_first():
    """After a value that only strings fit, the next value is matched against the types again."""
    table = TemplateTable(
        (Variable(Kind.INTEGER), Variable(Kind.STRING), Variable(Kind.STRING)),
        (Template((b"n=", b";"), (0,)), Template((b"n=", b";"), (1,)), Template((b"", b""), (2,))),
    )
    assert _match(table, [b"n=1;", b"n=x;", b"n=2;", b"?", b"n=3;"])[0].tolist() == [1, 2, 1, 3, 1]


@pytest.mark.parametrize("slots", [(), (0, 0), (1,)])
def test_the_last_template_takes_any_value(slots):
    """A table whose last template does not accept any value is refused."""
    table = TemplateTable(
        (Variable(Kind.STRING), Variable(Kind.INTEGER)), (Template((b"",) * (len(slots) + 1), slots),)
    )
    with pytest.raises(ValueError, match="any value"):
        Matcher(table.compiled())
    with pytest.raises(ValueError, match="any value"):
        Matcher(TemplateTable((Variable(Kind.STRING),), (Template((b"a", b""), (0,)),)).compiled())


def test_arrays_of_other_sizes():
    """Arrays of other sizes are refused; nothing outside them is read or written."""
    matcher = Matcher(TemplateTable((Variable(Kind.STRING),), (Template((b"", b""), (0,)),)).compiled())
    two, three = np.zeros(2, I64), np.array([0, 1, 2], I64)
    none = np.zeros(0, np.uint8)
    sizes = [
        (b"ab", two, none, two, two, two, two[:1]), (b"ab", three, none[:0], two, two[:1], two, two[:1]),
        (b"ab", three, none, two, two, two[:1], two[:1]), (b"ab", three, none, two, two, two, two),
        (b"ab", three, np.ones(1, np.uint8), two, two, two, two[:1]), (b"a", three, none, two, two, two, two[:1]),
        (b"ab", three[::-1].copy(), none, two, two, two, two[:1]), (b"ab", three - 1, none, two, two, two, two[:1]),
    ]  # fmt: skip
    for arrays in sizes:
        with pytest.raises(ValueError, match=r"numbers of lengths and places differ|does not fit|too little|end early"):
            matcher.match(*arrays)


def test_pieces_outside():
    """Pieces outside their bytes are refused."""
    assert gathered(b"abcd", np.array([2, 0, 4], I64), np.array([2, 1, 0], I64)) == b"cda"
    for begin, length in ((-1, 1), (0, 5), (4, 1), (5, 0), (0, -1), (1, (1 << 63) - 1)):
        with pytest.raises(ValueError, match="end early"):
            gathered(b"abcd", np.array([begin], I64), np.array([length], I64))
    with pytest.raises(ValueError, match="differ"):
        gathered(b"abcd", np.array([0], I64), np.array([], I64))
