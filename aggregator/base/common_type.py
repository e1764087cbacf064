"""The Arrow type that holds every value of two columns exactly, and the facts about the values that the choice needs.

A float cannot hold every whole number beyond 2⁵³, and a time in nanoseconds ends in the year 2262. So a schema records
the *magnitude* of such columns: 0 if all values are exact as floats, or as nanoseconds; 1, 2 or 3 if times need
microseconds, milliseconds or seconds; 3 if a whole number is too large for a float.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from esformat import InvalidEventError
from esformat.parts import KEY_COLUMNS, as_text, is_binary, is_numeric, normalise_type, plain_array

EXACT_FLOAT = 1 << 53
LARGEST = 3
_UNITS = ("ns", "us", "ms", "s")
_MAX_DECIMAL_DIGITS = 76

Known = tuple[pa.DataType, int]
"""A column's type and magnitude."""


# ------------------------------------------------------------ magnitudes


def magnitudes_of(table: pa.Table | pa.RecordBatch) -> dict[str, int]:
    """The nonzero magnitudes of columns, by name. Raises InvalidEventError if a column cannot be read."""
    return magnitudes_at(table, places_of_magnitudes(table.schema))


def places_of_magnitudes(schema: pa.Schema) -> tuple[tuple[int, str], ...]:
    """Positions and names of the columns that can have a magnitude."""
    fields = enumerate(schema)
    return tuple((i, f.name) for i, f in fields if f.name not in KEY_COLUMNS and _has_magnitude(f.type))


def magnitudes_at(table: pa.Table | pa.RecordBatch, places: Iterable[tuple[int, str]]) -> dict[str, int]:
    """The result of `magnitudes_of`, if the columns that can have a magnitude are known."""
    found = {}
    for place, name in places:
        column = table.column(place)
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        try:
            largest = max((_magnitude(chunk, chunk.type) for chunk in chunks), default=0)
        except (pa.ArrowException, ValueError) as error:
            raise InvalidEventError(f"column {name!r} of type {column.type} cannot be read: {error}") from None
        if largest:
            found[name] = largest
    return found


def _has_magnitude(kind: pa.DataType) -> bool:
    if pt.is_integer(kind):
        return bool(kind.bit_width == 64)
    if pt.is_timestamp(kind) or pt.is_duration(kind):
        return bool(kind.unit != "ns")
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return _has_magnitude(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _has_magnitude(kind.storage_type)
    if not pt.is_nested(kind):
        return False
    if pt.is_list_view(kind) or pt.is_large_list_view(kind):
        return _has_magnitude(kind.value_type)
    return any(_has_magnitude(kind.field(place).type) for place in range(kind.num_fields))


def _magnitude(array: pa.Array, kind: pa.DataType) -> int:
    whole = pt.is_integer(kind)
    if not (whole or pt.is_temporal(kind)):
        array = plain_array(array, normalise_type(kind))
        if not pt.is_nested(array.type):
            return _magnitude(array, array.type)
        parts = [(part, part.type) for part in _parts(array)]
        return max((_magnitude(*part) for part in parts if _has_magnitude(part[1])), default=0)
    nulls = array.null_count
    if nulls == len(array):
        return 0
    dtype = np.dtype(np.uint64 if pt.is_uint64(kind) else np.int64)
    values = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * 8)
    if nulls:
        values = values[np.asarray(array.is_valid())]
    largest = max(abs(int(values.min())), abs(int(values.max())))
    if whole:
        return LARGEST if largest > EXACT_FLOAT else 0
    own = _UNITS.index(kind.unit)
    return next(unit for unit in range(own + 1) if unit == own or largest * 1000 ** (own - unit) < 1 << 63)


def _parts(array: pa.Array) -> list[pa.Array]:
    """The child values of an array in the plain layout: those of structs, lists and maps that are not null."""
    if pt.is_struct(array.type):
        return list(array.flatten())
    return [array.keys, array.items] if pt.is_map(array.type) else [array.flatten()]


# ------------------------------------------------------------ types


def common_type(one: Known, other: Known) -> pa.DataType | None:
    """The type that holds every value of both columns exactly; None if there is none.

    Values of different kinds, such as numbers and text, are read as text, or as bytes if either column has bytes.
    """
    left, right = one[0], other[0]
    if left == right or pt.is_null(right):
        return left
    if pt.is_null(left):
        return right
    if is_numeric(left) and is_numeric(right):
        return _number(one, other)
    if is_binary(left) or is_binary(right):
        return pa.large_binary() if pa.large_binary() in (left, right) else pa.binary()
    if pt.is_duration(left) and pt.is_duration(right):
        return _time(one, other)
    if pt.is_timestamp(left) and pt.is_timestamp(right) and left.tz == right.tz:
        return _time(one, other)
    if pt.is_date(left) and pt.is_date(right):
        return pa.date64()
    if pt.is_time(left) and pt.is_time(right):
        unit = _UNITS[min(_UNITS.index(left.unit), _UNITS.index(right.unit))]
        return pa.time64(unit) if unit in ("us", "ns") else pa.time32(unit)
    if pt.is_nested(left) and pt.is_nested(right):
        return _nested(one, other) or pa.string()
    return pa.large_string() if pa.large_string() in (left, right) else pa.string()


