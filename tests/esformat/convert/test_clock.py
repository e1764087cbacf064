"""Columns of times in every type and unit, with and without zones."""

# ruff: noqa: E501 - tables read better in one line per case

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from esformat.convert.clock import Clock
from esformat.format.unix_time import FIRST_US, LAST_US

US = pa.timestamp("us")
A_MOMENT = 1_403_534_919  # 2014-06-23T14:48:39Z


def micros(written, zone, values, type_=None):
    """Read one column; None stands for a value that is not a time."""
    times = Clock(written, zone).read(pa.array(values, type_))
    return [int(micro) if ok else None for micro, ok in zip(times.micros, times.ok, strict=True)]


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


COLUMNS = [
    (None, "UTC", ["2006-04-07 17:08", "2006-04-07"], None, [us("2006-04-07 17:08"), us("2006-04-07")]),
    (None, "UTC", ["2006-04-07T17:08Z", "2006-04-07T17:08+02:00"], None, [us("2006-04-07 17:08"), us("2006-04-07 15:08")]),
    (None, "UTC", ["2006-04-07T17:08Z", "2006-04-07T17:08", None, "x"], None, [us("2006-04-07 17:08")] * 2 + [None] * 2),
    ("iso", "Europe/Stockholm", ["2006-07-01 12:00", "2006-07-01 12:00Z"], None, [us("2006-07-01 10:00"), us("2006-07-01 12:00")]),
    (None, "+05:30", ["2006-04-07 05:30"], None, [us("2006-04-07")]),
    (None, "UTC", [A_MOMENT, A_MOMENT * 10**3, A_MOMENT * 10**6, A_MOMENT * 10**9], None, [A_MOMENT * 10**6] * 4),
    (None, "UTC", [A_MOMENT + 0.25, 20060407.0], None, [A_MOMENT * 10**6 + 250_000, None]),
    (None, "UTC", [str(A_MOMENT), f"{A_MOMENT}000.5", "2006-04-07", "20060407"], None, [A_MOMENT * 10**6, A_MOMENT * 10**6 + 500, us("2006-04-07"), None]),
    (None, "UTC", [20060407, 200604071708, 20060407170800, 20061907], None, [None] * 3 + [20061907 * 10**6]),  # dates, but not the last
    (None, "UTC", [2024, None, 1900], None, [None] * 3),
    (None, "UTC", ["2024", "", "1900"], None, [None] * 3),
    (None, "UTC", ["2024", "2024-05-01"], None, [None, us("2024-05-01")]),
    (None, "UTC", [2024.0, float("nan")], None, [None] * 2),
    (None, "UTC", [Decimal(2024)], None, [None]),
    ("s", "UTC", [2024], None, [2_024_000_000]),
    (None, "UTC", [2024, 0], None, [2_024_000_000, 0]),  # seconds since 1970: a column of years has no other numbers
    (None, "UTC", ["2024.5", "2025"], None, [2_024_500_000, 2_025_000_000]),
    (None, "UTC", [Decimal(A_MOMENT)], None, [A_MOMENT * 10**6]),
    ("iso", "UTC", [A_MOMENT], None, [None]),
    ("iso", "UTC", [str(A_MOMENT)], None, [None]),
    ("ns", "UTC", [str(A_MOMENT * 10**9 + 5999)], None, [A_MOMENT * 10**6 + 5]),
    ("s", "UTC", [A_MOMENT, -1, None, 10**15], None, [A_MOMENT * 10**6, -(10**6), None, None]),
    ("ms", "UTC", [A_MOMENT * 1000 + 5], None, [A_MOMENT * 10**6 + 5000]),
    ("us", "UTC", [A_MOMENT * 10**6 + 5, 2**63 - 1], None, [A_MOMENT * 10**6 + 5, None]),
    ("ns", "UTC", [A_MOMENT * 10**9 + 5999, -1], None, [A_MOMENT * 10**6 + 5, -1]),
    ("s", "UTC", [2**64 - 1, 5], pa.uint64(), [None, 5_000_000]),
    ("s", "UTC", [A_MOMENT + 0.25, float("nan"), float("inf"), 1e300], None, [A_MOMENT * 10**6 + 250_000, None, None, None]),
    ("s", "UTC", ["1.5", "-1.5", "+1", "1e3", "x", "", None], None, [1_500_000, -1_500_000, 1_000_000, None, None, None, None]),
    ("ms", "UTC", ["1.5"], None, [1500]),
    ("s", "UTC", [Decimal("1.000002")], None, [1_000_002]),
    ("s", "UTC", [1.0000009, -1.0000009], None, [1_000_001, -1_000_001]),
    ("s", "UTC", ["-0.0000005", "0.0000005"], None, [-1, 0]),
    ("%Y%m%d", "UTC", [20060407, 2], None, [us("2006-04-07"), None]),
    ("%d/%m/%Y %H:%M", "Europe/Stockholm", ["01/07/2006 12:00"], None, [us("2006-07-01 10:00")]),
    (None, "UTC", [datetime(2006, 4, 7)], pa.timestamp("s"), [us("2006-04-07")]),
    (None, "Europe/Stockholm", [datetime(2006, 7, 1, 12)], pa.timestamp("ms"), [us("2006-07-01 10:00")]),
    (None, "Europe/Stockholm", [datetime(2006, 7, 1, 12)], pa.timestamp("ns", "UTC"), [us("2006-07-01 12:00")]),
    (None, "Europe/Stockholm", [date(2006, 7, 1), None], pa.date32(), [us("2006-06-30 22:00"), None]),
    (None, "UTC", [date(2006, 7, 1)], pa.date64(), [us("2006-07-01")]),
    (None, "UTC", [True, None], None, [None, None]),
    (None, "UTC", [[1]], None, [None]),
    (None, "UTC", [None], None, [None]),
    (None, "UTC", [], pa.string(), []),
]  # fmt: skip


