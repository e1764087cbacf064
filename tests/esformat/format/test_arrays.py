"""Values that rows refer to by codes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.errors import CorruptSegmentError
from esformat.format.arrays import TextForm, Values, short_array

TEXTS = ["", "short", "just twelve.", "one that is longer than twelve", "é"]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()], ids=str)
@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("width", [np.uint8, np.int64])
@pytest.mark.parametrize("form", list(TextForm))
def test_every_form_has_the_values(kind, null, width, form):
    """Views and dictionaries have the same values as plain arrays, including nulls."""
    texts = [None, *TEXTS] if null else TEXTS
    values = Values(pa.array(texts, pa.string()).cast(kind))
    codes = np.array([4, 0, 3, 3, 1, 2, 0], width)
    for some in (codes, codes[:0]):
        found = values.taken(some, form)
        found.validate(full=True)
        assert found.to_pylist() == values.take(some).to_pylist()


@pytest.mark.parametrize("code", [-1, len(TEXTS)])
@pytest.mark.parametrize("form", list(TextForm))
def test_a_code_of_no_value(code, form):
    """A code without a value is damage, in every form of text."""
    with pytest.raises(CorruptSegmentError):
        Values(pa.array(TEXTS)).taken(np.array([0, code]), form)


@examples(100)
@given(
    st.lists(st.text(max_size=9))
    | st.lists(st.binary(max_size=9))
    | st.lists(st.integers(-(2**60), 2**60))
    | st.lists(st.none() | st.text(max_size=3))
    | st.lists(st.none() | st.binary(max_size=3))
    | st.lists(st.none() | st.integers(0, 9))
)
def test_few_values(values):
    """Short arrays equal Arrow's for each type, or are refused as by Arrow."""
    for kind in (pa.string(), pa.binary(), pa.large_string(), pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("s")):
        try:
            wanted = pa.array(values, kind)
        except (pa.ArrowException, TypeError):
            with pytest.raises((pa.ArrowException, TypeError)):
                short_array(values, kind)
            continue
        made = short_array(values, kind)
        made.validate(full=True)
        assert made.equals(wanted)


def test_text_that_is_no_unicode():
    """A lone surrogate is refused, as by Arrow."""
    for make in (pa.array, short_array):
        with pytest.raises(UnicodeEncodeError):
            make(["\ud800"], pa.string())
