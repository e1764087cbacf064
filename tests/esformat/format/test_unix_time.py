"""Unix times: single numbers and columns are read alike, with a given unit or one inferred from their size."""

from __future__ import annotations

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.format.unix_time import UNIX_UNITS, from_floats, from_integers, from_text, to_nanos

MOMENT = 1_403_534_919_000_000_000  # 2014-06-23T14:48:39Z, in nanoseconds
UNITS = st.sampled_from([None, *UNIX_UNITS])


def one(number, unit):
    try:
        return to_nanos(number, unit)[0]
    except ValueError:
        return None


def of(times, row=0):
    return int(times.micros[row]) * 1000 + int(times.nanos[row]) if times.ok[row] else None


@pytest.mark.parametrize("unit", UNIX_UNITS)
def test_units(unit):
    """A moment is the same in each unit: as an integer, as text with a fraction, as a float."""
    number, size = MOMENT // UNIX_UNITS[unit], UNIX_UNITS[unit]
    assert to_nanos(number) == (MOMENT, unit)
    assert from_integers(pa.array([number])).assumed == {unit}
    if unit != "ns":
        assert to_nanos(f"{number}.25") == (MOMENT + size // 4, unit)
        assert to_nanos(number + 0.25)[0] == (MOMENT + size // 4) // 1000 * 1000
    assert of(from_floats(pa.array([float(number)]))) == MOMENT


def test_nothing_is_assumed_where_a_unit_is_given():
    """If a unit is given, none is assumed; rows that are not times do not suggest a unit."""
    assert not from_integers(pa.array([5]), "ms").assumed
    assert not from_text(pa.array(["5"]), "ms").assumed
    assert from_text(pa.array(["5", "x", "20260301120000", None])).assumed == {"s"}


def test_every_digit_of_a_text_counts():
    """Nanoseconds of a text are exact, also before 1970; further digits are cut off."""
    assert to_nanos("1403534919.123456789")[0] == MOMENT + 123_456_789
    assert of(from_text(pa.array(["-0.000000001"]), "s")) == -1
    assert of(from_text(pa.array(["1403534919.1234567899"]))) == MOMENT + 123_456_789
    assert to_nanos("1403534919000000001")[0] == MOMENT + 1


@examples(300)
@given(st.integers(-(2**63), 2**63 - 1) | st.integers(10**10, 10**18), UNITS)
def test_integers(number, unit):
    """A single integer is read as in a column, and so is its text, within the range of texts."""
    assert of(from_integers(pa.array([number, 0]), unit)) == one(number, unit)
    if abs(number) < 9 * 10**18:
        assert of(from_text(pa.array([str(number)]), unit)) == one(number, unit) == one(str(number), unit)


@examples(300)
@given(st.floats(-1e20, 1e20) | st.floats(allow_nan=True), UNITS)
def test_floats(number, unit):
    """A single float is read as in a column, to the last microsecond."""
    single, column = one(number, unit), of(from_floats(pa.array([number]), unit))
    if single is None or column is None:
        assert single == column or abs(single or column or 0) > 10**19
    else:
        assert abs(single - column) <= max(1000, abs(single) >> 50)


@examples(300)
@given(st.decimals(-(10**11), 10**11, places=9).map(lambda number: f"{number:f}"), UNITS)
def test_texts(text, unit):
    """A single text is read as in a column, to the nanosecond."""
    single, column = one(text, unit), of(from_text(pa.array([text]), unit))
    assert single == column


@pytest.mark.parametrize("number", [1900, 2026, 2100, 2026.0, "2026"])
def test_years(number):
    """A number that may be a year is refused in a query, but accepted in events, as of a simulation near 1970."""
    with pytest.raises(ValueError, match="may be a year"):
        to_nanos(number, from_query=True)
    assert to_nanos(number) == (int(number) * 10**9, "s")
    assert to_nanos(number, "s", from_query=True) == to_nanos(number)
    assert to_nanos(1899, from_query=True)
    assert to_nanos("2026.5", from_query=True)


@pytest.mark.parametrize("number", [19991231, 20260301, 202603010800, 20260301080005, 20260301.0, "20260301"])
def test_dates(number):
    """A number that may be a date is refused unless a unit is given."""
    with pytest.raises(ValueError, match="may be a date"):
        to_nanos(number)
    assert to_nanos(number, "ms")
    assert to_nanos(20261301) == (20261301 * 10**9, "s")  # month 13 does not exist
