"""Layouts of times in output: an example date in Go's style (2006-01-02 15:04:05.000), or strftime's letters.

Rendered by column, in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_RFC3339 = "2006-01-02T15:04:05.999999999Z07:00"
# strftime equivalents. Fractions, `pm`, unpadded numbers and `__2` are handled by `_special`.
_GO = {
    "January": "%B", "Jan": "%b", "Monday": "%A", "Mon": "%a", "MST": "UTC", "2006": "%Y", "002": "%j", "01": "%m",
    "02": "%d", "03": "%I", "04": "%M", "05": "%S", "06": "%y", "15": "%H", "PM": "%p", "_2": "%e",
    "Z07:00:00": "Z", "Z070000": "Z", "Z07:00": "Z", "Z0700": "Z", "Z07": "Z", "-07:00:00": "+00:00:00",
    "-070000": "+000000", "-07:00": "+00:00", "-0700": "+0000", "-07": "+00",
}  # fmt: skip
MOST_US = 900_000_000_000 * 1_000_000  # the years up to 30,489, before and after 1970
"""Times beyond are plain numbers: Arrow writes wrong years for them."""
_UNPADDED = {"1": "%m", "2": "%d", "3": "%I", "4": "%M", "5": "%S"}
_FRACTION = r"[.,](?:0+|9+)(?![0-9])"
# As in Go: `Jan` and `Mon` are literal before a lower-case letter, and `_2006` is an underscore and a year.
_PIECE = re.compile(
    rf"(?P<fraction>{_FRACTION})|(?P<text>(?:Jan(?!uary)|Mon(?!day))(?=[a-z])|_(?=2006))|(?P<year_day>__2)"
    rf"|(?P<go>{'|'.join(map(re.escape, sorted(_GO, key=len, reverse=True)))})"
    r"|(?P<lower>pm)|(?P<bare>[12345])|(?P<other>.)",
    re.DOTALL,
)
_LETTERS = frozenset("aAbBcCdDeFgGHIjmMnpRStTuUVwWxXyYzZh%")
_LETTER = re.compile("%.|.", re.DOTALL)
_WRITTEN = "2006-01-02 15:04:05"  # how Arrow writes a time
_PLACES = {
    "%Y": slice(0, 4),
    "%y": slice(2, 4),
    "%m": slice(5, 7),
    "%d": slice(8, 10),
    "%H": slice(11, 13),
    "%M": slice(14, 16),
    "%S": slice(17, 19),
}
Maker = Callable[[pa.Array, pa.Array], pa.Array]  # seconds as timestamps, microseconds within the second as int64


@dataclass(frozen=True, slots=True)
class Layout:
    """The format of times. Create with `of` or `rfc3339`."""

    makers: tuple[Maker, ...]

    @classmethod
    def rfc3339(cls) -> Self:
        """2026-03-01T08:00:00.25Z: the fraction without trailing zeros."""
        return cls.of(_RFC3339)

    @classmethod
    def of(cls, layout: str) -> Self:
        """From Go's example date, or from strftime's letters if it contains a %. Raises ValueError."""
        if "%" in layout:
            wrong = next((found[0] for found in re.finditer("%(.?)", layout) if found[1] not in _LETTERS), None)
            if wrong is not None:
                raise ValueError(f"unknown strftime letter {wrong!r}")
            return cls((_strftime(layout),))
        makers: list[Maker] = []
        pending = ""
        for found in _PIECE.finditer(layout):
            letters = _GO.get(found["go"] or "") or found["text"] or (found["other"] or "").replace("%", "%%")
            if letters:
                pending += letters
                continue
            if pending:
                makers.append(_strftime(pending))
                pending = ""
            makers.append(_special(found))
        if pending or not makers:
            makers.append(_strftime(pending))
        return cls(tuple(makers))

    def render(self, micros: pa.Array) -> pa.Array:
        """Format times, which are int64 microseconds since 1970; nulls stay. Times beyond any calendar, for which Arrow
        writes wrong years, are plain numbers.
        """
        seconds, below = _split(micros)
        parts = [make(seconds, below) for make in self.makers]
        made = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")
        far = pc.or_(pc.greater(micros, MOST_US), pc.less(micros, -MOST_US))
        return pc.if_else(far, micros.cast(made.type), made) if pc.any(far).as_py() else made


def _split(micros: pa.Array) -> tuple[pa.Array, pa.Array]:
    values = np.asarray(micros.fill_null(0))
    mask = np.asarray(micros.is_null())
    seconds = np.floor_divide(values, 1_000_000)
    below = values - seconds * 1_000_000
    return pa.array(seconds, mask=mask).cast(pa.timestamp("s")), pa.array(below, mask=mask)


def _strftime(letters: str) -> Maker:
    pieces = _LETTER.findall(letters)
    if all(piece in _PLACES or len(piece) == 1 for piece in pieces):
        return lambda seconds, _: _of_fixed_width(seconds, pieces, letters)
    return lambda seconds, _: pc.strftime(seconds, format=letters)


def _of_fixed_width(seconds: pa.Array, pieces: list[str], letters: str) -> pa.Array:
    """Like pc.strftime, but much faster: rearranges the digits of Arrow's own format for all rows together."""
    texts = seconds.fill_null(pa.scalar(0, seconds.type)).cast(pa.string())
    stored = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    odd = len(stored) != len(texts) * len(_WRITTEN)  # years that do not have four digits
    if odd or len(texts) * 4 * len(letters) >= 1 << 31:  # more text than one array can hold
        return pc.strftime(seconds, format=letters)
    digits = stored.reshape(len(texts), len(_WRITTEN))
    parts = [
        digits[:, _PLACES[piece]]
        if piece in _PLACES
        else np.tile(np.frombuffer(piece.encode(), np.uint8), (len(texts), 1))
        for piece in pieces
    ]
    made = np.concatenate(parts, axis=1) if parts else np.zeros((len(texts), 0), np.uint8)
    ends = (np.arange(len(texts) + 1) * made.shape[1]).astype(np.int32)
    whole = pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(made))
    return whole if seconds.null_count == 0 else pc.if_else(seconds.is_valid(), whole, None)


def _special(found: re.Match[str]) -> Maker:
    if found["lower"]:
        return lambda seconds, _: pc.ascii_lower(pc.strftime(seconds, format="%p"))
    if found["bare"]:
        letters = _UNPADDED[found["bare"]]
        return lambda seconds, _: pc.replace_substring_regex(pc.strftime(seconds, format=letters), "^0", "")
    if found["year_day"]:
        return lambda seconds, _: pc.ascii_lpad(pc.ascii_ltrim(pc.strftime(seconds, format="%j"), "0"), 3)
    mark, digits = found["fraction"][0], found["fraction"][1:10]
    return lambda _, below: _fraction(below, mark, len(digits), trimmed=digits[0] == "9")


def _fraction(below: pa.Array, mark: str, width: int, *, trimmed: bool) -> pa.Array:
    """The first `width` digits of the fraction; `trimmed`: without trailing zeros, and empty if all are zero."""
    text = pc.ascii_lpad(below.cast(pa.string()), 6, "0")
    text = pc.utf8_slice_codeunits(pc.ascii_rpad(text, 9, "0"), 0, width)
    if not trimmed:
        return pc.binary_join_element_wise(pa.scalar(mark), text, "")
    text = pc.ascii_rtrim(text, characters="0")
    return pc.if_else(pc.equal(text, ""), "", pc.binary_join_element_wise(pa.scalar(mark), text, ""))
