"""Find and read dates in lines, vectorised over columns of bytes of some ten thousand lines.

Common dates have digits at fixed places: `2026-03-01 08:00:05,250 +0100`, `01/Mar/2026:08:00:05 +0000`,
`Mar  1 08:00:05` and similar. One gather copies them into a matrix of bytes whose columns are the fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
NEAR = 128
"""A date counts only if it begins within this many bytes from the start of its line."""
_WINDOW = 48  # a little more than the longest date with fixed places, in bytes
_DAYS = np.frombuffer(b"MTWFS", np.uint8)
_DAY_US = 86_400_000_000
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = r"\d\d:\d\d"
_NAMES = (b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec")
_MONTH_KEYS = np.array(sorted(int.from_bytes(name) for name in _NAMES))
_MONTH_NUMBERS = np.array([1 + [int.from_bytes(name) for name in _NAMES].index(key) for key in _MONTH_KEYS.tolist()])
_ZONES = {
    "UTC": 0, "GMT": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
    "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "JST": 9, "KST": 9,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Shape:
    """The layout of a date. width: bytes up to the minutes; seconds may follow. places: where each field begins: Y has
    four digits, b is the name of a month, others have two digits; _d may begin with a space. seps: the places of
    separators, with the bytes allowed there.
    """

    search: str  # for RE2
    width: int
    places: dict[str, int]
    seps: tuple[tuple[int, bytes], ...]


_SHAPES = (
    _Shape(rf"[12]\d{{3}}-\d\d-\d\d[T ]{_CLOCK}|[12]\d{{3}}/\d\d/\d\d[T ]{_CLOCK}", 16,
           {"Y": 0, "m": 5, "d": 8, "H": 11, "M": 14}, ((4, b"-/"), (7, b"-/"), (10, b"T "), (13, b":"))),
    _Shape(rf"[0-3]\d[/ -]{_MONTH}[/ -][12]\d{{3}}[: ]{_CLOCK}", 17,
           {"d": 0, "b": 3, "Y": 7, "H": 12, "M": 15}, ((2, b"/ -"), (6, b"/ -"), (11, b": "), (14, b":"))),
    _Shape(rf"{_MONTH} [ 0-3]\d {_CLOCK}:\d\d", 12,
           {"b": 0, "_d": 4, "H": 7, "M": 10}, ((3, b" "), (6, b" "), (9, b":"))),
    _Shape(rf"[0-3]\d/[01]\d/[12]\d{{3}} {_CLOCK}", 16,
           {"d": 0, "m": 3, "Y": 6, "H": 11, "M": 14}, ((2, b"/"), (5, b"/"), (10, b" "), (13, b":"))),
)  # fmt: skip
_NAME = rf"{_MONTH}[a-z]{{0,6}}"
_OTHERS = (
    r"[12]\d{3}[-/]\d{1,2}[-/]\d{1,2} {1,2}\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[AaPp][Mm])?",
    rf"{_NAME} [0-3]?\d,? [12]\d{{3}},? \d{{1,2}}:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?",
    r"[0-3]?\d/[01]?\d/\d{2,4} \d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?",
    rf"[0-3]?\d[ -]{_NAME}[ -](?:[12]\d{{3}}|\d\d),? {_CLOCK}(?::\d\d)?(?: (?:[A-Z]{{3}}|[+-]\d{{4}}))?",
    rf"{_MONTH} [ 0-3]\d {_CLOCK}:\d\d (?:[A-Z]{{3,4}}|[+-]\d{{4}}) [12]\d{{3}}",
)
OTHER = rf"\b(?P<date>{'|'.join(reversed(_OTHERS))})"
"""A pattern for dates of other forms, which are read one by one."""
_ANY = rf"\b(?:{'|'.join((*(shape.search for shape in _SHAPES), *_OTHERS))})"


@dataclass(frozen=True, slots=True)
class Read:
    """Dates that were read. micros: UTC. ok: a date was read. zoned: it names a zone. ends: its end in the line."""

    micros: I64
    ok: Mask
    zoned: Mask
    ends: I64


class Lines:
    """Lines (binary) to search for dates."""

    def __init__(self, lines: pa.Array) -> None:
        self._lines = lines
        newline = pa.scalar(b"\n", pa.binary())  # not part of any date, so that no date extends beyond its line
        ended = pc.binary_join_element_wise(lines, newline, pa.scalar(b"", pa.binary()), null_handling="replace")
        _, offsets, data = ended.buffers()
        bounds = np.frombuffer(offsets, np.int32)[ended.offset : ended.offset + len(ended) + 1]
        self._data: Bytes = np.concatenate([np.frombuffer(data, np.uint8), np.zeros(_WINDOW, np.uint8)])
        self._starts: I64 = bounds[:-1].astype(np.int64)
        self._first = self._window(self._starts)
        self._at_start = self._first.fits(_SHAPES[0])

    def find(self) -> I64:
        """Find where a date begins in each line: at its start, else after its first `[`, else anywhere; -1 if none
        begins within the first NEAR bytes.
        """
        at = np.where(self._at_start, 0, -1)
        rows = np.flatnonzero(~self._at_start)
        if not len(rows):
            return at
        at[rows[self._first.of(rows).fits_any()]] = 0
        rows = np.flatnonzero(at < 0)
        some = pc.binary_slice(self._lines.take(pa.array(rows)), 0, NEAR + _WINDOW)
        colon = np.asarray(pc.find_substring(some, b":").fill_null(-1)) >= 0  # every date has a time of day
        rows, some = rows[colon], some.filter(pa.array(colon))
        behind = np.asarray(pc.find_substring(some, b"[").fill_null(-1)).astype(np.int64) + 1
        bracket = (behind > 0) & (behind <= NEAR) & self._window(self._starts[rows] + behind).fits_any()
        at[rows[bracket]] = behind[bracket]
        rows, some = rows[~bracket], some.filter(pa.array(~bracket))
        found = np.asarray(pc.find_substring_regex(some, _ANY).fill_null(-1)).astype(np.int64)
        at[rows] = np.where(found <= NEAR, found, -1)
        return at

    def read(self, at: I64, now_us: int) -> Read:
        """Read the dates at these places of the lines. Dates of forms without fixed places are not ok."""
        count = len(at)
        made = Read(
            np.zeros(count, np.int64), np.zeros(count, np.bool_), np.zeros(count, np.bool_), np.zeros(count, np.int64)
        )
        plain = self._at_start & (at == 0)
        if plain.all():
            self._first.read(_SHAPES[0], at, now_us, made, np.arange(count))
            return made
        left = np.flatnonzero((at >= 0) & ~plain)
        if plain.any():
            rows = np.flatnonzero(plain)
            self._first.of(rows).read(_SHAPES[0], at[rows], now_us, made, rows)
        window = self._window(self._starts[left] + at[left])
        for shape in _SHAPES:
            fits = window.fits(shape)
            if fits.any():
                window.of(np.flatnonzero(fits)).read(shape, at[left[fits]], now_us, made, left[fits], self._day_before)
                window, left = window.of(np.flatnonzero(~fits)), left[~fits]
            if not len(left):
                break
        return made

    def _day_before(self, rows: I64, at: I64) -> Mask:
        """Whether the name of a weekday precedes each date."""
        before = self._starts[rows] + at - 4
        named: Mask = (at >= 4) & (self._data[before + 3] == ord(" ")) & np.isin(self._data[before], _DAYS)
        return named

    def _window(self, places: I64) -> _Window:
        windows: Bytes = np.lib.stride_tricks.sliding_window_view(self._data, _WINDOW)
        return _Window(windows[places])


class _Window:
    """The _WINDOW bytes from the start of a date, one row per line."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self._flat = data.reshape(-1)
        self._rows = np.arange(len(data)) * _WINDOW

    def of(self, rows: I64) -> _Window:
        """A window of the given rows only."""
        return self if len(rows) == len(self._data) else _Window(self._data[rows])

    def fits(self, shape: _Shape) -> Mask:
        """Mark the rows that have a date of this shape. Separators, checked first, rule out most others."""
        fits = np.ones(len(self._data), np.bool_)
        for at, known in shape.seps:
            found = self._data[:, at]
            some = found == known[0]
            for other in known[1:]:
                some |= found == other
            fits &= some
        if not fits.any():
            return fits
        columns = [
            at + step for name, at in shape.places.items() if name != "b" for step in range(4 if name == "Y" else 2)
        ]
        digits = self._data[:, columns] - np.uint8(48) <= 9
        if "_d" in shape.places:
            digits[:, columns.index(shape.places["_d"])] |= self._data[:, shape.places["_d"]] == ord(" ")
        fits &= digits.all(axis=1)
        if "b" in shape.places:
            fits &= self._month(shape.places["b"]) > 0
        return fits

    def fits_any(self) -> Mask:
        """Mark the rows that have a date of any shape."""
        fits = self.fits(_SHAPES[0])
        for shape in _SHAPES[1:]:
            if fits.all():
                break
            fits |= self.fits(shape)
        return fits

    def read(
        self,
        shape: _Shape,
        at: I64,
        now_us: int,
        made: Read,
        rows: I64,
        day_before: Callable[[I64, I64], Mask] | None = None,
    ) -> None:
        """Read dates of a shape into `made`. at: where they begin in their lines. rows: the rows of `made` to set."""
        field = {
            name: self._number(place, 4 if name == "Y" else 2) for name, place in shape.places.items() if name != "b"
        }
        month = field["m"] if "m" in field else self._month(shape.places["b"])
        day = field["d"] if "d" in field else field["_d"]
        second, end = self._seconds(shape.width)
        fraction, end = self._fraction(end)
        hour, end = self._half_day(field["H"], end)
        offset, zoned, end = self._offset(end)
        clock = ((hour * 60 + field["M"]) * 60 + second) * 1_000_000 + fraction - offset
        good = (hour < 24) & (field["M"] < 60) & (second <= 60)
        if "Y" in field:
            days, real = _days(field["Y"], month, day)
            micros = days * _DAY_US + clock
        else:
            named = day_before(rows, at) if day_before is not None else np.zeros(len(at), np.bool_)
            year, end = self._year(end, named)
            micros, real = _of_year(year, month, day, clock, now_us)
        made.micros[rows], made.ok[rows], made.zoned[rows], made.ends[rows] = micros, good & real, zoned, at + end

    def _byte(self, columns: I64) -> Bytes:
        return self._flat.take(self._rows + columns)

    def _digit(self, columns: I64) -> tuple[I64, Mask]:
        found = self._byte(columns) - np.uint8(48)
        return found.astype(np.int64), found <= 9

    def _number(self, at: int, digits: int) -> I64:
        made = np.zeros(len(self._data), np.int64)
        for step in range(digits):
            made = made * 10 + (self._data[:, at + step] & 15)  # a space counts as 0, too
        return made

    def _month(self, at: int) -> I64:
        """The month named at this place, from 1; 0 if none."""
        low = (self._data[:, at : at + 3] | 0x20).astype(np.int64)
        key = (low[:, 0] << 16) | (low[:, 1] << 8) | low[:, 2]
        place = np.minimum(np.searchsorted(_MONTH_KEYS, key), len(_MONTH_KEYS) - 1)
        return np.where(_MONTH_KEYS[place] == key, _MONTH_NUMBERS[place], 0)

    def _seconds(self, at: int) -> tuple[I64, I64]:
        tens, ones = self._data[:, at + 1] - np.uint8(48), self._data[:, at + 2] - np.uint8(48)
        there = (self._data[:, at] == ord(":")) & (tens <= 9) & (ones <= 9)
        if there.all():
            return tens.astype(np.int64) * 10 + ones, np.full(len(there), at + 3)
        return np.where(there, tens.astype(np.int64) * 10 + ones, 0), at + 3 * there

    def _fraction(self, at: I64) -> tuple[I64, I64]:
        """Microseconds from the digits after a point or comma, and the place after all digits."""
        mark = self._byte(at)
        follows = ((mark == ord(".")) | (mark == ord(","))) & self._digit(at + 1)[1]
        micros = np.zeros(len(at), np.int64)
        if not follows.any():
            return micros, at
        at, scale = at + follows, 100_000
        for _ in range(9):
            digit, good = self._digit(at)
            follows = follows & good
            if not follows.any():
                break
            micros += digit * follows * scale
            at, scale = at + follows, scale // 10
        return micros, at

    def _half_day(self, hour: I64, at: I64) -> tuple[I64, I64]:
        """Hours after applying AM or PM, if present, and the place after it."""
        begin = at + (self._byte(at) == ord(" "))
        said = (self._byte(begin + 1) | 0x20) == ord("m")
        if not said.any():
            return hour, at
        half = self._byte(begin) | 0x20
        said &= ((half == ord("a")) | (half == ord("p"))) & ~_is_letter(self._byte(begin + 2))
        plain = np.where((hour >= 1) & (hour <= 12), hour % 12, 99) + 12 * (half == ord("p"))
        return np.where(said, plain, hour), np.where(said, begin + 2, at)

    def _offset(self, at: I64) -> tuple[I64, Mask, I64]:
        """Microseconds east of UTC, whether a zone is written, and the place after it."""
        space = self._byte(at) == ord(" ")
        begin = at + space
        mark = self._byte(begin)
        zulu = mark == ord("Z")
        if zulu.any():
            zulu &= ~_is_letter(self._byte(begin + 1))
        offset, zoned, end = np.zeros(len(at), np.int64), zulu, np.where(zulu, begin + 1, at)
        signed = (mark == ord("+")) | (mark == ord("-"))
        if signed.any():
            minutes, fits, behind = self._signed(begin, space)
            fits &= signed
            sign = np.where(mark == ord("+"), 60_000_000, -60_000_000)
            offset, end, zoned = np.where(fits, sign * minutes, offset), np.where(fits, behind, end), zoned | fits
        named = space & ~zulu & (mark >= ord("A")) & (mark <= ord("Z"))
        if named.any():
            named &= (mark != ord("I")) & (mark != ord("D"))  # INFO, DEBUG: no zone begins with these letters
        for name, hours_east in _ZONES.items() if named.any() else ():
            fits = named & (mark == ord(name[0]))
            if fits.any():
                for step, letter in enumerate(name.encode()[1:], 1):
                    fits &= self._byte(begin + step) == letter
                fits &= ~_is_letter(self._byte(begin + len(name)))
                offset, end = np.where(fits, hours_east * 3_600_000_000, offset), np.where(fits, begin + len(name), end)
                zoned = zoned | fits
        return offset, zoned, end

    def _signed(self, begin: I64, space: Mask) -> tuple[I64, Mask, I64]:
        """Minutes of an offset such as +0100, +01:00 or, if no space precedes it, +01."""
        colon = (self._byte(begin + 3) == ord(":")).astype(np.int64)
        (h1, ok1), (h2, ok2) = self._digit(begin + 1), self._digit(begin + 2)
        (m1, ok3), (m2, ok4) = self._digit(begin + 3 + colon), self._digit(begin + 4 + colon)
        hours, minutes = h1 * 10 + h2, m1 * 10 + m2
        full = ok3 & ok4 & ~self._digit(begin + 5 + colon)[1] & (minutes < 60)
        short = ~space & ~ok3 & (colon == 0)
        fits = ok1 & ok2 & (hours < 24) & (full | short)
        return hours * 60 + np.where(full, minutes, 0), fits, begin + np.where(full, 5 + colon, 3)

    def _year(self, at: I64, named: Mask) -> tuple[I64, I64]:
        """The year after the time of day if a weekday precedes the month, else 0; and the place after it."""
        if not named.any():
            return np.zeros(len(at), np.int64), at
        follows = named & (self._byte(at) == ord(" ")) & ~self._digit(at + 5)[1]
        year = np.zeros(len(at), np.int64)
        for step in range(1, 5):
            digit, good = self._digit(at + step)
            follows &= good
            year = year * 10 + digit
        return np.where(follows, year, 0), at + 5 * follows


