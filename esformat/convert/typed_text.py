"""Parsing of text that `json_text` wrote, back to columns of known types; column by column, not row by row."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from esformat.convert.arrays import Mask, mask
from esformat.format import json_text
from esformat.format.arrays import is_binary
from esformat.format.json_values import is_number_of
from esformat.write.lossless import first_cut

_BASE64 = b'{"base64":'  # as `json_text` writes it
_BASE64_NAME = "".join(rf"(?:{letter}|\\u{ord(letter):04x})" for letter in "base64")  # JSON may escape any letter
_BASE64_OBJECT = rf'^[ \t\r\n]*\{{[ \t\r\n]*"{_BASE64_NAME}"[ \t\r\n]*:'
_NANOSECONDS = re.compile(r"(.+\.[0-9]{6})([0-9]{3})(Z?)")
_FAR_DATE = re.compile(r"([0-9]{5,9}|-[0-9]{4,9})(-[0-9]{2}-[0-9]{2}.*)")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_CYCLE_DAYS = 146_097  # 400 years
_EXACT_BELOW = {16: 2**11, 32: 2**24, 64: 2**53}
"""By the bits of a float type, the integer up to which it represents every integer exactly."""


def from_text(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert bytes of CSV fields to values of a type; nested types are written as JSON.

    Raises ValueError, KeyError, TypeError, ArithmeticError or pa.ArrowException for an invalid value.
    """
    if pt.is_nested(kind):
        return from_json([None if value is None else loads(value) for value in column.to_pylist()], kind)
    if is_binary(kind):
        encoded = pc.fill_null(pc.starts_with(column, _BASE64), False)
        if pc.any(encoded).as_py():
            values = column.to_pylist()
            return pa.array([_in_field(v) if e else v for v, e in zip(values, encoded.to_pylist(), strict=True)], kind)
        return column.cast(kind)
    if pt.is_large_string(kind):
        return column.cast(pa.string()).cast(kind)
    text = column.cast(pa.string())
    return _unchanged(text, leaf(text, kind))


def without_base64(column: pa.BinaryArray) -> pa.BinaryArray:
    """Decode values written as {"base64": …}; values that only begin like that stay unchanged."""
    encoded = pc.fill_null(pc.match_substring_regex(column, _BASE64_OBJECT), False)
    if not pc.any(encoded).as_py():
        return column
    pairs = zip(column.to_pylist(), encoded.to_pylist(), strict=True)
    return pa.array([bytes_in(value) if found else value for value, found in pairs], pa.binary())


def bytes_in(text: bytes) -> bytes:
    """The bytes of a JSON text {"base64": …}; the text itself if there are other members or the base64 is invalid."""
    try:
        members = json.loads(text, object_pairs_hook=list)
        return base64.b64decode(dict(members)["base64"], validate=True) if len(members) == 1 else text
    except (ValueError, TypeError, KeyError, RecursionError):  # also a number with more digits than Python parses
        return text


def loads(text: str | bytes) -> Any:
    """Parse JSON, keeping all digits of numbers."""
    return json.loads(text, parse_float=Decimal)


