"""Column types: guess the type of text, join the types of two batches, convert a column to a type.

A text column becomes numbers only if that loses no information: "007" and "+46 70" stay text.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.convert.arrays import Mask
from esformat.convert.typed_text import leaf, rounded
from esformat.format import json_text
from esformat.write.plain_array import plain_column

_INTEGER = r"^(?:0|-?[1-9][0-9]{0,18})$"
_NUMBER = r"^(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|nan|-?inf|-?Infinity)$"
_LONG_INTEGER = r"^-?[0-9]{16,}$"  # float64 represents every integer of 15 digits
_BOOLEAN = r"^(?:true|false|True|False|TRUE|FALSE)$"


def text_type(column: pa.Array) -> pa.DataType:
    """Guess the type of a string or binary column by its values: int64, float64, bool or string; null if none."""
    values = column.drop_null()
    if not len(values):
        return pa.null()
    for pattern, type_ in ((_INTEGER, pa.int64()), (_NUMBER, pa.float64()), (_BOOLEAN, pa.bool_())):
        # the first value rules out most candidates cheaply
        if _all_match(values[:1], pattern) and _all_match(values, pattern) and _fits(values, type_):
            return type_
    return pa.string()


def _all_match(values: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())


def _fits(values: pa.Array, type_: pa.DataType) -> bool:
    if type_ == pa.float64():
        if pc.any(pc.match_substring_regex(values, _LONG_INTEGER)).as_py():
            return False
        text = values.cast(pa.string())
        numbers = _cast(text, type_)
        return numbers is not None and rounded(text, numbers) is None
    return type_ != pa.int64() or _cast(values.cast(pa.string()), type_) is not None


def join(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Return the narrowest type for the values of both types; if there is no other, binary if one is, else string."""
    a, b = plain(a), plain(b)
    if a == b:
        return a
    if pa.types.is_decimal(a) or pa.types.is_decimal(b):  # else Arrow counts one digit too few
        a, b = _as_decimal(a), _as_decimal(b)
    fields = [pa.schema([("column", type_)]) for type_ in (a, b)]
    try:
        joined = pa.unify_schemas(fields, promote_options="permissive").field("column").type
        if not _rounds(a, joined) and not _rounds(b, joined):
            return joined
    except pa.ArrowException:
        pass
    return pa.binary() if pa.binary() in (a, b) else pa.string()


def _as_decimal(type_: pa.DataType) -> pa.DataType:
    """The decimal type for the values of an integer type; other types unchanged."""
    if not pa.types.is_integer(type_):
        return type_
    signed = pa.types.is_signed_integer(type_)
    return pa.decimal128(len(str(2 ** (type_.bit_width - signed))), 0)


def _rounds(type_: pa.DataType, joined: pa.DataType) -> bool:
    """Whether decimals of `type_`, or in its parts, would become floats, which do not keep all of their digits."""
    if type_ == joined:  # two fields may have the same name
        return False
    if pa.types.is_decimal(type_):
        return bool(pa.types.is_floating(joined))
    parts = [type_.field(place) for place in range(type_.num_fields)]
    if pa.types.is_struct(type_):
        return any(_rounds(part.type, joined.field(part.name).type) for part in parts)
    return any(_rounds(part.type, joined.field(place).type) for place, part in enumerate(parts))


def plain(type_: pa.DataType) -> pa.DataType:
    """Return the type without dictionaries, views, run ends, extensions and 64-bit offsets, at the top level."""
    if isinstance(type_, pa.BaseExtensionType):
        return plain(type_.storage_type)
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return plain(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_) or pa.types.is_fixed_size_binary(type_):
        return pa.binary()
    return type_


def convert(column: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Convert `column` to `type_`. Values that do not fit become null; the mask marks them, and is None if all fit."""
    column = _plain_values(column)
    if column.type == type_:
        return column, None
    if pa.types.is_binary(type_):
        text, unfit = convert(column, pa.string())
        return text.cast(type_), unfit
    if pa.types.is_string(type_) and not pa.types.is_binary(column.type):
        return json_text.as_text(column), None
    if pa.types.is_binary(column.type) and not pa.types.is_string(type_):
        text, invalid = convert(column, pa.string())
        converted, unfit = convert(text, type_)
        return converted, _either(invalid, unfit)
    cast = _cast(column, type_)
    converted, unfit = (cast, None) if cast is not None else _convert_each(column, type_)
    changed = rounded(column, converted) if pa.types.is_floating(type_) and pa.types.is_string(column.type) else None
    if changed is not None:
        converted = pc.if_else(pa.array(changed), pa.scalar(None, type_), converted)
    return converted, _either(unfit, changed)


def keeps_kind(column: pa.Array, type_: pa.DataType) -> bool:
    """Whether converting the column to `type_` turns no boolean into a number and no number into a boolean."""
    if pa.types.is_boolean(type_) and pa.types.is_string(column.type):
        return bool(pa.types.is_boolean(text_type(column))) or column.null_count == len(column)
    return _same_truth(plain(column.type), plain(type_))


def _same_truth(a: pa.DataType, b: pa.DataType) -> bool:
    if _is_text(a) or _is_text(b) or pa.types.is_null(a) or pa.types.is_null(b):
        return True
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return all(_same_truth(a.field(f.name).type, f.type) for f in b if a.get_field_index(f.name) >= 0)
    if pa.types.is_nested(a) and pa.types.is_nested(b):
        pairs = zip((a.field(i) for i in range(a.num_fields)), (b.field(i) for i in range(b.num_fields)), strict=False)
        return all(_same_truth(mine.type, its.type) for mine, its in pairs)
    return bool(pa.types.is_boolean(a) == pa.types.is_boolean(b))


def keeps_values(column: pa.Array, converted: pa.Array) -> bool:
    """Whether converting back restores the column: 0.5 as a float is restored, 2⁵³ + 1 is not. Always true for text."""
    given, made = column.type, converted.type
    if given == made or pa.types.is_null(given) or _is_text(plain(given)) or _is_text(plain(made)):
        return True
    back, unfit = convert(converted, plain(given))
    return (unfit is None or not unfit.any()) and bool(back.equals(_plain_values(column)))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def nesting(type_: pa.DataType) -> int:
    """Count the nesting levels of `type_`: 0 for numbers and text, plus one for each enclosing list, map and struct."""
    children = [type_.field(place).type for place in range(type_.num_fields)]
    return 1 + max(map(nesting, children)) if children else 0


def _plain_values(column: pa.Array) -> pa.Array:
    kind = plain(column.type)
    return column if column.type == kind else plain_column(column, kind)


def _either(one: Mask | None, other: Mask | None) -> Mask | None:
    return one if other is None else other if one is None else one | other


def _cast(column: pa.Array, type_: pa.DataType) -> pa.Array | None:
    try:
        if pa.types.is_string(column.type) and (pa.types.is_time(type_) or pa.types.is_duration(type_)):
            return leaf(column, type_)
        return plain_column(column, type_)
    except pa.ArrowException:
        return None


def _convert_each(column: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Mask]:
    """Convert a column with some values that do not fit: halve it until each bad value is alone."""
    bad = np.zeros(len(column), dtype=np.bool_)
    pieces: list[pa.Array] = []
    ranges = [(0, len(column))]
    while ranges:
        start, end = ranges.pop()
        piece = _cast(column.slice(start, end - start), type_)
        if piece is not None:
            pieces.append(piece)
        elif end - start == 1:
            bad[start] = True
            pieces.append(pa.nulls(1, type_))
        else:
            middle = (start + end) // 2
            ranges += [(middle, end), (start, middle)]
    return pa.concat_arrays(pieces), bad
