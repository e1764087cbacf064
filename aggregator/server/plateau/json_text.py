"""Pages as JSON: an array of row objects, as pandas and plateau write it.

Whole columns are converted to lists of Python values; nested ones recursively.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from aggregator import InvalidRequestError
from esformat.parts import normalise_type, plain_array


def json_records(records: pa.Table) -> bytes:
    """Return a JSON array with an object for each record.

    Times and dates have plateau's format: 2026-03-01 08:00:00.500. 32-bit floats have their shortest digits, bytes are
    text if they are UTF-8 and otherwise base64, and values that JSON cannot represent, such as NaN, are null. Raises
    InvalidRequestError for a column that has no JSON form.
    """
    names = records.column_names
    columns = [_column(*named) for named in zip(names, records.columns, strict=True)]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return json.dumps(rows, separators=(",", ":"), default=_text, allow_nan=False, ensure_ascii=False).encode()


def _column(name: str, column: pa.ChunkedArray) -> list[Any]:
    kind = normalise_type(column.type)
    try:
        return [value for chunk in column.chunks for value in _values(plain_array(chunk, kind))]
    except (ValueError, OverflowError, LookupError):  # such as unknown time zones
        raise InvalidRequestError(
            f"column {name[:100]!r} has values that JSON cannot represent", hint="leave it out, or accept an Arrow file"
        ) from None


def _values(array: pa.Array) -> list[Any]:
    """Convert the values of a plain array for JSON."""
    kind = array.type
    if pt.is_timestamp(kind) or pt.is_date(kind):
        return _moments(array)
    if pt.is_floating(kind):
        return _floats(array)
    if pt.is_struct(kind):
        names = [field.name for field in kind]
        members = [_values(member) for member in array.flatten()]
        rows = zip(*members, strict=True) if members else ((),) * len(array)
        return _where_valid(array, (dict(zip(names, row, strict=True)) for row in rows))
    if pt.is_map(kind):
        begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        keys, items = (_values(child.slice(begin, end - begin)) for child in (array.keys, array.items))
        return _lists(array, list(zip(keys, items, strict=True)))
    if pt.is_fixed_size_list(kind):
        width = kind.list_size
        children = _values(array.values.slice(array.offset * width, len(array) * width))
        return _where_valid(array, (children[row * width : (row + 1) * width] for row in range(len(array))))
    if pt.is_list(kind) or pt.is_large_list(kind):
        begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return _lists(array, _values(array.values.slice(begin, end - begin)))
    return array.to_pylist()  # type: ignore[no-any-return]


def _lists(array: pa.Array, children: list[Any]) -> list[Any]:
    """Return the lists between an array's offsets. The first offset belongs to `children[0]`."""
    ends = (np.asarray(array.offsets) - array.offsets[0].as_py()).tolist()
    return _where_valid(array, (children[begin:end] for begin, end in pairwise(ends)))


def _where_valid(array: pa.Array, values: Iterable[Any]) -> list[Any]:
    if not array.null_count:
        return list(values)
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]


def _floats(array: pa.Array) -> list[Any]:
    """Convert numbers with the digits of their own width, not those of a double."""
    if not pt.is_float64(array.type):
        array = array.cast(pa.float32()).cast(pa.string()).cast(pa.float64())
    return pc.if_else(pc.is_finite(array), array, pa.scalar(None, pa.float64())).to_pylist()  # type: ignore[no-any-return]


def _moments(array: pa.Array) -> list[Any]:
    """Format times with the fewest groups of three fractional digits; years of more than four digits have a +. Times
    beyond any calendar, for which Arrow writes an error message, are numbers.
    """
    number = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    found = array.cast(pa.string())
    plain = array.view(pa.timestamp(array.type.unit)).cast(pa.string()) if pt.is_timestamp(array.type) else found
    found = pc.if_else(pc.starts_with(plain, "<"), number.cast(pa.string()), found)
    for _ in range(3):
        found = pc.replace_substring_regex(found, r"(\.(?:\d{3})*)000(Z|[+-]\d\d:?\d\d)?$", r"\1\2")
    found = pc.replace_substring_regex(found, r"\.(Z|[+-]\d\d:?\d\d)?$", r"\1")
    return pc.replace_substring_regex(found, r"^(\d{5,}-)", r"+\1").to_pylist()  # type: ignore[no-any-return]


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dt.time):
        return value.isoformat()
    if isinstance(value, Decimal | dt.timedelta):
        return str(value)
    return repr(value)
