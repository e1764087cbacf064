"""Compiled templates: only parts that fit each other are accepted."""

from __future__ import annotations

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from template_strategies import codes_of, columns_of, rows_of, tables

from esformat.core.templates import MOST_SLOTS, Templates
from esformat.errors import CorruptSegmentError
from esformat.format.templates import Kind, Template, TemplateTable, Variable

I64 = np.int64
ONE = TemplateTable((Variable(Kind.INTEGER), Variable(Kind.STRING)), (Template((b"n=", b";", b""), (0, 1)),))


@examples(100)
@given(st.data())
def test_counts(data):
    """The values of each variable in any part of some rows are counted, and so are the slots that show them."""
    table = data.draw(tables())
    rows = data.draw(rows_of(table))
    templates = table.compiled()
    low, high = sorted(data.draw(st.lists(st.integers(0, len(rows)), min_size=2, max_size=2)))
    counts = np.zeros(templates.variables, I64)
    shown = templates.add_counts(codes_of(rows), low, high, counts)
    assert shown == sum(len(table.templates[row[0]].slots) for row in rows[low:high] if row is not None)
    columns = columns_of(table, rows[low:high])
    assert counts.tolist() == [len(c[0]) - 1 if isinstance(c, tuple) else len(c) for c in columns]


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (1, 0), (0, 3), (3, 3)])
def test_rows_outside(low, high):
    """Rows out of range are refused."""
    with pytest.raises(ValueError, match="fewer"):
        ONE.compiled().add_counts(np.array([1, 1], I64), low, high, np.zeros(2, I64))


def test_codes_outside():
    """A code without a template is refused."""
    templates = ONE.compiled()
    for code in (2, -1, 1 << 62):
        with pytest.raises(IndexError):
            templates.add_counts(np.array([code], I64), 0, 1, np.zeros(2, I64))
    with pytest.raises(ValueError, match="fewer rows"):
        templates.add_counts(np.array([1], I64), 0, 1, np.zeros(3, I64))
    with pytest.raises(IndexError):
        templates.kind(2)


def test_too_many_slots():
    """A template with more slots than the limit is refused."""
    slots = (0,) * MOST_SLOTS
    TemplateTable((Variable(Kind.INTEGER),), (Template((b"",) * (MOST_SLOTS + 1), slots),)).compiled()
    with pytest.raises(CorruptSegmentError, match="1025 slots"):
        TemplateTable((Variable(Kind.INTEGER),), (Template((b"",) * (MOST_SLOTS + 2), (*slots, 0)),)).compiled()


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
    """Parts that do not fit each other are refused."""
    given_parts = [part if isinstance(part, bytes) else np.array(part, I64) for part in parts]
    with pytest.raises((ValueError, OverflowError)):
        Templates(*given_parts)
