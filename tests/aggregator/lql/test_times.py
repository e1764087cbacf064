"""Points in time: every format, at a fixed clock, and invalid ones."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.lql.parse.columns import as_text
from aggregator.lql.text import times
from aggregator.lql.text.quantity import format_length, parse_length_us, parse_number

NOW = dt.datetime(2026, 1, 7, 13, 45, 30, 123456, dt.UTC)  # a Wednesday
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def nanos(moment: dt.datetime) -> int:
    return (moment - EPOCH) // dt.timedelta(microseconds=1) * 1000


TIMES = [
    # relative
    ("-1.5h", "2026-01-07T12:15:30.123456"),
    ("-10m", "2026-01-07T13:35:30.123456"),
    ("-2d", "2026-01-05T13:45:30.123456"),
    ("-30s", "2026-01-07T13:45:00.123456"),
    ("-1W", "2025-12-31T13:45:30.123456"),
    ("+1h", "2026-01-07T14:45:30.123456"),
    ("-.5h", "2026-01-07T13:15:30.123456"),
    # named
    ("now", "2026-01-07T13:45:30.123456"),
    ("minute", "2026-01-07T13:45"),
    (" HOUR ", "2026-01-07T13:00"),
    ("Day", "2026-01-07"),
    ("week", "2026-01-04"),  # Sunday
    # Unix time: its magnitude gives the unit
    ("0", "1970-01-01"),
    ("1550000000000000000", "2019-02-12T19:33:20"),
    ("1550000000", "2019-02-12T19:33:20"),
    ("1550000000.25", "2019-02-12T19:33:20.25"),
    ("1550000000250", "2019-02-12T19:33:20.25"),
    ("1550000000250000", "2019-02-12T19:33:20.25"),
    ("-1000000000", "1938-04-24T22:13:20"),
    ("-1000000000000000000", "1938-04-24T22:13:20"),
    # ISO 8601 and RFC 3339
    ("2019-01-02", "2019-01-02"),
    ("2019-1-2", "2019-01-02"),
    ("2019-01-02T03:04", "2019-01-02T03:04"),
    ("2019-01-02T03:04:05", "2019-01-02T03:04:05"),
    ("2019-01-02T03:04:05Z", "2019-01-02T03:04:05"),
    ("2019-01-02t03:04:05z", "2019-01-02T03:04:05"),
    ("2019-01-02T03:04:05.678Z", "2019-01-02T03:04:05.678"),
    ("2019-01-02T03:04:05,678+01:00", "2019-01-02T02:04:05.678"),
    ("2019-01-02T03:04:05-0730", "2019-01-02T10:34:05"),
    ("2019-01-02T03:04:05+02", "2019-01-02T01:04:05"),
    ("2019-01-02T24:00", "2019-01-03"),
    ("2016-12-31T23:59:60Z", "2017-01-01"),
    ("2019-01-02T03", "2019-01-02T03:00"),
    ("20190102T030405Z", "2019-01-02T03:04:05"),
    ("20190102T0304", "2019-01-02T03:04"),
    ("2019-032", "2019-02-01"),
    ("2019-W05-3", "2019-01-30"),
    ("2019W05", "2019-01-28"),
    ("2020-02-29", "2020-02-29"),
    # with a space, zones, halves of the day
    ("2019-05-03 15:43:55 -0700", "2019-05-03T22:43:55"),
    ("2019-05-03 15:43:55", "2019-05-03T15:43:55"),
    ("2019-05-03  15:43:55", "2019-05-03T15:43:55"),
    ("2019-05-03 15:43", "2019-05-03T15:43"),
    ("2019-05-03 15:43:55.250 +0000 UTC", "2019-05-03T15:43:55.250"),
    ("2019-05-03 15:43:55 EST", "2019-05-03T20:43:55"),
    ("2019-05-03 03:43:55 PM", "2019-05-03T15:43:55"),
    ("2019-05-03 12:00:00 am", "2019-05-03"),
    # slashes and dots
    ("2019/05/03", "2019-05-03"),
    ("2019/5/3 15:43", "2019-05-03T15:43"),
    ("2019/05/03 15:43:55.5", "2019-05-03T15:43:55.5"),
    ("03/05/2019", "2019-05-03"),
    ("3/5/2019 15:43", "2019-05-03T15:43"),
    ("03/05/19", "2019-05-03"),
    ("03/05/2019 15:43:55.123", "2019-05-03T15:43:55.123"),
    ("3/5/2019 3:43 PM", "2019-05-03T15:43"),
    ("05.03.2019", "2019-05-03"),
    ("05.03.19", "2019-05-03"),
    ("10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36"),
    # names of months and days
    ("02 Jan 2006", "2006-01-02"),
    ("2 January 2006 15:04", "2006-01-02T15:04"),
    ("02 Jan 2006, 15:04", "2006-01-02T15:04"),
    ("2006-Jan-02", "2006-01-02"),
    ("Jan 2, 2006 3:04:05 PM", "2006-01-02T15:04:05"),
    ("Mon, 02 Jan 2006 15:04:05 MST", "2006-01-02T22:04:05"),
    ("Mon, 2 Jan 2006 15:04:05 -0700", "2006-01-02T22:04:05"),
    ("Mon Jan  2 15:04:05 2006", "2006-01-02T15:04:05"),
    ("Mon Jan  2 15:04:05 GMT 2006", "2006-01-02T15:04:05"),
    ("Mon Jan 02 15:04:05 -0700 2006", "2006-01-02T22:04:05"),
    ("Monday, 02-Jan-06 15:04:05 GMT", "2006-01-02T15:04:05"),
    ("02 Jan 69 15:04", "1969-01-02T15:04"),
    # without a year, without a date
    ("Jan  7 01:02:03", "2026-01-07T01:02:03"),
    ("Dec 31 23:59:59", "2025-12-31T23:59:59"),
    ("Wed Jan  7 01:02:03.5", "2026-01-07T01:02:03.5"),
    ("07:15", "2026-01-07T07:15"),
    ("07:15:23.5", "2026-01-07T07:15:23.5"),
    ("22:25 -0700", "2026-01-08T05:25"),
    ("01:00 +1400", "2026-01-07T11:00"),  # there it is already the 8th
]

NO_TIMES = [
    "", "yesterday", "-1.5", "1.5h", "-1y", "- 1h", "2019-13-01", "2019-02-29", "2019-01-02T25:00", "2019-01-02T24:01",
    "2019-01-02T10:61", "10:60", "13:00 pm", "31/02/2019", "12/31/2019", "02 Foo 2006", "02 Janx 2006", "2019-366",
    "2019-W54-1", "10:00 XYZ", "10:00 +2500", "-999999999999999w", "9999999999999999999999", "2019-01-02T",
    "0000-01-01", "20190102T", "::", "2019-01-02 10:00 +", "x" * 200, "Monday", "99999999999999999999",
    "20190102", "20190102030405", "201901020304", "2019",
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TIMES)
def test_time(text, expected):
    """The text means this time in UTC."""
    assert times.resolve(text, nanos(NOW)) == nanos(dt.datetime.fromisoformat(expected).replace(tzinfo=dt.UTC))


def test_nanoseconds_are_kept():
    """Digits below the microsecond are kept."""
    assert times.resolve("1970-01-01T00:00:00.123456789Z", 0) == 123_456_789


@pytest.mark.parametrize("text", NO_TIMES)
def test_no_time(text):
    """Invalid times are refused with a reason, never taken for another time."""
    with pytest.raises(ValueError, match=r"invalid|unknown|is outside|may be a (date|year)"):
        times.resolve(text, nanos(NOW))


@examples(200)
@given(st.datetimes(timezones=st.timezones()))
def test_iso_of_any_time(moment):
    """Any ISO 8601 time that Python writes with an offset in whole minutes is read as the same instant."""
    offset = moment.utcoffset()
    if offset is None or offset % dt.timedelta(minutes=1):
        return
    expected = (moment.replace(tzinfo=None) - offset - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    if dt.datetime(1, 1, 3) < moment.replace(tzinfo=None) < dt.datetime(9999, 12, 29):
        assert times.resolve(moment.isoformat(), 0) == expected * 1000


@examples(100)
@given(st.integers(1, 2**53))
def test_lengths(length_us):
    """A formatted duration parses back to the same value."""
    assert parse_length_us(format_length(length_us)) == length_us


@pytest.mark.parametrize(
    "text", ["nan", "inf", "1e999", "1e-999", "x", "", "1" * 500, "0x10", "1e99999999999999999999"]
)
def test_no_number(text):
    """A number that is not finite or cannot be compared is refused."""
    with pytest.raises(ValueError, match="invalid number"):
        parse_number(text)


@pytest.mark.parametrize(("unit", "size"), [("s", 1), ("ms", 1000), ("us", 10**6)])
def test_times_beyond_the_calendar(unit, size):
    """Such a time is the number that its column has; other times of the column are written as usual."""
    numbers = [5 * size, None, 2 * 10**12 * size, -(2**63)]
    texts = as_text(pa.array(numbers, pa.timestamp(unit)))
    assert texts.to_pylist() == ["1970-01-01T00:00:05Z", None, str(numbers[2]), str(numbers[3])]
