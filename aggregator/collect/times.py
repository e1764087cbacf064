"""Times in lines: texts to microseconds, a column at a time. What is common is read by Arrow, the rest one by one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql import times as lql_times
from esformat.parts import from_text

I64 = npt.NDArray[np.int64]
_MONTHS = pa.array(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])
_WEB = (
    r"^(?P<d>[0-3][0-9])/(?P<b>[A-Z][a-z]{2})/(?P<Y>[12][0-9]{3}):(?P<H>[0-2][0-9]):(?P<M>[0-5][0-9]):(?P<S>[0-6][0-9])"
    r" (?P<s>[+-])(?P<h>[0-2][0-9])(?P<m>[0-5][0-9])$"
)
_ISO = r"^[12]\d{3}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:?\d\d)$"


def to_micros(texts: pa.Array, now_us: int) -> pa.Array:
    """µs since 1970 of each text, null where it is no time. Without a year or a date, the last that is not to come."""
    encoded = texts.dictionary_encode()
    known = _distinct(encoded.dictionary, now_us)
    return known.take(encoded.indices)


def _distinct(texts: pa.Array, now_us: int) -> pa.Array:
    numbers = from_text(texts)
    made, done = numbers.micros.copy(), numbers.ok.copy()
    for pattern, read in ((_WEB, _of_web), (_ISO, _of_iso)):
        fits = np.asarray(pc.match_substring_regex(texts, pattern).fill_null(False)) & ~done
        rows = np.flatnonzero(fits)
        if len(rows):
            found = read(texts.take(pa.array(rows)))
            if found is not None:
                made[rows], done[rows] = found, True
    for row in np.flatnonzero(~done).tolist():
        text = texts[row].as_py()
        if text is None or not text[:1].isalnum() or not any(letter.isdigit() for letter in text):
            continue  # words such as "day", and "-5m", are times in statements only
        try:
            made[row] = lql_times.resolve(text, now_us * 1000) // 1000
        except (ValueError, OverflowError):
            continue
        done[row] = True
    return pa.array(made, mask=~done)


def _of_web(texts: pa.Array) -> I64 | None:
    """17/May/2015:10:05:03 +0000"""
    parts = pc.extract_regex(texts, _WEB)
    month = pc.index_in(parts.field("b"), _MONTHS)
    if month.null_count:
        return None
    number = {name: np.asarray(parts.field(name).cast(pa.int64())) for name in "dYHMShm"}
    months = (number["Y"] - 1970) * 12 + np.asarray(month)
    first = months.astype("datetime64[M]").astype("datetime64[D]")
    days = first.astype(np.int64) + number["d"] - 1
    if (days.astype("datetime64[D]").astype("datetime64[M]") != first.astype("datetime64[M]")).any():
        return None  # one of them is no day of the calendar
    east = np.asarray(pc.if_else(pc.equal(parts.field("s"), "-"), -1, 1))
    zone = east * (number["h"] * 60 + number["m"])
    made: I64 = ((days * 24 + number["H"]) * 60 + number["M"] - zone) * 60_000_000 + number["S"] * 1_000_000
    return made


def _of_iso(texts: pa.Array) -> I64 | None:
    """2026-03-01T08:00:00.5+01:00"""
    try:
        return np.asarray(texts.cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    except pa.ArrowInvalid:  # one of them is no day of the calendar
        return None
