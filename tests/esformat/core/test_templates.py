"""Values put together from templates, beside the independent reader's; and nothing read or written outside."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import read_esdb
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from template_strategies import columns_of, rows_of, tables, text_of

from esformat.core.templates import SLACK_BYTES, Templates
from esformat.format.templates import Kind, Template, TemplateTable, Variable

I64 = np.int64


def _codes(rows):
    return np.array([0 if row is None else row[0] + 1 for row in rows], I64)


def _put(templates, codes, low, high, columns, room=1 << 16, firsts=None, known=None):
    offsets, out = np.full(high - low + 1, -1, np.int32), np.zeros(room, np.uint8)
    firsts = np.zeros(templates.variables, I64) if firsts is None else firsts
    end = templates.put_together(codes, low, high, templates.opened(columns, known), firsts, offsets, 0, out, 0)
    assert end == offsets[-1]
    return [out[a:b].tobytes() for a, b in pairwise(offsets.tolist())]


@examples(300)
@given(st.data())
def test_any_rows(data):
    """All kinds of variables, shown by one slot or several, in any part of the rows."""
    table = data.draw(tables())
    rows = data.draw(rows_of(table))
    templates = table.compiled()
    low, high = sorted(data.draw(st.lists(st.integers(0, len(rows)), min_size=2, max_size=2)))
    columns = columns_of(table, rows[low:high])
    expected = [text_of(table, row) or b"" for row in rows[low:high]]
    assert _put(templates, _codes(rows), low, high, columns) == expected
    firsts = np.zeros(templates.variables, I64)
    templates.add_counts(_codes(rows), 0, low, firsts)
    whole = columns_of(table, rows)
    texts = [column if isinstance(column, tuple) else None for column in whole]
    known = templates.opened([None if text else column for text, column in zip(texts, whole, strict=True)])
    assert _put(templates, _codes(rows), low, high, texts, firsts=firsts, known=known) == expected
    counts = np.zeros(templates.variables, I64)
    shown = templates.add_counts(_codes(rows), low, high, counts)
    assert shown == sum(len(table.templates[row[0]].slots) for row in rows[low:high] if row is not None)
    held = [len(c[0]) - 1 if isinstance(c, tuple) else len(c) for c in columns]
    assert counts.tolist() == held
    strings = sum(len(c[1]) * 5 for c in columns if isinstance(c, tuple))  # a slot five times at most
    assert sum(map(len, expected)) <= templates.most_bytes(_codes(rows), low, high, 1 << 30) + strings


ONE = TemplateTable((Variable(Kind.INTEGER), Variable(Kind.STRING)), (Template((b"n=", b";", b""), (0, 1)),))


def _one(columns, codes=(1, 1), room=1 << 10, low=0, high=2):
    return _put(ONE.compiled(), np.array(codes, I64), low, high, columns, room)


NUMBERS, STRINGS = np.array([5, -6], I64), (np.array([0, 1, 3], I64), b"abc")


def test_rows_side_by_side():
    """What stands for two rows."""
    assert _one([NUMBERS, STRINGS]) == [b"n=5;a", b"n=-6;bc"]


@pytest.mark.parametrize(
    ("columns", "codes", "error"),
    [([NUMBERS[:1], STRINGS], (1, 1), IndexError), ([NUMBERS, (STRINGS[0][:2], b"abc")], (1, 1), IndexError),
     ([NUMBERS, (STRINGS[0], b"ab")], (1, 1), IndexError),
     ([NUMBERS, (np.array([0, 3, 1], I64), b"abc")], (1, 1), IndexError),
     ([NUMBERS, (np.array([-1, 1, 3], I64), b"abc")], (1, 1), IndexError), ([NUMBERS, None], (1, 1), IndexError),
     ([None, STRINGS], (1, 1), IndexError), ([NUMBERS, (np.zeros(0, I64), b"")], (1, 1), IndexError),
     ([NUMBERS, STRINGS], (1, 2), IndexError), ([NUMBERS, STRINGS], (1, -1), IndexError),
     ([NUMBERS, STRINGS], (1, -(1 << 63)), IndexError), ([NUMBERS], (1, 1), ValueError),
     ([NUMBERS, (np.array([0, 1 << 62, 3], I64), b"abc")], (1, 1), IndexError)],
)  # fmt: skip
def test_values_that_are_not_there(columns, codes, error):
    """Nothing is read outside of what is given."""
    with pytest.raises(error):
        _one(columns, codes)


@pytest.mark.parametrize("room", range(SLACK_BYTES - 1, SLACK_BYTES + 13))
def test_too_little_room(room):
    """What does not fit is refused before it is written; 32 bytes more are needed."""
    if room == SLACK_BYTES + 12:
        assert _one([NUMBERS, STRINGS], room=room)
    else:
        with pytest.raises(OverflowError):
            _one([NUMBERS, STRINGS], room=room)


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (1, 0), (0, 3), (3, 3)])
def test_rows_outside(low, high):
    """Rows that are not there are not asked for."""
    templates, codes = ONE.compiled(), np.array([1, 1], I64)
    with pytest.raises(ValueError, match="fewer"):
        _put(templates, codes, low, high, [NUMBERS, STRINGS])
    with pytest.raises(ValueError, match="fewer"):
        templates.add_counts(codes, low, high, np.zeros(2, I64))
    with pytest.raises(ValueError, match="fewer"):
        templates.most_bytes(codes, low, high, 1)


def test_places_outside():
    """Offsets and bytes begin where there is room."""
    templates, codes, offsets, out = (
        ONE.compiled(),
        np.array([1, 1], I64),
        np.zeros(3, np.int32),
        np.zeros(99, np.uint8),
    )
    opened, firsts = templates.opened([NUMBERS, STRINGS]), np.zeros(2, I64)
    for row, at in ((1, 0), (-1, 0), (9, 0)):
        with pytest.raises(ValueError, match="fewer places"):
            templates.put_together(codes, 0, 2, opened, firsts, offsets, row, out, at)
    for at in (-1, 68, 99, 1 << 40):
        with pytest.raises(OverflowError):
            templates.put_together(codes, 0, 2, opened, firsts, offsets, 0, out, at)
    with pytest.raises(ValueError, match="fewer rows"):
        templates.add_counts(codes, 0, 2, np.zeros(3, I64))


@pytest.mark.parametrize(
    ("firsts", "error"),
    [([0], ValueError), ([-1, 0], ValueError), ([1, 0], IndexError), ([0, 1], IndexError), ([0, 1 << 62], IndexError)],
)
def test_firsts_outside(firsts, error):
    """Values begin where there are some."""
    with pytest.raises(error):
        _put(ONE.compiled(), np.array([1, 1], I64), 0, 2, [NUMBERS, STRINGS], firsts=np.array(firsts, I64))


def test_columns_of_others():
    """What was opened for other templates is refused, as their variables have other kinds."""
    mine, others = ONE.compiled(), replace(ONE, templates=ONE.templates * 2).compiled()
    opened = others.opened([NUMBERS, STRINGS])
    with pytest.raises(ValueError, match="other templates"):
        mine.opened([NUMBERS, STRINGS], opened)
    with pytest.raises(ValueError, match="other templates"):
        mine.put_together(
            np.array([1], I64), 0, 1, opened, np.zeros(2, I64), np.zeros(2, np.int32), 0, np.zeros(99, np.uint8), 0
        )


def test_codes_outside():
    """A code without a template is refused wherever it is looked at."""
    templates = ONE.compiled()
    for code in (2, -1, 1 << 62):
        with pytest.raises(IndexError):
            templates.add_counts(np.array([code], I64), 0, 1, np.zeros(2, I64))
        with pytest.raises(IndexError):
            templates.most_bytes(np.array([code], I64), 0, 1, 99)
    with pytest.raises(IndexError):
        templates.kind(2)


@pytest.mark.parametrize(
    ("kind", "parameter", "number"),
    [(Kind.PADDED, 2, 100), (Kind.PADDED, 18, 10**18), (Kind.PADDED, 3, -1), (Kind.HEX, 1, 16), (Kind.HEX, 15, -1),
     (Kind.DATE, 0, -719_163), (Kind.DATE, 0, 2_932_897), (Kind.DATE, 1, -719_162 * 1440 - 1), (Kind.DATE, 4, 1 << 62),
     (Kind.DATE, 9, -(1 << 63)), (Kind.ENUM, 0, 2), (Kind.ENUM, 0, -1)],
)  # fmt: skip
def test_numbers_that_a_kind_cannot_show(kind, parameter, number):
    """They are refused, by the independent reader as well."""
    variable = Variable(kind, parameter, (b"a", b"b") if kind is Kind.ENUM else ())
    table = TemplateTable((variable,), (Template((b"", b""), (0,)),))
    with pytest.raises((ValueError, IndexError)):
        _put(table.compiled(), np.array([1], I64), 0, 1, [np.array([number], I64)])
    with pytest.raises(read_esdb.Corrupt):
        text_of(table, (0, {0: number}))


EMPTY = np.zeros(0, I64)
NONE = np.zeros(1, I64)


@pytest.mark.parametrize(
    "parts",
    [([9], [0], [0], [], b"", [0], [], [0], b""), ([3], [0], [0], [], b"", [0], [], [0], b""),
     ([3], [19], [0], [], b"", [0], [], [0], b""), ([5], [17], [0], [], b"", [0], [], [0], b""),
     ([6], [10], [0], [], b"", [0], [], [0], b""), ([2], [1], [0], [], b"", [0], [], [0], b""),
     ([2], [0], [1], [1], b"a", [0], [], [0], b""), ([1], [0], [1], [], b"", [0], [], [0], b""),
     ([1], [0], [1], [2], b"a", [0], [], [0], b""), ([2], [0], [0], [], b"", [1], [], [0, 0], b""),
     ([2], [0], [0], [], b"", [1], [1], [0, 0], b""), ([2], [0], [0], [], b"", [1], [-1], [0, 0], b""),
     ([2], [0], [0], [], b"", [1], [0], [0], b""), ([2], [0], [0], [], b"", [1], [0], [0, 1], b""),
     ([2], [0], [0], [], b"", [1], [0], [1 << 40, 0], b""), ([2], [0], [0], [], b"", [-1], [], [], b""),
     ([2, 2], [0], [0], [], b"", [0], [], [0], b""), ([-1], [0], [0], [], b"", [0], [], [0], b"")],
)  # fmt: skip
def test_parts_that_do_not_fit(parts):
    """Templates are made of parts that fit each other, or not at all."""
    given_parts = [part if isinstance(part, bytes) else np.array(part, I64) for part in parts]
    with pytest.raises((ValueError, OverflowError)):
        Templates(*given_parts)
