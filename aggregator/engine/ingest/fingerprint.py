"""Fingerprints of batches: equal for equal values, whatever their Arrow layout.

Equal: whole numbers of the same value, in any type (1, 1.0, 1.00); floats, or decimals, of the same value; times of the
same moment, in any unit and zone; lists with the same items, of any list type; structs with the same members, in any
order; all NaNs; a column or member without any value, and a missing one.
Different: true and 1; 0.0 and -0.0; null, an empty text and an empty list; text and bytes; a time and a number; a time
with a zone and one without; 1.5 as a float and as a decimal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from aggregator.storage.files.checksum import checksum64

_US = pa.timestamp("us")
_US_UTC = pa.timestamp("us", "UTC")
_AS_THEY_ARE = (
    pa.int64(), pa.string(), pa.binary(), _US, _US_UTC, pa.duration("us"), pa.time64("ns"), pa.date32(),
)  # fmt: skip
"""Types that `_canonical` does not change, if the array has no nulls, is no slice and has no unused bytes."""


def fingerprint(batch: pa.RecordBatch, message: pa.Buffer | bytes) -> int:
    """A 64-bit fingerprint of the events of a batch. message: the same batch as an Arrow message.

    Columns without values do not count: the topic may have gained them since the batch was first sent. Neither do bytes
    under nulls, unused bits of bitmaps, or bytes before and after texts that are slices of longer buffers.
    """
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = {name: _canonical(column) for name, column in given.items() if column.null_count < len(column)}
    as_it_came = len(columns) == len(given) and all(columns[name] is given[name] for name in columns)
    content = message if as_it_came else pa.record_batch(columns).serialize()
    return fingerprint_of(column_key_of((name, column.type) for name, column in columns.items()), content)


def fingerprint_of(column_key: Sequence[str], content: pa.Buffer | bytes) -> int:
    """The fingerprint of columns. column_key: their description from `column_key_of`. content: their Arrow message."""
    return checksum64("\0".join([*column_key, str(checksum64(content))]).encode())


def column_key_of(columns: Iterable[tuple[str, pa.DataType]]) -> tuple[str, ...]:
    """The part of columns, beside their values, that counts for fingerprints: name and type."""
    return tuple(f"{name}\0{kind}" for name, kind in columns)


def bytes_determine_values(schema: pa.Schema) -> bool:
    """Whether all bytes of a message with these columns, without nulls, depend only on the values."""
    return all(kind in _AS_THEY_ARE for kind in schema.types)


def _canonical(array: pa.Array) -> pa.Array:
    """An array of the same values whose type and bytes depend only on them; the same array if that is already so."""
    kind = array.type
    if pt.is_struct(kind):
        return _struct(array)
    if pt.is_map(kind):
        copy = _copied(array)
        return pa.MapArray.from_arrays(copy.offsets, _canonical(copy.keys), _canonical(copy.items), mask=copy.is_null())
    if pt.is_fixed_size_list(kind):
        return _list(_bounds(array, kind.list_size), array.flatten(), array)
    if pt.is_list(kind) or pt.is_large_list(kind):
        copy = _copied(array)
        return _list(np.asarray(copy.offsets), copy.values, copy)
    made = next((make(array) for holds, make in _BY_VALUE if holds(kind)), array)
    return made if _is_plain(made) else _copied(made)


def _copied(array: pa.Array) -> pa.Array:
    """A copy of only the values: without bytes before or after them, or under nulls."""
    return array.take(pa.array(np.arange(len(array))))


def _struct(array: pa.StructArray) -> pa.Array:
    parts = zip(array.type, array.flatten(), strict=True)  # a null struct is null in every child
    children = {field.name: child for field, child in parts if child.null_count < len(child)}
    if not children:  # only which rows are null remains
        return pa.StructArray.from_arrays([_copied(array.is_valid())], [""])
    ordered = {name: _canonical(children[name]) for name in sorted(children)}
    return pa.StructArray.from_arrays(list(ordered.values()), list(ordered), mask=array.is_null())


def _bounds(array: pa.Array, width: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The offsets of fixed-size lists among their items, without the items of nulls."""
    return np.concatenate([[0], np.cumsum(np.asarray(array.is_valid()) * width)])


def _list(bounds: np.ndarray[tuple[int], np.dtype[np.int64]], items: pa.Array, array: pa.Array) -> pa.Array:
    items = _canonical(items)
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), items, mask=array.is_null())


def _number(array: pa.Array) -> pa.Array:
    """64-bit integers if all values are; else floats, or texts without trailing zeros after the point."""
    kind = array.type
    if pt.is_floating(kind):
        return _float(array)
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:  # fractions, or larger than that
        texts = array.cast(pa.string())
    if not pt.is_decimal(kind):
        return texts
    texts = pc.replace_substring_regex(texts, r"(\.\d*?)0+$", r"\1")
    return pc.replace_substring_regex(texts, r"\.$", "")


def _float(array: pa.Array) -> pa.Array:
    found = array.cast(pa.float64())
    values = np.asarray(found.fill_null(0.0))
    negative_zero = bool(((values == 0.0) & np.signbit(values)).any())
    if not negative_zero and bool((np.abs(values) < 2.0**63).all()) and bool((values == np.floor(values)).all()):
        return found.cast(pa.int64(), safe=False)
    if np.isnan(values).any():
        return pa.array(np.where(np.isnan(values), np.nan, values), mask=np.asarray(found.is_null()))
    return found


def _time(array: pa.Array) -> pa.Array:
    """Microseconds if they are exact, in UTC if there is a zone."""
    kind = _US if array.type.tz is None else _US_UTC
    return _cast_if_whole(array, kind)


def _cast_if_whole(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:  # digits would be lost, or the value is out of range
        return array


_BY_VALUE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (lambda kind: kind == pa.int64(), lambda array: array),
    (lambda kind: pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind), _number),
    (pt.is_timestamp, _time),
    (pt.is_duration, lambda array: _cast_if_whole(array, pa.duration("us"))),
    (pt.is_time, lambda array: _cast_if_whole(array, pa.time64("ns"))),
    (pt.is_date, lambda array: _cast_if_whole(array, pa.date32())),
    (pt.is_fixed_size_binary, lambda array: array.cast(pa.binary())),
    (pt.is_large_string, lambda array: array.cast(pa.string())),
    (pt.is_large_binary, lambda array: array.cast(pa.binary())),
)


def _is_plain(array: pa.Array) -> bool:
    """Whether an array is not nested and its bytes contain nothing but its values."""
    kind = array.type
    if array.null_count or array.offset or pt.is_boolean(kind) or pt.is_nested(kind):
        return False
    if pt.is_string(kind) or pt.is_binary(kind):
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int32, len(array) + 1) if len(array) else np.zeros(1, np.int32)
        return bool(bounds[0] == 0 and bounds[-1] == (data.size if data is not None else 0))
    return True
