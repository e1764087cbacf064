"""Values that rows name by codes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from esformat.errors import CorruptSegmentError
from esformat.format.arrays import TextForm, Values

TEXTS = ["", "short", "just twelve.", "one that is longer than twelve", "é"]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()], ids=str)
@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("width", [np.uint8, np.int64])
@pytest.mark.parametrize("form", list(TextForm))
def test_every_form_has_the_values(kind, null, width, form):
    """Views and dictionaries hold what plain arrays hold, nulls as well."""
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
    """It is damage, in whichever form text is given."""
    with pytest.raises(CorruptSegmentError):
        Values(pa.array(TEXTS)).taken(np.array([0, code]), form)