@pytest.mark.parametrize(("written", "zone", "values", "type_", "expected"), COLUMNS)
def test_columns(written, zone, values, type_, expected):
    """Each kind of column becomes microseconds in UTC; values that are not times are marked."""
    assert micros(written, zone, values, type_) == expected


@pytest.mark.parametrize(
    ("values", "type_", "nanos"),
    [
        (["2006-04-07T17:08:00.123456789Z"], None, [1_144_429_680_123_456_789]),
        (["1960-01-01T00:00:00.0000009"], None, [-315_619_200_000_000_000 + 900]),
        ([-1], pa.timestamp("ns"), [-1]),
        ([5000, 1], pa.timestamp("ns", "UTC"), [5000, 1]),
    ],
)
def test_nanoseconds(values, type_, nanos):
    """Digits below the microsecond are detected and kept."""
    times = Clock().read(pa.array(values, type_))
    assert times.has_nanos
    assert times.nanos().to_pylist() == nanos
    assert times.timestamps().cast(pa.int64()).to_pylist() == [nano // 1000 for nano in nanos]


def test_nanoseconds_of_numbers():
    """Decimal text is read exactly, also before 1970."""
    times = Clock("s").read(pa.array(["-0.000000001", "-1.5", "1.000000001"]))
    assert times.nanos().to_pylist() == [-1, -1_500_000_000, 1_000_000_001]


def test_without_nanoseconds():
    """A nanosecond column without such digits needs no extra column; beyond 2262 nanoseconds are null."""
    assert not Clock().read(pa.array([5000], pa.timestamp("ns"))).has_nanos
    times = Clock().read(pa.array(["2006-04-07T17:08:00.0000001", "9000-01-01"]))
    assert times.nanos().to_pylist() == [1_144_429_680_000_000_100, None]


def test_clock_changes():
    """A local time that clocks skipped is invalid; a repeated one is the first of the two, and is counted."""
    times = Clock(None, "Europe/Stockholm").read(
        pa.array(["2006-03-26 02:30", "2006-10-29 02:30", "2006-10-29 02:30+01:00", None])
    )
    assert times.ok.tolist() == [False, True, True, False]
    assert times.repeated_count == 1
    assert times.micros[1] == us("2006-10-29 00:30")
    assert times.micros[2] == us("2006-10-29 01:30")


def test_bounds():
    """Times range from year 1 to year 9999, as in ISO 8601 and datetime."""
    ends = pa.array([FIRST_US - 1, FIRST_US, LAST_US, LAST_US + 1])
    assert Clock("us").read(ends).ok.tolist() == [False, True, True, False]
    assert Clock(None, "+01:00").read(pa.array(["0001-01-01T00:30", "0001-01-01T01:00"])).ok.tolist() == [False, True]


COMPLAINTS = [
    (None, "UTC", "x", "'x' is neither an ISO 8601 time nor a number since 1970: give the format with --timestamp-format"),
    (None, "UTC", "20060407", "'20060407' may be a date or a number since 1970: give --timestamp-format %Y%m%d, or its unit"),
    (None, "UTC", "12345678901234567890", "is too large for a number since 1970: give the format with --timestamp-format"),
    (None, "UTC", "2024", "'2024' may be a year, or a number of s since 1970: write it as 2024-01-01, or give its unit with --timestamp-format s"),
    *((None, "UTC", given, f"'{given}' has an unsupported ISO 8601 form, such as weeks or days of the year: write 2026-03-01 or") for given in ("2026-W05-1", "2026W051", "2026-W05", "2026-032", "20260301T080000Z")),
    ("iso", "UTC", "2026-032", "has an unsupported ISO 8601 form"),
    (None, "UTC", "1.7e9", "'1.7e9' is not a plain number: use digits only"),
    ("s", "UTC", "1700000000 ", "'1700000000 ' is not a plain number"),
    (None, "UTC", -99_999_999_999, "-99999999999 is outside the years 1 to 9999 in every unit"),
    ("iso", "UTC", 5, "5 is a number: give its unit with --timestamp-format s, ms, us or ns"),
    ("s", "UTC", 1_403_534_919_000, "is outside the years 1 to 9999: give a --timestamp-format other than s"),
    ("s", "UTC", "x", "'x' is not a number of s"),
    ("%Y", "UTC", "x", "does not match"),
    (None, "Europe/Stockholm", "2006-03-26 02:30", "does not exist in Europe/Stockholm: clocks were put forward over it"),
    (None, "UTC", "9000-01-01T00:00:00.0000001", "digits below the microsecond, which fit in years 1678 to 2261 only"),
    (None, "UTC", "x" * 100, "'x{38}… is neither an ISO"),
    (None, "UTC", True, "True is neither an ISO 8601 time"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "zone", "value", "complaint"), COMPLAINTS)
def test_complaints(written, zone, value, complaint):
    """The complaint about a bad time has the value, the reason and a fix."""
    clock = Clock("%Y-%m-%d" if written == "%Y" else written, zone)
    column = pa.array([value])
    assert not clock.read(column).ok[0]
    assert re.search(complaint, clock.complaint(column[0]))


@pytest.mark.parametrize("zone", ["Nope/Zone", "", "+25"])
def test_unknown_zone(zone):
    """An unknown zone is refused immediately, with an example of a valid one."""
    with pytest.raises(ValueError, match=r"unknown time zone .*Europe/Stockholm"):
        Clock(None, zone)


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "GMT", "Z", "+00:00"])
def test_utc_by_any_name(zone):
    """Every name of UTC is recognised."""
    assert Clock(None, zone).zone is None


def test_any_time_in_the_type_of_segments():
    """Times in the type that segments store, as Parquet and Arrow files of ours have, are taken as they are."""
    ends = [-(2**63), FIRST_US - 1, None, LAST_US + 1, 2**63 - 1]
    for zone in ("UTC", "Europe/Stockholm"):
        times = Clock(None, "+01:00").read(pa.array(ends, pa.timestamp("us", zone)))
        assert times.ok.tolist() == [True, True, False, True, True]
        assert times.timestamps().cast(pa.int64()).to_pylist() == [0 if end is None else end for end in ends]
        assert not times.has_nanos


def test_times_that_python_does_not_have():
    """The complaint shows a timestamp beyond the year 9999, which Python cannot represent."""
    column = pa.array([2**62], pa.timestamp("s", "UTC"))
    clock = Clock()
    assert not clock.read(column).ok[0]
    assert re.search(r"timestamp -?\d{5,}.* is outside the years 1 to 9999", clock.complaint(column[0]))
