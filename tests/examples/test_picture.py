"""The picture at the end of the demo. Collecting these tests does not load matplotlib."""

from __future__ import annotations

import numpy as np
import pytest
from effort import share_of

from examples.demo.contest import DUCKDB, ESDB, PARQUET, Figure
from examples.demo.time_line import TimeLine

POINT_READ = Figure("History of one space, median", "µs", True, {ESDB: 20.0, PARQUET: 500.0, DUCKDB: 1300.0})


def time_line(spaces, values, count=50):
    return TimeLine(
        spaces,
        np.arange(count) % len(spaces),
        1_700_000_000_000_000 + np.arange(count) * 1_000_000,
        values,
        np.arange(count) % len(values),
    )


@pytest.mark.parametrize(
    ("spaces", "values"),
    share_of(
        [
            (["README.md", "a/" * 60], ["added", "modified"]),
            (["one"], [""]),
            (["$\\frac{$", "_under_", "日本"], ["\\frac", ""]),
            (["two"], ["_a", "_b"]),
        ],
        4,
    ),
)
def test_picture_is_drawn(tmp_path, spaces, values):
    """Any text makes a picture of the promised size, and matplotlib's settings stay unchanged."""
    import matplotlib as mpl

    from examples.demo.picture import DOTS_PER_INCH, INCHES, draw

    before = dict(mpl.rcParams)
    path = tmp_path / "demo.png"
    draw(path, "1 $ a piece", "Real histories", time_line(spaces, values), {ESDB: 26.0, PARQUET: 26.3}, POINT_READ)
    width, height = mpl.image.imread(path).shape[1::-1]
    assert (width, height) == (round(INCHES[0] * DOTS_PER_INCH), round(INCHES[1] * DOTS_PER_INCH))
    assert dict(mpl.rcParams) == before


def test_one_event_is_drawn(tmp_path):
    """A time line of one moment is drawn, too."""
    from examples.demo.picture import draw

    draw(tmp_path / "x.png", "one", "one", time_line(["s"], [""], count=1), {ESDB: 900.0, PARQUET: 9.0}, POINT_READ)
    assert (tmp_path / "x.png").stat().st_size > 10_000
