"""Parsing of text columns to times, by formats with strptime's letters.

A format is compiled to one regex with a group per field; fields become numbers, numbers become microseconds. ISO 8601
is such a regex too. `clock` decides the zone of times without one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.convert.arrays import Ints, Mask, ints, mask

_OFFSET = r"[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?"
_ISO = (
    r"^(?P<Y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)"
    r"(?:[Tt ](?P<H>\d\d)(?::?(?P<M>\d\d)(?::?(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?)?)?"
    rf" ?(?P<z>[Zz]|{_OFFSET})?)?$"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TWO_DIGITS = r"\d{1,2}"
_FIELDS = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d{2})",
    "m": rf"(?P<m>{_TWO_DIGITS})",
    "b": r"(?P<b>[A-Za-z]{3})[a-z]*\.?",
    "d": rf"(?P<d>{_TWO_DIGITS})",
    "j": r"(?P<j>\d{1,3})",
    "H": rf"(?P<H>{_TWO_DIGITS})",
    "I": rf"(?P<I>{_TWO_DIGITS})",
    "p": r"(?P<p>[AaPp])\.?[Mm]\.?",
    "M": rf"(?P<M>{_TWO_DIGITS})",
    "S": rf"(?P<S>{_TWO_DIGITS})",
    "f": r"(?P<f>\d{1,9})",
    "z": rf"(?P<z>[Zz]|UTC|GMT|{_OFFSET})",
    "a": r"[A-Za-z]+\.?",
    "%": "%",
}
_SHORT_FOR = {"h": "b", "B": "b", "A": "a", "e": "d", "Z": "z"}
_COMPOUND = {"T": "%H:%M:%S", "R": "%H:%M", "F": "%Y-%m-%d", "D": "%m/%d/%y", "n": " ", "t": " "}


@dataclass(frozen=True, slots=True)
class Parsed:
    """Times as written. Row i is valid if `ok[i]`."""

    micros: Ints  # of the written civil time, minus its offset if it has one
    nanos: Ints  # 0..999 below the microsecond
    zoned: Mask  # an offset was written and is subtracted
    ok: Mask
    assumed: frozenset[str] = frozenset()  # units that were guessed from the size of numbers


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """The written form of times. Create it with `iso` or `of`."""

    pattern: str  # for RE2, which pyarrow uses

    @classmethod
    def iso(cls) -> TimeFormat:
        """Return the format of ISO 8601: a date, optionally a time with up to nine fractional digits and an offset."""
        return cls(_ISO)

    @classmethod
    def of(cls, letters: str) -> TimeFormat:
        """Compile a format such as "%d/%b/%Y:%H:%M:%S %z". Raises ValueError if it lacks year, month or day."""
        letters = re.sub(r"%(.)", lambda found: _COMPOUND.get(found[1], found[0]), letters)
        pieces = [_piece(found) for found in re.finditer(r"%(.?)|\s+|[^%\s]+", letters)]
        pattern = "^" + "".join(pieces) + "$"
        _check(pattern, letters)
        return cls(pattern)

    def parse(self, text: pa.StringArray) -> Parsed:
        """Parse each value of `text`. Nulls, values in another form and impossible dates or times are not ok."""
        found = pc.extract_regex(text, self.pattern)
        fields = {field.name: found.field(field.name) for field in found.type}
        ok = mask(found.is_valid())
        micros, possible = _civil(_Numbers(fields, ok))
        nanos = _fraction(fields["f"]) if "f" in fields else np.zeros(len(text), dtype=np.int64)
        offset, zoned = _offset(fields["z"]) if "z" in fields else (0, np.zeros(len(text), dtype=np.bool_))
        return Parsed(micros + nanos // 1000 - offset, nanos % 1000, zoned, ok & possible)


def _piece(found: re.Match[str]) -> str:
    text, letter = found.group(0), found.group(1)
    if letter is None:
        return r"\s+" if text.isspace() else re.escape(text)
    letter = _SHORT_FOR.get(letter, letter)
    if letter not in _FIELDS:
        known = " ".join(f"%{name}" for name in [*_FIELDS, *_SHORT_FOR, *_COMPOUND])
        raise ValueError(f"the timestamp format has {text!r}: expected {known}")
    return _FIELDS[letter]


def _check(pattern: str, letters: str) -> None:
    names = re.findall(r"\(\?P<(\w)>", pattern)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"the timestamp format {letters!r} has %{twice} twice")
    if not {"Y", "y"} & set(names) or not (({"m", "b"} & set(names) and "d" in names) or "j" in names):
        raise ValueError(f"the timestamp format {letters!r} lacks year, month or day; use one like %Y-%m-%d")


class _Numbers:
    """The fields of all rows as integers, with a default if the format or the row lacks the field."""

    def __init__(self, fields: dict[str, pa.StringArray], ok: Mask) -> None:
        self._fields = fields
        self.length = len(ok)

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str, default: int) -> Ints:
        if name not in self._fields:
            return np.full(self.length, default, dtype=np.int64)
        text = self._fields[name]
        filled = pc.if_else(pc.equal(text, ""), str(default), text)
        return ints(filled.cast(pa.int64()))

    def word(self, name: str, words: tuple[str, ...]) -> Ints:
        """Return the position of each row's word in `words`, from 0; -1 if it is not one of them."""
        lower = pc.utf8_lower(self._fields[name])
        return ints(pc.fill_null(pc.index_in(lower, pa.array(words)), -1))