def from_json(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Convert JSON values from `loads` to an array of a type. Raises as `from_text` does."""
    if pt.is_struct(kind):
        names = {field.name for field in kind}
        unknown = next((name for value in values if value is not None for name in value if name not in names), None)
        if unknown is not None:
            raise ValueError(f"unknown member {unknown!r} of {kind}")
        children = [from_json([None if v is None else v[f.name] for v in values], f.type) for f in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=_missing(values))
    if pt.is_map(kind):
        items = [[] if value is None else list(value.items()) for value in values]
        keys = from_text(pa.array([key.encode() for pairs in items for key, _ in pairs], pa.binary()), kind.key_type)
        found = from_json([item for pairs in items for _, item in pairs], kind.item_type)
        return pa.MapArray.from_arrays(_offsets(items, values, np.int32), keys, found).cast(kind)
    if pt.is_fixed_size_list(kind):
        return _fixed_lists(values, kind)
    if pt.is_list(kind) or pt.is_large_list(kind):
        lists = [[] if value is None else value for value in values]
        flat = from_json([each for value in lists for each in value], kind.value_type)
        wide = pt.is_large_list(kind)
        made = pa.LargeListArray if wide else pa.ListArray
        return made.from_arrays(_offsets(lists, values, np.int64 if wide else np.int32), flat, type=kind)
    if is_binary(kind):
        return pa.array([_bytes(value) for value in values], kind)
    if pt.is_temporal(kind):
        return leaf(pa.array(values, pa.string()), kind)
    if pt.is_floating(kind):
        floats = pa.array([None if value is None else np.float64(value) for value in values], pa.float64()).cast(kind)
        return _unchanged(pa.array([None if value is None else str(value) for value in values], pa.string()), floats)
    made = pa.array(values, kind)
    if first_cut(values, kind) is not None:
        raise ValueError(f"not all values are {kind}")
    return made


def _unchanged(text: pa.StringArray, values: pa.Array) -> pa.Array:
    """Return `values`. Raises ValueError if a float differs from the number in its text."""
    changed = rounded(text, values) if pt.is_floating(values.type) else None
    if changed is not None:
        raise ValueError(f"{text[int(changed.argmax())]} is not exactly representable as {values.type}")
    return values


def _fixed_lists(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    filled = [[None] * kind.list_size if value is None else value for value in values]
    wrong = next((len(value) for value in filled if len(value) != kind.list_size), None)
    if wrong is not None:
        raise ValueError(f"a list has {wrong} values, expected {kind.list_size}")
    if not kind.list_size:  # Arrow divides by the list size
        return pa.array(values, kind)
    flat = from_json([each for value in filled for each in value], kind.value_type)
    return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=_missing(values))


def _missing(values: Sequence[Any]) -> pa.BooleanArray:
    return pa.array([value is None for value in values], pa.bool_())


def _offsets(lists: Sequence[Sequence[Any]], values: Sequence[Any], width: Any) -> pa.Array:
    """The start of each list, null for a null list, followed by the end of the last one."""
    edges = np.concatenate([[0], np.cumsum([len(each) for each in lists], dtype=np.int64)]).astype(width)
    return pa.array(edges, mask=np.array([value is None for value in values] + [False]))


def leaf(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Convert text to a type that is not nested, even if Arrow has no such cast. Raises pa.ArrowException."""
    if pt.is_null(kind):
        return pa.nulls(len(text))
    if pt.is_time(kind):
        return pc.binary_join_element_wise("1970-01-01T", text, "").cast(pa.timestamp(kind.unit)).cast(kind)
    if pt.is_duration(kind):
        return text.cast(pa.int64()).cast(kind)
    if pt.is_timestamp(kind) or pt.is_date(kind):
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            return _far_times(text, kind)
    return text.cast(pa.float64()).cast(kind) if pt.is_float16(kind) else text.cast(kind)


def _far_times(text: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Parse times and dates that Arrow writes but cannot read. Raises pa.ArrowInvalid.

    These have years of five digits or before the year 0, or are numbers outside Arrow's calendar.
    """
    try:
        return _times([None if value is None else _units_since_1970(value, kind) for value in text.to_pylist()], kind)
    except OverflowError as error:
        raise pa.ArrowInvalid(f"a time is out of range for {kind}: {error}") from None


def _units_since_1970(value: str, kind: pa.DataType) -> int:
    found = _FAR_DATE.fullmatch(value)
    if found is not None:  # the calendar repeats every 400 years
        year = int(found[1])
        near = 2000 + year % 400
        days = (year - near) // 400 * _CYCLE_DAYS
        return int(pa.scalar(f"{near}{found[2]}").cast(kind).value + days * _units_of_day(kind))
    if _NUMBER.fullmatch(value) and json_text.as_text(_times([int(value)], kind))[0].as_py() == value:
        return int(value)
    found = _NANOSECONDS.fullmatch(value)
    if found is not None and pt.is_timestamp(kind) and kind.unit == "ns":
        # Arrow does not read nanoseconds in the first second of their range
        return int(pa.scalar(found[1] + found[3]).cast(pa.timestamp("us", kind.tz)).value) * 1000 + int(found[2])
    return int(pa.scalar(value).cast(kind).value)


def _times(numbers: list[int | None], kind: pa.DataType) -> pa.Array:
    return pa.array(numbers, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def _units_of_day(kind: pa.DataType) -> int:
    if pt.is_date32(kind):
        return 1
    return 86_400 * (1000 if pt.is_date64(kind) else {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit])


def rounded(text: pa.Array, numbers: pa.Array) -> Mask | None:
    """Mark the texts that a large or infinite float does not represent exactly; None if there are none."""
    wide = numbers.cast(pa.float64())
    found = mask(pc.greater_equal(pc.abs(wide), float(_EXACT_BELOW[numbers.type.bit_width])))
    for row in np.flatnonzero(found).tolist():
        found[row] = not is_number_of(wide[row].as_py(), text[row].as_py())
    return found if found.any() else None


def _in_field(text: bytes) -> bytes | None:
    """Decode a field that begins like base64: CSV does not distinguish a text from an object."""
    found = json.loads(text)
    return _bytes(found) if isinstance(found, dict) and set(found) == {"base64"} else text


def _bytes(value: Any) -> bytes | None:
    """Convert bytes as written by `json_text`: text, or an object with base64."""
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    return None if value is None else value.encode()
