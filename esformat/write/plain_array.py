"""Convert Arrow arrays of any layout to arrays of a stored type, in one layout that is built here.

Views, dictionaries, run ends, slices and extension types become plain values; nested values are rebuilt from their
parts. Arrow's casts are used only for values without parts: those of nested values are wrong for some layouts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from esformat.format.arrays import bitmap, entries_field, is_bytes, is_list
from esformat.format.layout import MAX_ELEMENTS, MAX_FRAME_BYTES
from esformat.format.schema import normalise_type

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
IMPOSSIBLE_HINT = "store the column in another type, such as timestamp, duration, int64 or text"
_IMPOSSIBLE = re.compile(r"olumn (\d+): .*((?:date64|time32|time64)\[.*|Decimal value .*)")


def plain_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of an array, which must be valid for Arrow, as an array of `kind`.

    Raises pa.ArrowException if a value, or part of one, would be lost. Conversion to a float rounds to the nearest one.
    """
    array = unfolded(array)
    given = array.type
    if pt.is_null(given):
        return pa.nulls(len(array), kind)
    if not pt.is_nested(given) and not pt.is_nested(kind):
        return array if given == kind else _cast(array, kind)
    build = _builder(given, kind)
    if build is None:
        raise pa.ArrowInvalid(f"{given} is not {kind}: cast it first")
    return build(array, kind)


def unfolded(array: pa.Array) -> pa.Array:
    """Remove extension type, dictionary or run ends around the values of an array. Raises pa.ArrowException."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pt.is_dictionary(array.type):
            array = _taken(array.dictionary, array.indices)
        elif pt.is_run_end_encoded(array.type):
            ends = np.asarray(array.run_ends)
            rows = np.arange(array.offset, array.offset + len(array))
            array = _taken(array.values, pa.array(np.searchsorted(ends, rows, side="right")))
        else:
            return array


def _taken(values: pa.Array, places: pa.Array) -> pa.Array:
    """The values at `places` in their stored type. Bounded, because a few bytes can represent very many."""
    values = plain_array(values, normalise_type(values.type))
    if pt.is_null(values.type):
        return pa.nulls(len(places))
    may_be_large = values.nbytes * len(places) > MAX_FRAME_BYTES  # one large value may be repeated
    if may_be_large and int(_value_bytes(values)[np.asarray(places.drop_null())].sum()) > MAX_FRAME_BYTES:
        raise pa.ArrowInvalid(f"its values take more than {MAX_FRAME_BYTES} bytes; give smaller batches")
    return values.take(places)


def _value_bytes(values: pa.Array) -> I64:
    """Approximate size of each value, in bytes."""
    if is_bytes(values.type):
        return np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)
    if not pt.is_nested(values.type):
        return np.full(len(values), 32, np.int64)  # the widest of these types
    return np.fromiter((values.slice(row, 1).nbytes for row in range(len(values))), np.int64, len(values))


# ------------------------------------------------------------ values without parts


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.null_count and (pt.is_string_view(array.type) or pt.is_binary_view(array.type)):
        array = _with_empty_nulls(array)
    if pt.is_float16(array.type) and kind != pa.float64():  # Arrow has few casts of float16, and odd ones
        array = array.cast(pa.float64())
    given = array.type
    if pt.is_decimal(given) and pt.is_floating(kind):  # Arrow's cast often misses the nearest float
        array = array.cast(pa.string())
    found = array.cast(kind)
    infinite = _infinite(found)
    if infinite and infinite > _infinite(array):
        raise pa.ArrowInvalid("a number is too large")
    if _may_lose(given, kind) and not _restores(found, array):
        raise pa.ArrowInvalid("digits of numbers, or parts of times, would be lost")
    return found


def _with_empty_nulls(array: pa.Array) -> pa.Array:
    """Clear the views beneath nulls: they may contain anything, and Arrow's casts follow them."""
    valid = np.asarray(array.is_valid())
    views = np.frombuffer(array.buffers()[1], np.int32, 4 * (array.offset + len(array)))[4 * array.offset :]
    views = np.where(valid[:, None], views.reshape(-1, 4), 0).astype(np.int32)
    return pa.Array.from_buffers(array.type, len(array), [_bits(valid), pa.py_buffer(views), *array.buffers()[2:]])