def _civil(numbers: _Numbers) -> tuple[Ints, Mask]:
    """Return the civil times in microseconds since 1970, and a mask of those that exist in the calendar."""
    days, possible = _days(numbers)
    hour, hour_possible = _hour(numbers)
    minute, second = numbers.get("M", 0), numbers.get("S", 0)
    possible &= hour_possible & (minute < 60) & (second < 60)
    return ((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000, possible


def _days(numbers: _Numbers) -> tuple[Ints, Mask]:
    if "Y" in numbers:
        year = numbers.get("Y", 1970)
    else:
        short = numbers.get("y", 70)
        year = np.where(short < 69, 2000 + short, 1900 + short)  # the rule of POSIX
    if "j" in numbers:
        month, day = np.ones_like(year), numbers.get("j", 1)
    else:
        month = numbers.word("b", _MONTHS) + 1 if "b" in numbers else numbers.get("m", 1)
        day = numbers.get("d", 1)
    first = ((year - 1970) * 12 + month - 1).astype("M8[M]").astype("M8[D]")
    date = first + (day - 1).astype("m8[D]")
    step = "M8[Y]" if "j" in numbers else "M8[M]"
    possible = (year > 0) & (month >= 1) & (month <= 12) & (day >= 1) & (date.astype(step) == first.astype(step))
    return date.astype(np.int64), possible


def _hour(numbers: _Numbers) -> tuple[Ints, Mask]:
    if "I" not in numbers:
        hour = numbers.get("H", 0)
        return hour, hour < 24
    hour = numbers.get("I", 12)
    afternoon = numbers.word("p", ("a", "p")) == 1 if "p" in numbers else np.zeros(len(hour), dtype=np.bool_)
    return hour % 12 + 12 * afternoon, (hour >= 1) & (hour <= 12)


def _fraction(digits: pa.StringArray) -> Ints:
    """Read the digits after the point as nanoseconds."""
    return ints(pc.utf8_rpad(digits, 9, "0").cast(pa.int64()))


def _offset(text: pa.StringArray) -> tuple[Ints, Mask]:
    """Read offsets such as Z, +02, -0330, +05:30 as microseconds. The mask marks the rows that have one."""
    coded = text.dictionary_encode()
    micros = np.array([_offset_micros(offset) for offset in coded.dictionary.to_pylist()], dtype=np.int64)
    written = mask(pc.not_equal(text, ""))
    return micros[ints(coded.indices)], written


def _offset_micros(offset: str) -> int:
    if not offset or offset[0] not in "+-":
        return 0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return (-minutes if offset[0] == "-" else minutes) * 60_000_000
