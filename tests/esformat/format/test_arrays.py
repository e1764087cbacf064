"""Values that rows name by codes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from esformat.errors import CorruptSegmentError
from esformat.format.arrays import Values

TEXTS = ["", "short", "just twelve.", "one that is longer than twelve", "é"]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()], ids=str)
@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("width", [np.uint8, np.int64])
def test_views_are_the_values(kind, null, width):
    """Views hold what plain arrays hold, nulls as well."""
    texts = [None, *TEXTS] if null else TEXTS
    values = Values(pa.array(texts, pa.string()).cast(kind))
    codes = np.array([4, 0, 3, 3, 1, 2, 0], width)
    for some in (codes, codes[:0]):
        found = values.take_views(some)
        found.validate(full=True)
        assert found.to_pylist() == values.take(some).to_pylist()


@pytest.mark.parametrize("code", [-1, len(TEXTS)])
def test_views_of_no_value(code):
    """A code without a value is damage."""
    with pytest.raises(CorruptSegmentError):
        Values(pa.array(TEXTS)).take_views(np.array([0, code]))
