"""Arrow columns as text: the JSON text of values and rows, and the plain text of keys. Nothing here loops over events.

JSON has no bytes, no NaN and only one kind of number. Bytes are written as text if they are UTF-8, else as `{"base64":
"…"}`. NaN and infinities become null. Floats keep their point (1.0). Times are ISO 8601 text, in UTC if they have a
time zone; times beyond any calendar, or beyond the end of the day, are numbers in their unit.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NO_NAN = "JSON has no NaN and no infinity; null was written for {:,} of them"
"""The warning for a column that has such values; takes their number."""
MOST_LITERALS = 1024
"""Most Arrow scalars that are cached: names of columns, and the punctuation around values."""
_ESCAPED = r'["\\\x00-\x1f]'
_NO_TEXT = pa.nulls(1, pa.string())[0]  # pa.scalar would import pandas, a fifth of a command's start-up time
_CALENDAR_S = 900_000_000_000  # the years up to 30,489, before and after 1970: Arrow writes later times wrongly
_LIMITS = {"day": _CALENDAR_S // 86_400, "s": _CALENDAR_S, "ms": _CALENDAR_S * 10**3, "us": _CALENDAR_S * 10**6}
_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SHORT_ESCAPES = {0x08: r"\b", 0x09: r"\t", 0x0A: r"\n", 0x0C: r"\f", 0x0D: r"\r"}


def objects(columns: dict[str, pa.Array], length: int) -> pa.StringArray:
    """Write row i of `columns`, each of `length` values, as JSON object i, with the keys in the order of `columns`."""
    pieces: list[Any] = []
    for name, column in columns.items():
        opening = "," if pieces else "{"
        pieces += [_literal(opening + json.dumps(name, ensure_ascii=False) + ":"), fragments(column)]
    if not pieces:
        return pa.repeat(_literal("{}"), length)
    return pc.binary_join_element_wise(*pieces, _literal("}"), _literal(""))


def fragments(column: pa.Array) -> pa.StringArray:
    """Write each value as JSON text. The result has no nulls."""
    written = _fragments(column)
    return pc.coalesce(written, _literal("null")) if written.null_count else written


def not_finite(column: pa.Array) -> int:
    """The number of NaN and infinite values in a column, including those inside lists, structs and maps."""
    kind = column.type
    if pa.types.is_floating(kind):
        finite: int = pc.sum(pc.is_finite(column)).as_py() or 0
        count: int = len(column) - column.null_count - finite
        return count
    if pa.types.is_struct(kind):
        return sum(map(not_finite, column.flatten()))
    if pa.types.is_map(kind):
        first, last = (column.offsets[place].as_py() for place in (0, len(column)))
        return sum(not_finite(part.slice(first, last - first)) for part in (column.keys, column.items))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return not_finite(column.flatten())
    return 0


def as_text(column: pa.Array) -> pa.StringArray:
    """Convert each value to text: strings unchanged, numbers and times as JSON writes them, nested values as JSON.

    Bytes that are not UTF-8 become the JSON object with their base64 text. Floats that are whole numbers lose their
    point: 5.0 and 5 are the same key.
    """
    type_ = column.type
    if pa.types.is_string(type_):
        return column
    if pa.types.is_dictionary(type_):
        return as_text(column.dictionary_decode())
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return column.cast(pa.string())
    if pa.types.is_temporal(type_) and not pa.types.is_duration(type_) and not pa.types.is_interval(type_):
        return _iso(column)
    if pa.types.is_primitive(type_) or pa.types.is_decimal(type_) or pa.types.is_null(type_):
        return _plain_text(column)
    if pa.types.is_binary(type_):
        return _decoded(column)
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_) or pa.types.is_fixed_size_binary(type_):
        return _decoded(column.cast(pa.binary()))
    written = fragments(column)
    return pc.if_else(column.is_null(), _NO_TEXT, written)


def _fragments(column: pa.Array) -> pa.StringArray:
    type_ = column.type
    if pa.types.is_string(type_):
        return _quoted(column)
    if pa.types.is_floating(type_):
        return _floats(column)
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        written = objects(dict(zip(names, column.flatten(), strict=True)), len(column))
        return pc.if_else(column.is_valid(), written, _literal("null"))
    if pa.types.is_map(type_):
        return _maps(column)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        joined = _joined(column, fragments(column.flatten()))
        return _enclosed("[", joined, "]")
    if pa.types.is_binary(type_):
        return _binary(column)
    return _scalars(column)


def _scalars(column: pa.Array) -> pa.StringArray:
    type_ = column.type
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_decimal(type_):
        return column.cast(pa.string())
    if pa.types.is_primitive(type_) or pa.types.is_null(type_):
        return _quoted(as_text(column))
    for simpler in (pa.string(), pa.binary()):
        try:
            return _fragments(column.cast(simpler))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            continue
    # types that Arrow cannot write as text: unions, list views, extension types
    return pa.array([json.dumps(value, default=str, ensure_ascii=False) for value in column.to_pylist()], pa.string())


def _plain_text(column: pa.Array) -> pa.StringArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowNotImplementedError:  # durations and intervals
        text = _interval if column.type == pa.month_day_nano_interval() else str
        return pa.array([None if value is None else text(value) for value in column.to_pylist()], pa.string())


def _interval(value: pa.MonthDayNano) -> str:
    """Months, days and seconds in ISO 8601: P1M-2DT0.5S."""
    seconds, nanos = divmod(abs(value.nanoseconds), 1_000_000_000)
    digits = f"{seconds}.{nanos:09d}".rstrip("0").rstrip(".")
    return f"P{value.months}M{value.days}DT{'-' * (value.nanoseconds < 0)}{digits}S"


def _iso(column: pa.Array) -> pa.StringArray:
    zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    if zoned:  # without the zone, Arrow writes the same time in UTC, twenty times as fast
        column = column.view(pa.timestamp(column.type.unit))
    written = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    if zoned:
        written = _enclosed("", written, "Z")
    number = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    if pa.types.is_time(column.type):  # DuckDB has 24:00, for which Arrow writes an error message
        least, most = 0, 86_400 * _PER_S[column.type.unit] - 1
    else:
        most = _LIMITS.get(_unit(column.type), 1 << 63)
        least = -most
    if most >= 1 << (number.type.bit_width - 1):
        return written
    strange = pc.or_(pc.greater(number, most), pc.less(number, least))
    return pc.if_else(strange, number.cast(pa.string()), written) if pc.any(strange).as_py() else written


def _unit(kind: pa.DataType) -> str:
    if pa.types.is_date(kind):
        return "day" if pa.types.is_date32(kind) else "ms"
    return str(kind.unit)


def _floats(column: pa.Array) -> pa.StringArray:
    column = pc.if_else(pc.is_finite(column), column, pa.nulls(1, column.type)[0])
    written = column.cast(pa.string())
    whole = pc.invert(pc.match_substring_regex(written, "[.e]"))
    return pc.if_else(whole, _enclosed("", written, ".0"), written)


def _quoted(column: pa.StringArray) -> pa.StringArray:
    if pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        column = _escaped(column)
    return _enclosed('"', column, '"')


def _escaped(column: pa.StringArray) -> pa.StringArray:
    column = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(column, r"[\x00-\x1f]")).as_py():
        for code in range(0x20):
            column = pc.replace_substring(column, chr(code), _SHORT_ESCAPES.get(code, f"\\u{code:04x}"))
    return column


def _decoded(column: pa.Array) -> pa.StringArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else _decoded_one(value) for value in column.to_pylist()], pa.string())


def _decoded_one(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _base64(value)


def _base64(value: bytes) -> str:
    return json.dumps({"base64": base64.b64encode(value).decode()}, separators=(",", ":"))


def _binary(column: pa.Array) -> pa.StringArray:
    try:
        return _quoted(column.cast(pa.string()))
    except pa.ArrowInvalid:
        return pa.array([_bytes(value) for value in column.to_pylist()], pa.string())


def _bytes(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return json.dumps(value.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return _base64(value)


def _maps(column: pa.MapArray) -> pa.StringArray:
    offsets = np.asarray(column.offsets)  # `keys` and `items` belong to the whole array of which `column` is a slice
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    names, values = column.keys.slice(first, count), column.items.slice(first, count)
    pairs = pc.binary_join_element_wise(_quoted(as_text(names)), fragments(values), ":")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets - first, pa.int32()), pairs), ",")
    return pc.if_else(column.is_valid(), _enclosed("{", joined, "}"), _literal("null"))


def _joined(column: pa.Array, values: pa.StringArray) -> pa.StringArray:
    """Join the `values` of each list in `column` with commas; null if the list is null."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
    return pc.if_else(column.is_valid(), pc.binary_join(lists, ","), _NO_TEXT)


def _enclosed(before: str, inside: pa.StringArray, after: str) -> pa.StringArray:
    return pc.binary_join_element_wise(_literal(before), inside, _literal(after), _literal(""))


@lru_cache(MOST_LITERALS)
def _literal(text: str) -> pa.StringScalar:
    """Return `text` as an Arrow scalar, cached: creating one takes as long as writing a short column."""
    return pa.array([text], pa.string())[0]