def _of_year(year: I64, month: I64, day: I64, clock: I64, now_us: int) -> tuple[I64, Mask]:
    """Times of dates. A date with year 0 is the latest that is at most a day in the future."""
    guessed = year == 0
    now = np.datetime64(now_us, "us").astype("datetime64[Y]").astype(np.int64) + 1970
    days, real = _days(np.where(guessed, now, year), month, day)
    micros = days * _DAY_US + clock
    late = guessed & (micros > now_us + _DAY_US)  # a log of last December, read in January
    if late.any() or not real.all():  # or of 29 February
        before, real_before = _days(np.where(guessed, now - 1, year), month, day)
        late |= guessed & ~real & real_before
        micros, real = np.where(late, before * _DAY_US + clock, micros), np.where(late, real_before, real)
    return micros, real


def _days(year: I64, month: I64, day: I64) -> tuple[I64, Mask]:
    """Days since 1970, and which of them exist in the calendar."""
    first = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = first.astype("datetime64[D]").astype(np.int64) + day - 1
    real = (month >= 1) & (month <= 12) & (day >= 1)
    unsure = day > 28
    if unsure.any():
        real &= ~unsure | (days.astype("datetime64[D]").astype("datetime64[M]") == first)
    return days, real


def _is_letter(found: Bytes) -> Mask:
    low = found | 0x20
    return (low >= ord("a")) & (low <= ord("z"))
