"""A frame's column of Python objects lost the time of day of datetimes beside dates, and 2⁶⁴ - 1 became -1.0."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

import aggregator
import esformat

DAY, NOON = dt.date(2026, 3, 1), dt.datetime(2026, 3, 1, 12)
MISREAD = [[DAY, NOON], [None, DAY, NOON], [0.5, np.uint64(2**64 - 1)]]
READ = [[DAY, None], [NOON, None], [0.5, 1], [dt.timedelta(1), None], [dt.time(1), None], [{"a": DAY}, None]]


def frame(values):
    pandas = pytest.importorskip("pandas")
    spaces = {"space": "a", "timestamp": range(len(values))}
    return pandas.DataFrame({"v": pandas.Series(values, dtype=object)}).assign(**spaces)


@pytest.mark.parametrize("values", MISREAD, ids=str)
def test_objects_that_arrow_misreads(tmp_path, values):
    """They are refused, by files and catalogs, with the column's name."""
    with aggregator.open(tmp_path / "c") as catalog, pytest.raises(esformat.InvalidEventError, match="column 'v'"):
        catalog.create_topic("t").append(frame(values))
    with esformat.create(tmp_path / "a.esdb") as writer, pytest.raises(esformat.InvalidEventError, match="column 'v'"):
        writer.add_table(frame(values))


@pytest.mark.parametrize("values", READ, ids=str)
def test_objects_that_arrow_reads(tmp_path, values):
    """Dates, times and numbers among nulls are stored as they are, whatever null pandas shows."""
    pandas = pytest.importorskip("pandas")
    for null in (None, pandas.NaT) if values[-1] is None else (None,):
        with aggregator.open(tmp_path / str(null)) as catalog:
            topic = catalog.create_topic("t")
            topic.append(frame([null if value is None else value for value in values]))
            assert topic.read().to_table()["v"].to_pylist() == values