def takes(kind: pa.DataType, given: Known) -> bool:
    """Whether a column of type `kind` can hold every value of a column without changing its kind."""
    if given[0] == kind or pt.is_null(given[0]):
        return True
    if _is_text(kind) or is_binary(kind):
        same = _is_text(given[0]) or (is_binary(kind) and is_binary(given[0]))
        return same and bool(common_type((kind, 0), given) == kind)
    return bool(common_type((kind, 0), given) == kind)


def in_common_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column cast to the common type of several columns: exactly, or as text if they are of several kinds."""
    return plain_array(column, kind) if takes(kind, (column.type, 0)) else as_text(column).cast(kind)


def rounds_nothing(kind: pa.DataType, given: pa.DataType) -> bool:
    """Whether `plain_array` rejects each value of type `given` that type `kind` cannot hold exactly."""
    given = normalise_type(given)
    return bool(given == kind or not (pt.is_floating(kind) or pt.is_nested(kind)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _number(one: Known, other: Known) -> pa.DataType | None:
    left, right = one[0], other[0]
    floats = [kind for kind in (left, right) if pt.is_floating(kind)]
    if len(floats) == 2:
        return max(floats, key=lambda kind: kind.bit_width)
    whole = next(((kind, far) for kind, far in (one, other) if pt.is_integer(kind)), None)
    if floats:  # a float does not hold every digit of a decimal
        return None if whole is None or whole[1] else pa.float64()
    if pt.is_integer(left) and pt.is_integer(right):
        return _whole(left, right)
    return _decimal(*(kind if pt.is_decimal(kind) else pa.decimal128(_digits(kind), 0) for kind in (left, right)))


def _digits(kind: pa.DataType) -> int:
    """Digits of the largest number of an integer type."""
    return len(str((1 << kind.bit_width) - 1)) if pt.is_unsigned_integer(kind) else len(str(1 << kind.bit_width - 1))


def _whole(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    wide = max(left.bit_width, right.bit_width)
    if pt.is_signed_integer(left) == pt.is_signed_integer(right):
        return left if left.bit_width == wide else right
    signed, unsigned = (left, right) if pt.is_signed_integer(left) else (right, left)
    if signed.bit_width > unsigned.bit_width:
        return signed
    return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}.get(unsigned.bit_width, pa.decimal128(20, 0))


def _decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale) + scale
    if digits > _MAX_DECIMAL_DIGITS:
        return None
    small = digits <= 38 and pt.is_decimal128(left) and pt.is_decimal128(right)
    return (pa.decimal128 if small else pa.decimal256)(digits, scale)


def _time(one: Known, other: Known) -> pa.DataType | None:
    finest = min(_UNITS.index(kind.unit) for kind, _ in (one, other))
    if any(_UNITS.index(kind.unit) != finest and far > finest for kind, far in (one, other)):
        return None
    return next(kind for kind, _ in (one, other) if _UNITS.index(kind.unit) == finest)


def _nested(one: Known, other: Known) -> pa.DataType | None:
    """The common type of two nested types; None if their parts have no common type, or only one of another kind."""
    (left, left_far), (right, right_far) = one, other

    def field(mine: pa.Field, its: pa.Field) -> pa.Field | None:
        both = common_type((mine.type, left_far), (its.type, right_far))
        if both is None or not (takes(both, (mine.type, left_far)) and takes(both, (its.type, right_far))):
            return None
        return pa.field(mine.name, both, mine.nullable or its.nullable)

    if pt.is_struct(left) and pt.is_struct(right):
        names = [kind.field(place).name for kind in (left, right) for place in range(kind.num_fields)]
        if len(set(names)) < len(names) - sum(left.get_field_index(field.name) >= 0 for field in right):
            return None  # two fields have the same name
        fields = []
        for name in dict.fromkeys(names):
            a, b = left.get_field_index(name), right.get_field_index(name)
            if a >= 0 and b >= 0:
                made = field(left.field(a), right.field(b))
            else:
                made = (left.field(a) if a >= 0 else right.field(b)).with_nullable(True)
            if made is None:
                return None
            fields.append(made)
        return pa.struct(fields)
    if pt.is_map(left) and pt.is_map(right):
        item = field(left.item_field, right.item_field)
        if left.key_type != right.key_type or item is None:
            return None
        return pa.map_(left.key_type, item, keys_sorted=left.keys_sorted and right.keys_sorted)
    if any(pt.is_map(kind) or pt.is_struct(kind) for kind in (left, right)):
        return None
    element = field(left.value_field, right.value_field)
    if element is None:
        return None
    if pt.is_fixed_size_list(left) and pt.is_fixed_size_list(right) and left.list_size == right.list_size:
        return pa.list_(element, left.list_size)
    large = pt.is_large_list(left) or pt.is_large_list(right)
    return pa.large_list(element) if large else pa.list_(element)
