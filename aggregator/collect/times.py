"""Read the timestamps of lines, a column at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.collect import dates
from aggregator.lql.parse.columns import as_text
from aggregator.lql.text import times as lql_times
from esformat.parts import from_text

I64 = npt.NDArray[np.int64]
MOST_AHEAD_US = 86_400_000_000
"""A date in a line that is further in the future than this is not taken as the time of the event."""
CARRIED_LINES = 1_000
"""Number of lines without a date that take over the time of the last dated line, for example in a stack trace."""


def to_micros(texts: pa.Array, now_us: int, zone: str = "UTC") -> pa.Array:
    """Convert each text to µs since 1970; null if it is not a time. zone: for times that name none.

    A time without a year or a date is the latest possible one that is not in the future.
    """
    encoded = texts.dictionary_encode()
    known = _distinct(encoded.dictionary, now_us, zone)
    return known.take(encoded.indices)


def _distinct(texts: pa.Array, now_us: int, zone: str) -> pa.Array:
    numbers = from_text(texts)
    made, done = numbers.micros.copy(), numbers.ok.copy()
    lines = texts.cast(pa.binary())
    found = dates.Lines(lines).read(np.zeros(len(lines), np.int64), now_us)
    whole = found.ok & (found.ends == np.asarray(pc.binary_length(lines).fill_null(-1))) & ~done
    made[whole] = _in_zone(found.micros, found.zoned, zone)[whole]
    done |= whole
    for row in np.flatnonzero(~done).tolist():
        text = texts[row].as_py()
        if text is None or not text[:1].isalnum() or not any(letter.isdigit() for letter in text):
            continue  # words such as "day", or "-5m", are times only in statements
        micros = _resolved(text, now_us, zone)
        if micros is not None:
            made[row], done[row] = micros, True
    return pa.array(made, mask=~done)


def in_lines(lines: pa.Array, now_us: int, zone: str) -> tuple[pa.Array, int]:
    """Find the first date near the start of each line (binary): µs since 1970, and the number of lines without one.

    A line without a date gets the time of the last line with one; null if that is more than CARRIED_LINES back or
    does not exist.
    """
    looked = dates.Lines(lines)
    at = looked.find()
    found = looked.read(at, now_us)
    micros, ok = _in_zone(found.micros, found.zoned, zone), found.ok
    others = np.flatnonzero((at >= 0) & ~ok)
    if len(others):
        texts = pc.extract_regex(pc.binary_slice(lines.take(pa.array(others)), 0, 2 * dates.NEAR), dates.OTHER)
        read = to_micros_one_by_one(as_text(texts.field("date")), now_us, zone)
        micros[others], ok[others] = np.asarray(read.fill_null(0)), np.asarray(read.is_valid())
    ok &= micros <= now_us + MOST_AHEAD_US
    places = np.arange(len(micros))
    last = np.maximum.accumulate(np.where(ok, places, -1))
    near = (last >= 0) & (places - last <= CARRIED_LINES)
    return pa.array(micros[np.maximum(last, 0)], mask=~near), int((~ok).sum())


def to_micros_one_by_one(texts: pa.Array, now_us: int, zone: str) -> pa.Array:
    """Convert texts of any form to µs since 1970, null if not a time; each distinct text is read once."""
    encoded = texts.dictionary_encode()
    known = [None if text is None else _resolved(text, now_us, zone) for text in encoded.dictionary.to_pylist()]
    return pa.array(known, pa.int64()).take(encoded.indices)


def _resolved(text: str, now_us: int, zone: str) -> int | None:
    try:
        micros = lql_times.resolve(text, now_us * 1000) // 1000
    except (ValueError, OverflowError):
        return None
    if zone == "UTC":
        return micros
    try:
        lql_times.resolve(f"{text} +0000", now_us * 1000)  # succeeds only if the text names no zone
    except (ValueError, OverflowError):
        return micros
    return int(_in_zone(np.array([micros]), np.zeros(1, np.bool_), zone)[0])


def _in_zone(micros: I64, zoned: npt.NDArray[np.bool_], zone: str) -> I64:
    """Interpret times without a zone in `zone`: a repeated local time as the first, a skipped one as the next."""
    if zone == "UTC" or zoned.all():
        return micros
    local = pa.array(micros, pa.timestamp("us"))
    utc = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest").cast(pa.int64())
    return np.where(zoned, micros, np.asarray(utc))