def _may_lose(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether Arrow's cast may lose data silently."""
    if pt.is_timestamp(given):
        return bool(pt.is_date(kind) or pt.is_time(kind))
    if pt.is_boolean(kind):
        return bool(pt.is_integer(given) or pt.is_floating(given))
    return bool((pt.is_floating(given) and pt.is_decimal(kind)) or (pt.is_date(given) and pt.is_date(kind)))


def _restores(found: pa.Array, array: pa.Array) -> bool:
    """Whether casting back restores the array. A date restores a time if that is midnight in its zone."""
    if pt.is_time(found.type):
        return bool(array.null_count == len(array))
    if pt.is_timestamp(array.type) and array.type.tz is not None:
        array = pc.local_timestamp(array)
    return bool(found.cast(array.type).equals(array))


def _infinite(array: pa.Array) -> int:
    """The number of infinite values; among texts, of those that say so."""
    if is_bytes(array.type):
        return int(pc.sum(pc.match_substring(array, "inf", ignore_case=True)).as_py() or 0)
    return int(pc.sum(pc.is_inf(array)).as_py() or 0) if pt.is_floating(array.type) else 0


# ------------------------------------------------------------ values with parts


def _builder(given: pa.DataType, kind: pa.DataType) -> Callable[[pa.Array, pa.DataType], pa.Array] | None:
    if pt.is_struct(given):
        return _struct if pt.is_struct(kind) else None
    if pt.is_map(given) or pt.is_map(kind):
        return _map if pt.is_map(given) and pt.is_map(kind) else None
    if not is_list(given) or not is_list(kind):
        return None
    return _fixed if pt.is_fixed_size_list(kind) else _list


def _valid(array: pa.Array) -> Bools | None:
    """A mask of the values that are not null; None if all are."""
    return np.asarray(array.is_valid()) if array.null_count else None


def _bits(valid: Bools | None) -> pa.Buffer | None:
    return bitmap(None if valid is None else valid.view(np.uint8))


def _checked(field: pa.Field, child: pa.Array, present: Bools | None = None) -> pa.Array:
    """A child in the type of its field; `present`: a mask of the parents that are not null. Raises pa.ArrowException
    for a forbidden null.
    """
    child = plain_array(child, field.type)
    if not field.nullable and child.null_count and not pt.is_null(field.type):
        missing = ~np.asarray(child.is_valid())
        if (missing if present is None else missing & present).any():
            raise pa.ArrowInvalid(f"field {field.name!r} must not be null")
    return child


def _struct(array: pa.Array, kind: pa.DataType) -> pa.Array:
    given = array.type
    names = [given.field(i).name for i in range(given.num_fields)]
    wanted = [kind.field(i) for i in range(kind.num_fields)]
    valid = _valid(array)
    if names == [field.name for field in wanted]:
        children = [_checked(field, array.field(i), valid) for i, field in enumerate(wanted)]
    else:
        places = {name: i for i, name in enumerate(names)}
        known = {field.name for field in wanted}
        if len(places) < len(names) or len(known) < len(wanted):
            raise pa.ArrowInvalid("a struct has two fields with the same name")
        for name in places.keys() - known:
            if array.flatten()[places[name]].null_count < len(array):
                raise pa.ArrowInvalid(f"field {name!r} would be lost")
        children = [
            _checked(field, array.field(places[field.name]) if field.name in places else pa.nulls(len(array)), valid)
            for field in wanted
        ]
    return pa.Array.from_buffers(kind, len(array), [_bits(valid)], children=children)


def _parts(array: pa.Array) -> tuple[I64, I64, Bools | None]:
    """Where each list begins among the values of all lists, and its length: 0 for null. Also the validity."""
    valid, kind = _valid(array), array.type
    if pt.is_fixed_size_list(kind):
        starts = (array.offset + np.arange(len(array), dtype=np.int64)) * kind.list_size
        lengths = np.full(len(array), kind.list_size, np.int64)
    elif pt.is_list_view(kind) or pt.is_large_list_view(kind):
        starts = np.asarray(array.offsets).astype(np.int64)
        lengths = np.asarray(array.sizes).astype(np.int64)
    else:
        offsets = np.asarray(array.offsets).astype(np.int64)
        starts, lengths = offsets[:-1], np.diff(offsets)
    return starts, (lengths if valid is None else np.where(valid, lengths, 0)), valid


def _gather(values: pa.Array, starts: I64, lengths: I64) -> pa.Array:
    """The values of lists, one list after another."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    some = lengths > 0
    first, size = starts[some], lengths[some]
    if not total or bool((first[1:] == first[:-1] + size[:-1]).all()):
        return values.slice(int(first[0]) if total else 0, total)
    if total > MAX_ELEMENTS:
        raise pa.ArrowInvalid(f"its lists have {total} values; give smaller batches")
    return _taken(values, pa.array(np.repeat(starts - (ends - lengths), lengths) + np.arange(total)))


def _offsets(lengths: I64, kind: pa.DataType) -> pa.Buffer:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    large = pt.is_large_list(kind)
    if not large and int(offsets[-1]) > MAX_FRAME_BYTES:
        raise pa.ArrowInvalid(f"its lists have {int(offsets[-1])} values; give smaller batches")
    return pa.py_buffer(offsets.astype(np.int64 if large else np.int32))


def _list(array: pa.Array, kind: pa.DataType) -> pa.Array:
    starts, lengths, valid = _parts(array)
    child = _checked(kind.value_field, _gather(array.values, starts, lengths))
    buffers = [_bits(valid), _offsets(lengths, kind)]
    return pa.Array.from_buffers(kind, len(array), buffers, children=[child])


def _fixed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    starts, lengths, valid = _parts(array)
    width = kind.list_size
    if not bool((lengths == (width if valid is None else np.where(valid, width, 0))).all()):
        raise pa.ArrowInvalid(f"a list does not have the length {width}")
    child = _checked(kind.value_field, _gather(array.values, starts, lengths))
    if valid is not None:  # the values of a null list must be null
        places = np.cumsum(np.repeat(valid, width)) - 1
        child = child.take(pa.array(places, mask=~np.repeat(valid, width)))
    return pa.Array.from_buffers(kind, len(array), [_bits(valid)], children=[child])


def _map(array: pa.Array, kind: pa.DataType) -> pa.Array:
    starts, lengths, valid = _parts(array)
    keys = _checked(pa.field("key", kind.key_type, nullable=False), _gather(array.keys, starts, lengths))
    items = _checked(kind.item_field, _gather(array.items, starts, lengths))
    entries = pa.Array.from_buffers(entries_field(kind).type, len(keys), [None], children=[keys, items])
    buffers = [_bits(valid), _offsets(lengths, kind)]
    return pa.Array.from_buffers(kind, len(array), buffers, children=[entries])


def plain_column(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> Any:
    """A column, chunked or not, converted by `plain_array`."""
    if isinstance(column, pa.Array):
        return plain_array(column, kind)
    return pa.chunked_array([plain_array(chunk, kind) for chunk in column.chunks], kind)


def impossible_value(error: ValueError, names: Sequence[str]) -> str | None:
    """The column and value if Arrow's validation found a value that its type does not allow, as some programs write
    them: the time 24:00, a date64 within a day, DuckDB's HUGEINT of 39 digits. None if the data is broken. names: of
    the columns.
    """
    found = _IMPOSSIBLE.search(str(error))
    return f"column {names[int(found[1])]!r}: {found[2]}" if found else None
