"""Dates in lines: every known format at any place near the start, and lookalikes."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.collect.times import CARRIED_LINES, in_lines, to_micros

NOW = 1_772_452_800_000_000  # 2026-03-02T12:00:00Z, a Monday
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

DATES = [
    # ISO 8601 and RFC 3339, with a space or a slash
    ("2026-03-01T08:00:05Z", "2026-03-01T08:00:05"),
    ("2026-03-01T08:00:05.5+01:00", "2026-03-01T07:00:05.5"),
    ("2026-03-01T08:00:05.123456789-0730", "2026-03-01T15:30:05.123456"),
    ("2026-03-01 08:00:05,250", "2026-03-01T08:00:05.25"),
    ("2026-03-01 08:00:05.250 +0100", "2026-03-01T07:00:05.25"),
    ("2026-03-01 08:00:05.123+02", "2026-03-01T06:00:05.123"),
    ("2026-03-01 08:00:05 CET", "2026-03-01T07:00:05"),
    ("2026-03-01 08:00:05 +0000 UTC", "2026-03-01T08:00:05"),
    ("2026-03-01 08:00:05 UTC", "2026-03-01T08:00:05"),
    ("2026-03-01 08:00:05 PM", "2026-03-01T20:00:05"),
    ("2026-03-01 12:00:05am", "2026-03-01T00:00:05"),
    ("2026-03-01 08:00", "2026-03-01T08:00"),
    ("2026/03/01 08:00:05", "2026-03-01T08:00:05"),
    ("2026/03/01 08:00:05.25", "2026-03-01T08:00:05.25"),
    ("2026/3/1 08:00:05", "2026-03-01T08:00:05"),
    ("2026-03-01  08:00:05.25", "2026-03-01T08:00:05.25"),
    # web servers, mail
    ("01/Mar/2026:09:00:05 +0100", "2026-03-01T08:00:05"),
    ("01 Mar 2026 08:00:05", "2026-03-01T08:00:05"),
    ("01-Mar-2026 08:00:05.123", "2026-03-01T08:00:05.123"),
    ("1 March 2026, 08:00", "2026-03-01T08:00"),
    ("Sun, 01 Mar 2026 08:00:05 GMT", "2026-03-01T08:00:05"),
    ("Sun, 01 Mar 2026 08:00:05 -0700", "2026-03-01T15:00:05"),
    ("Sunday, 01-Mar-26 08:00:05 GMT", "2026-03-01T08:00:05"),
    # the day first
    ("01/03/2026 08:00:05", "2026-03-01T08:00:05"),
    ("01/03/2026 08:00:05.25", "2026-03-01T08:00:05.25"),
    ("1/3/2026 8:00:05 PM", "2026-03-01T20:00:05"),
    ("1/3/26 08:00", "2026-03-01T08:00"),
    # by the month, without a year or with one
    ("Mar  1 08:00:05", "2026-03-01T08:00:05"),
    ("Mar 01 08:00:05.250", "2026-03-01T08:00:05.25"),
    ("Dec 31 23:59:59", "2025-12-31T23:59:59"),
    ("Sun Mar  1 08:00:05 2026", "2026-03-01T08:00:05"),
    ("Sun Mar  1 08:00:05.5 2020", "2020-03-01T08:00:05.5"),
    ("Sun Mar  1 08:00:05 EST 2026", "2026-03-01T13:00:05"),
    ("Sun Mar 01 08:00:05 -0700 2026", "2026-03-01T15:00:05"),
    ("Mar 1, 2026 8:00:05 PM", "2026-03-01T20:00:05"),
]
NO_DATES = [
    "no date", "", "10.12.19.4 says 12:30", "version 2026-03-01",
    "1 March 2026", "2026-13-01 08:00:05", "2026-02-30 08:00:05",
    "2026-03-01 25:00:05", "2026-03-01 08:61:05", "32/Mar/2026:08:00:00 +0000", "expires 2099-01-01 00:00:00",
    "x" * 200 + " 2026-03-01 08:00:05", "12026-03-01 08:00:05", "Mar 99 08:00:05", "2026-03-01 13:00:05 PM", "08:00:05",
]  # fmt: skip


def micros(iso):
    return (dt.datetime.fromisoformat(iso).replace(tzinfo=dt.UTC) - EPOCH) // dt.timedelta(microseconds=1)


def found(*lines, zone="UTC"):
    times, untimed = in_lines(pa.array([line.encode() for line in lines], pa.binary()), NOW, zone)
    return times.to_pylist(), untimed


@pytest.mark.parametrize(("text", "expected"), DATES)
def test_dates(text, expected):
    """Each format is found at the start of a line, in brackets, after other words, and before any text."""
    lines = [text, f"[{text}] INFO started", f"<13>web app: {text} 5 done", f"{text} -5 at 0x7f"]
    if text.endswith(("am", "PM", "00:05", "08:00")) or "," in text:
        lines.append(f"{text}: more")
    assert [found(line)[0][0] for line in lines] == [micros(expected)] * len(lines)
    assert found(*lines, *lines) == ([micros(expected)] * 2 * len(lines), 0)


@pytest.mark.parametrize("line", NO_DATES)
def test_no_dates(line):
    """Lookalike numbers, impossible days, future times and dates too far into the line are not dates."""
    assert found(line) == ([None], 1)


def test_what_follows_is_no_part_of_it():
    """A level, a number or letters after a date are not taken for a zone, year or fraction."""
    day = micros("2026-03-01T08:00:05")
    lines = ["2026-03-01 08:00:05 ERROR x", "2026-03-01 08:00:05 PASTA", "2026-03-01 08:00:05 -12 x",
             "2026-03-01 08:00:05", "5 Z", "2026-03-01 08:00:05.", "7", "Mar  1 08:00:05 2020 x",
             "2026-03-01 08:00:05 ESTX"]  # fmt: skip
    assert found(*lines) == ([day] * 9, 2)


def test_lines_between_dates():
    """A line without a date has the time of the line before, up to a number of lines; before the first date, none."""
    trace = ["  at x"] * (CARRIED_LINES + 1)
    times, untimed = found("banner", "2026-03-01 08:00:05 boom", *trace, "2026-03-01 08:00:06 on")
    day = micros("2026-03-01T08:00:05")
    assert times == [None, *[day] * (CARRIED_LINES + 1), None, day + 1_000_000]
    assert untimed == CARRIED_LINES + 2


def test_zones():
    """Times without a zone are in the configured one; of repeated times the first counts, of skipped ones the next."""
    zone = "Europe/Stockholm"
    cases = {
        "2025-07-01 12:00:00": "2025-07-01T10:00", "2025-07-01 12:00:00Z": "2025-07-01T12:00",
        "2025-10-26 02:30:00": "2025-10-26T00:30", "2025-03-30 02:30:00": "2025-03-30T01:00",
        "7/1/2025 9:00 AM": "2025-01-07T08:00", "Jul 1, 2025 12:00:00 PM": "2025-07-01T10:00",
        "Tue Jul  1 12:00:00 EST 2025": "2025-07-01T17:00",
    }  # fmt: skip
    assert found(*cases, zone=zone)[0] == [micros(iso) for iso in cases.values()]
    assert to_micros(pa.array([*cases]), NOW, zone).to_pylist() == [micros(iso) for iso in cases.values()]


@examples(200)
@given(st.datetimes(dt.datetime(1000, 1, 2), dt.datetime(2026, 3, 1)),
       st.sampled_from(["%Y-%m-%d %H:%M:%S.%f", "%d/%b/%Y:%H:%M:%S +0000", "%Y/%m/%d %H:%M:%S", "%d/%m/%Y %H:%M:%S"]),
       st.text("ab :[-/", max_size=30))  # fmt: skip
def test_any_time(moment, written, before):
    """Any moment, in any format and place, is read back, alone and among others."""
    moment = moment.replace(microsecond=moment.microsecond if "%f" in written else 0, tzinfo=dt.UTC)
    text = moment.strftime(written).rjust(26 if "%f" in written else 0, "0")
    expected = (moment - EPOCH) // dt.timedelta(microseconds=1)
    assert found(f"{before} {text} x", "no", f"{before} {text} x")[0] == [expected] * 3
