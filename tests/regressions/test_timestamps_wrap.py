"""ESDB keeps 32 bits of seconds: milliseconds and dates before 1970 wrap silently."""

from __future__ import annotations

import datetime as dt

import pytest

import esformat

MOMENTS = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1901, 12, 13, 20, 45, 51, 999_999, dt.UTC),  # before the range of 32-bit seconds
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC),
    dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2014, 6, 23, 14, 48, 39, 123_456, dt.UTC),
    dt.datetime(2038, 1, 19, 3, 14, 8, 1000, dt.UTC),  # after it
    dt.datetime(2106, 2, 7, 6, 28, 16, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC),
]


def test_any_moment_survives(write):
    """Any timestamp is stored to the microsecond, is ordered, and can bound a scan."""
    segment = write([("a", b"", moment) for moment in reversed(MOMENTS)])
    assert [event.time for event in segment["a"].scan()] == MOMENTS
    assert [event.time for event in segment["a"].scan(reverse=True)] == MOMENTS[::-1]
    for at, moment in enumerate(MOMENTS):
        assert [event.time for event in segment["a"].scan(start=moment)] == MOMENTS[at:]
        assert [event.time for event in segment.scan(end=moment)] == MOMENTS[:at]


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1, 1_403_534_919 * 10**12])
def test_what_does_not_fit_is_refused(tmp_path, timestamp):
    """A timestamp that does not fit is refused, never stored as another one."""
    with esformat.create(tmp_path / "a.esdb") as writer:
        with pytest.raises(esformat.InvalidEventError, match="does not fit 64 bits; timestamps are microseconds"):
            writer.add("a", timestamp=timestamp)
        assert writer.num_events == 0


def test_the_ends_of_time(write):
    """The least and greatest int64 can be in one block and space, over several groupings."""
    ends = [-(2**63), -1, 0, 2**63 - 1]
    segment = write([("a", b"", time, grouping) for grouping in ("", "g") for time in reversed(ends)])
    assert [event.timestamp for event in segment["a"].scan(grouping="g")] == ends
    assert [event.timestamp for event in segment["a"].scan(reverse=True)] == [
        time for time in reversed(ends) for _ in "12"
    ]
    assert (segment.min_timestamp, segment.max_timestamp) == (-(2**63), 2**63 - 1)
    assert [event.timestamp for event in segment.scan(start=-(2**63), end=2**63 - 1)] == ends[:-1] * 2
