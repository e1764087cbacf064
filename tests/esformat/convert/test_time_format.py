"""Time formats with the letters of strptime, and ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat.convert.time_format import TimeFormat

EPOCH = datetime(1970, 1, 1)


def parse_one(form: TimeFormat, text: str | None) -> tuple[str, int, bool] | None:
    """Return the civil or UTC time, the nanoseconds below the microsecond, and whether an offset was written."""
    parsed = form.parse(pa.array([text], pa.string()))
    if not parsed.ok[0]:
        return None
    time = EPOCH + timedelta(microseconds=int(parsed.micros[0]))
    return time.isoformat(), int(parsed.nanos[0]), bool(parsed.zoned[0])


ISO_TIMES = [
    ("2006-04-07", ("2006-04-07T00:00:00", 0, False)),
    ("2006-04-07 17", ("2006-04-07T17:00:00", 0, False)),
    ("2006-04-07 17:08", ("2006-04-07T17:08:00", 0, False)),
    ("2006-04-07T17:08:09", ("2006-04-07T17:08:09", 0, False)),
    ("2006-04-07t17:08:09z", ("2006-04-07T17:08:09", 0, True)),
    ("2006-04-07T17:08:09.5", ("2006-04-07T17:08:09.500000", 0, False)),
    ("2006-04-07T17:08:09,123456789Z", ("2006-04-07T17:08:09.123456", 789, True)),
    ("2006-04-07T17:08:09+02", ("2006-04-07T15:08:09", 0, True)),
    ("2006-04-07T17:08:09 +0530", ("2006-04-07T11:38:09", 0, True)),
    ("2006-04-07T17:08:09-03:30", ("2006-04-07T20:38:09", 0, True)),
    ("2006-04-07T170809", ("2006-04-07T17:08:09", 0, False)),
    ("1960-02-29T00:00:00.000000001Z", ("1960-02-29T00:00:00", 1, True)),
    ("0001-01-01", ("0001-01-01T00:00:00", 0, False)),
    ("9999-12-31T23:59:59.999999", ("9999-12-31T23:59:59.999999", 0, False)),
    ("2006-04-07T17:08:09+23:59", ("2006-04-06T17:09:09", 0, True)),
    ("2006-04-07T17:08:09+24:00", None),
    ("2006-04-07T17:08:09-0160", None),
    ("2006-04-07T17:08:09+99", None),
    ("2006-02-29", None),
    ("2006-13-01", None),
    ("2006-04-31", None),
    ("2006-04-00", None),
    ("0000-01-01", None),
    ("2006-04-07T24:00", None),
    ("2006-04-07T17:60", None),
    ("2006-04-07T17:08:60", None),
    ("2006-04-07T17:08:09.1234567890", None),
    ("2006-4-7", None),
    ("20060407", None),
    ("1403534919", None),
    (" 2006-04-07", None),
    ("2006-04-07\n", None),
    ("", None),
    (None, None),
]


@pytest.mark.parametrize(("text", "expected"), ISO_TIMES)
def test_iso(text, expected):
    """ISO 8601 times are read to the nanosecond, with and without a zone; impossible dates are refused."""
    assert parse_one(TimeFormat.iso(), text) == expected


FORMATS = [
    ("%d/%b/%Y:%H:%M:%S %z", "17/May/2015:10:05:03 +0200", ("2015-05-17T08:05:03", 0, True)),
    ("%d/%b/%Y:%H:%M:%S %z", "17/MAY/2015:10:05:03 -0330", ("2015-05-17T13:35:03", 0, True)),
    ("%d/%b/%Y:%H:%M:%S %z", "17/May/2015:10:05:03 +9900", None),
    ("%d/%b/%Y:%H:%M:%S %z", "17/Mai/2015:10:05:03 +0000", None),
    ("%m/%d/%Y %I:%M %p", "4/7/2006 12:05 AM", ("2006-04-07T00:05:00", 0, False)),
    ("%m/%d/%Y %I:%M %p", "04/07/2006 12:05 p.m.", ("2006-04-07T12:05:00", 0, False)),
    ("%m/%d/%Y %I:%M %p", "4/7/2006 13:05 PM", None),
    ("%m/%d/%Y %I:%M %p", "4/7/2006 0:05 PM", None),
    ("%d.%m.%y", "07.04.68", ("2068-04-07T00:00:00", 0, False)),
    ("%d.%m.%y", "07.04.69", ("1969-04-07T00:00:00", 0, False)),
    ("%Y%j", "2004366", ("2004-12-31T00:00:00", 0, False)),
    ("%Y%j", "2005366", None),
    ("%B %e, %Y", "April  7, 2006", ("2006-04-07T00:00:00", 0, False)),
    ("%A, %d %h %Y %T %Z", "Friday, 07 Apr 2006 17:08:09 GMT", ("2006-04-07T17:08:09", 0, True)),
    ("%F %R", "2006-04-07 17:08", ("2006-04-07T17:08:00", 0, False)),
    ("%Y%m%d%H%M%S%f", "20060407170809123456789", ("2006-04-07T17:08:09.123456", 789, False)),
    ("%Y-%m-%dT%H:%M:%S.%f", "2006-04-07T17:08:09.5", ("2006-04-07T17:08:09.500000", 0, False)),
    ("100%% %Y-%m-%d", "100% 2006-04-07", ("2006-04-07T00:00:00", 0, False)),
    ("%%T%Y-%m-%d", "%T2006-04-07", ("2006-04-07T00:00:00", 0, False)),
    ("[%Y-%m-%d]", "[2006-04-07]", ("2006-04-07T00:00:00", 0, False)),
    ("%Y-%m-%d", "2006-04-07 17:08", None),
    ("%Y-%m-%d", "x2006-04-07", None),
]


@pytest.mark.parametrize(("letters", "text", "expected"), FORMATS)
def test_formats(letters, text, expected):
    """A format reads exactly what its letters describe, and all of the text."""
    assert parse_one(TimeFormat.of(letters), text) == expected


@pytest.mark.parametrize(
    ("letters", "complaint"),
    [
        ("%H:%M", "lacks year, month or day"),
        ("%Y-%m", "lacks year, month or day"),
        ("%Q %Y-%m-%d", "'%Q': expected %Y"),
        ("%Y-%m-%d %Y", "has %Y twice"),
        ("%Y-%m-%d %", "'%': expected"),
        ("", "lacks year"),
    ],
)
def test_bad_formats(letters, complaint):
    """An unusable format is refused immediately."""
    with pytest.raises(ValueError, match=complaint):
        TimeFormat.of(letters)


@given(st.lists(st.datetimes(timezones=st.just(UTC))))
def test_agrees_with_strptime(times):
    """Every time that datetime writes is read as the same time, many per call."""
    letters = "%Y-%m-%d %H:%M:%S.%f"
    text = [time.isoformat(" ", "microseconds").replace("+00:00", "") for time in times]
    parsed = TimeFormat.of(letters).parse(pa.array(text, pa.string()))
    assert parsed.ok.all()
    assert [EPOCH + timedelta(microseconds=int(micros)) for micros in parsed.micros] == [
        datetime.strptime(each, letters) for each in text
    ]
