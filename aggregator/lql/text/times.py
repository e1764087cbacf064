"""Parse points in time: relative, named, or absolute in many forms, from text and a clock to nanoseconds.

Nanoseconds, because texts and numbers may have them; stored times have microseconds. A time without a zone is UTC.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from decimal import Decimal

from esformat.parts import is_number, to_nanos

NANOS_PER_MICRO = 1000
_LONGEST = 80
_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_COUNTED = re.compile(r"([0-9.]+)(s|ms|us|ns)")
_RELATIVE = re.compile(r"([-+])([0-9]{0,15}\.?[0-9]{1,15})([smhdw])")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FULL_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_ZONES = {
    "z": 0, "utc": 0, "gmt": 0, "ut": 0, "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8,
    "pdt": -7,
}  # fmt: skip
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_NS = (dt.datetime.min.replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1) * NANOS_PER_MICRO
_LAST_NS = (dt.datetime.max.replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1) * NANOS_PER_MICRO

_Y, _MO, _D = r"(?P<Y>[0-9]{4})", r"(?P<m>[0-9]{1,2})", r"(?P<d>[0-9]{1,2})"
_MON = r"(?P<b>[a-z]{3,9})\.?"
_WEEKDAY = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?,?\ +"
_CLOCK = r"(?P<H>[0-9]{1,2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,9}))?)?(?:\ *(?P<p>[ap])\.?m\.?)?"
_ZONE = r"(?:\ *(?P<z>z|[-+][0-9]{2}(?::?[0-9]{2})?)(?:\ +\(?[a-z]{1,5}\)?)?|\ +(?P<n>[a-z]{1,4}))?"
_BASIC = r"(?P<H>[0-9]{2})(?:(?P<M>[0-9]{2})(?:(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,9}))?)?)?"
_HOUR = r"(?P<H>[0-9]{2})"
_THEN = rf"(?:(?:\ *,\ *|\ +){_CLOCK}{_ZONE})?"
_FORMS = (
    # ISO 8601 and RFC 3339: calendar, ordinal and week dates, extended and basic
    rf"{_Y}-{_MO}-{_D}(?:(?:t|\ +|:){_CLOCK}{_ZONE})?",
    rf"{_Y}-{_MO}-{_D}t{_HOUR}{_ZONE}",
    rf"{_Y}-(?P<j>[0-9]{{3}})(?:(?:t|\ +){_CLOCK}{_ZONE})?",
    rf"{_Y}-?w(?P<W>[0-9]{{2}})(?:-?(?P<w>[1-7]))?(?:(?:t|\ +){_CLOCK}{_ZONE})?",
    rf"{_Y}(?P<m>[0-9]{{2}})(?P<d>[0-9]{{2}})t{_BASIC}{_ZONE}",
    # year first, with slashes; day first; month first, with dots
    rf"{_Y}/{_MO}/{_D}{_THEN}",
    rf"{_D}/{_MO}/(?P<Y>[0-9]{{4}}|[0-9]{{2}}){_THEN}",
    rf"{_MO}\.{_D}\.(?P<Y>[0-9]{{4}}|[0-9]{{2}}){_THEN}",
    rf"{_D}/{_MON}/{_Y}:{_CLOCK}{_ZONE}",
    # months by name, with or without a weekday before
    rf"{_Y}-{_MON}-{_D}{_THEN}",
    rf"(?:{_WEEKDAY})?{_D}[- ]{_MON}[- ](?P<Y>[0-9]{{4}}|[0-9]{{2}}){_THEN}",
    rf"(?:{_WEEKDAY})?{_MON}\ +{_D},?\ +{_Y}{_THEN}",
    rf"(?:{_WEEKDAY})?{_MON}\ +{_D}\ +{_CLOCK}{_ZONE}(?:\ +(?P<Y>[0-9]{{4}}))?",
    # today
    rf"{_CLOCK}{_ZONE}",
)
_EXAMPLES = '"-1.5h", "day", "2026-03-01", "2026-03-01 08:00:05.5 +0100", "01/03/2026 08:00", "08:00"'


def resolve(text: str, now_ns: int) -> int:
    """The time `text` in nanoseconds since 1970, relative to `now_ns`. Raises ValueError, which lists valid forms.

    Forms: `-1.5h` (s, m, h, d, w), `now`, `minute`, `hour`, `day`, `week` (start of the current one; weeks begin on
    Sunday), numbers since 1970 (seconds to nanoseconds, by a unit as in `2000ns`, or otherwise by magnitude), and
    absolute times.
    """
    written = text.lower().strip() if len(text) <= _LONGEST else ""
    nanos = _relative(written, now_ns)
    if nanos is None:
        nanos = _named(written, now_ns)
    if nanos is None:
        nanos = _counted(written)
    if nanos is None:
        nanos = _absolute(written, now_ns)
    if nanos is None:
        raise ValueError(f"invalid time {text[:_LONGEST]!r}: expected {_EXAMPLES} or Unix time")
    if not _FIRST_NS <= nanos <= _LAST_NS:
        raise ValueError(f"{text!r} is outside the years 1 to 9999")
    return nanos


def _counted(written: str) -> int | None:
    """Parse a number since 1970."""
    found = _COUNTED.fullmatch(written)
    if found and is_number(found[1]):
        return to_nanos(found[1], found[2])[0]
    if is_number(written) and not (written[0] in "-+" and "." in written):  # -1.5 of what?
        return to_nanos(written, from_query=True)[0]
    return None


def _relative(written: str, now_ns: int) -> int | None:
    found = _RELATIVE.fullmatch(written)
    if found is None:
        return None
    nanos = int(Decimal(found[2]) * _UNIT_SECONDS[found[3]] * _SECOND)
    return now_ns - nanos if found[1] == "-" else now_ns + nanos


def _named(written: str, now_ns: int) -> int | None:
    midnight = now_ns // _DAY * _DAY
    if written == "week":  # 1 January 1970 was a Thursday, day 4 of a week that begins on Sunday
        return midnight - (now_ns // _DAY + 4) % 7 * _DAY
    starts = {
        "now": now_ns,
        "minute": now_ns // (60 * _SECOND) * 60 * _SECOND,
        "hour": now_ns // (3600 * _SECOND) * 3600 * _SECOND,
        "day": midnight,
    }
    return starts.get(written)


def _absolute(written: str, now_ns: int) -> int | None:
    for form in _forms():
        found = form.fullmatch(written)
        if found is not None:
            return _instant(found.groupdict(), now_ns, written)
    return None


@functools.cache
def _forms() -> tuple[re.Pattern[str], ...]:
    """The compiled forms; compiling takes 10 ms."""
    return tuple(map(re.compile, _FORMS))


def _instant(fields: dict[str, str | None], now_ns: int, written: str) -> int:
    """Raises ValueError if the fields are not a valid calendar time."""
    offset_ns = _offset_ns(fields, written)
    date, guessed_year = _date(fields, now_ns + offset_ns, written)
    nanos = (date - _EPOCH.date()).days * _DAY + _clock_ns(fields, written) - offset_ns
    if guessed_year and nanos > now_ns + _DAY:  # a log of last December, read in January
        last_year = _calendar(date.year - 1, date.month, date.day, written)
        nanos -= (date - last_year).days * _DAY
    return nanos


def _date(fields: dict[str, str | None], local_ns: int, written: str) -> tuple[dt.date, bool]:
    today = _EPOCH.date() + dt.timedelta(days=local_ns // _DAY)
    year_text, month = fields.get("Y"), _month(fields, written)
    year = today.year if year_text is None else int(year_text)
    if year_text is not None and len(year_text) == 2:
        year += 2000 if year < 69 else 1900  # as POSIX reads two digits
    try:
        if fields.get("j"):
            return _day_of_year(year, int(fields["j"] or 0)), False
        if fields.get("W"):
            return dt.date.fromisocalendar(year, int(fields["W"] or 0), int(fields.get("w") or 1)), False
    except ValueError:
        raise ValueError(f"invalid date {written!r}") from None
    if month is None:
        return today, False
    return _calendar(year, month, int(fields["d"] or 0), written), year_text is None


def _day_of_year(year: int, day: int) -> dt.date:
    date = dt.date(year, 1, 1) + dt.timedelta(days=day - 1)
    if date.year != year:
        raise ValueError(f"{year} has no day {day}")
    return date


def _calendar(year: int, month: int, day: int, written: str) -> dt.date:
    try:
        return dt.date(year, month, day)
    except ValueError:
        raise ValueError(f"invalid date {written!r}") from None


def _month(fields: dict[str, str | None], written: str) -> int | None:
    name = fields.get("b")
    if name is not None:
        if name[:3] not in _MONTHS or not _FULL_MONTHS[_MONTHS.index(name[:3])].startswith(name):
            raise ValueError(f"invalid month {name!r} in {written!r}")
        return _MONTHS.index(name[:3]) + 1
    number = fields.get("m")
    return int(number) if number else None


def _clock_ns(fields: dict[str, str | None], written: str) -> int:
    hour, minute, second = (int(fields.get(name) or 0) for name in "HMS")
    half = fields.get("p")
    if half:
        if not 1 <= hour <= 12:
            raise ValueError(f"invalid time of the day {written!r}")
        hour = hour % 12 + (12 if half == "p" else 0)
    fraction = int((fields.get("f") or "").ljust(9, "0"))
    nanos = (hour * 3600 + minute * 60 + second) * _SECOND + fraction
    if hour > 24 or minute > 59 or second > 60 or (hour == 24 and nanos > _DAY):  # second 60: a leap second
        raise ValueError(f"invalid time of the day {written!r}")
    return nanos


def _offset_ns(fields: dict[str, str | None], written: str) -> int:
    zone, name = fields.get("z"), fields.get("n")
    if name is not None:
        if name not in _ZONES:
            raise ValueError(f"unknown time zone {name.upper()!r}: expected an offset such as +0100")
        return _ZONES[name] * 3600 * _SECOND
    if zone is None or zone == "z":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError(f"invalid UTC offset {zone!r} in {written!r}")
    nanos = (hours * 3600 + minutes * 60) * _SECOND
    return -nanos if zone[0] == "-" else nanos
