"""The run of each row in some blocks agrees with a lookup of each row."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.runs import runs_at


def ints(values):
    """Numbers in the form that the core accepts."""
    return np.array(list(values), np.int64)


@examples(100)
@given(st.sets(st.integers(1, 30)), st.sets(st.integers(0, 40)))
def test_runs_of_places(starts, places):
    """Each position belongs to the run that began last."""
    begins = [0, *sorted(starts)]
    runs = [7 * n for n in range(len(begins))]
    found = runs_at(ints(begins), ints(runs), ints(sorted(places)))
    assert found.tolist() == [runs[bisect_right(begins, place) - 1] for place in sorted(places)]


@pytest.mark.parametrize(("starts", "runs"), [([], []), ([0], []), ([1], [0])])
def test_places_outside(starts, runs):
    """Positions without a run, or before the first, are refused."""
    with pytest.raises(ValueError, match="outside"):
        runs_at(ints(starts), ints(runs), ints([0]))
