"""The same values in any valid Arrow layout, and arrays as exact values. Shares no code with the product."""

from __future__ import annotations

import datetime as dt
import json
from base64 import b64decode
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from hypothesis import strategies as st

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


# ------------------------------------------------------------ layouts


def laid_out(draw: st.DrawFn, array: pa.Array, depth: int = 0) -> pa.Array:
    """The values of an array in plain layout, in any layout that Arrow considers valid."""
    kind = array.type
    if pt.is_map(kind):
        keys, items = laid_out_plain(draw, array.keys), laid_out(draw, array.items, depth + 1)
        field = pa.field(kind.item_field.name, items.type, kind.item_field.nullable)
        made = pa.map_(kind.key_type, field, keys_sorted=kind.keys_sorted)
        entries = pa.Array.from_buffers(
            pa.struct([made.key_field, made.item_field]), len(keys), [None], children=[keys, items]
        )
        array = pa.Array.from_buffers(made, len(array), array.buffers()[:2], children=[entries])
    elif pt.is_struct(kind):
        children = [laid_out(draw, array.field(place), depth + 1) for place in range(kind.num_fields)]
        fields = [pa.field(f.name, c.type, f.nullable) for f, c in zip(kind, children, strict=True)]
        array = pa.Array.from_buffers(pa.struct(fields), len(array), [array.buffers()[0]], children=children)
    elif pt.is_fixed_size_list(kind):
        child = laid_out(draw, array.values, depth + 1)
        field = pa.field(kind.value_field.name, child.type, kind.value_field.nullable)
        made = pa.list_(field, kind.list_size)
        array = pa.Array.from_buffers(made, len(array), [array.buffers()[0]], children=[child])
    elif pt.is_list(kind) or pt.is_large_list(kind):
        array = _lists(draw, array, depth)
    else:
        array = _flat(draw, array)
    return _sliced(draw, array)


def laid_out_plain(draw: st.DrawFn, array: pa.Array) -> pa.Array:
    """The keys of a map, which have only one layout."""
    return _sliced(draw, array)


def _sliced(draw: st.DrawFn, array: pa.Array) -> pa.Array:
    """The array, sometimes as a slice of a longer one."""
    if not len(array) or not draw(st.booleans()):
        return array
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    parts = [*[array.slice(0, 1)] * before, array, *[array.slice(len(array) - 1)] * after]
    try:
        longer = pa.concat_arrays(parts)  # `take` of Arrow 26 misreads fixed-size lists of a slice of such lists
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return array
    longer.validate(full=True)
    return longer.slice(before, len(array))


def _lists(draw: st.DrawFn, array: pa.Array, depth: int) -> pa.Array:
    kind = array.type
    child = laid_out(draw, array.values, depth + 1)
    field = pa.field(kind.value_field.name, child.type, kind.value_field.nullable)
    large = pt.is_large_list(kind)
    if draw(st.integers(0, 2)):
        made = pa.large_list(field) if large else pa.list_(field)
        return pa.Array.from_buffers(made, len(array), array.buffers()[:2], children=[child])
    wide = np.int64 if large else np.int32
    offsets = np.asarray(array.offsets).astype(wide)
    starts, sizes = offsets[:-1].copy(), np.diff(offsets).astype(wide)
    bits = None if not array.null_count else pa.array(np.asarray(array.is_valid())).buffers()[1]
    made = pa.large_list_view(field) if large else pa.list_view(field)
    buffers = [bits, pa.py_buffer(starts), pa.py_buffer(sizes)]
    return pa.Array.from_buffers(made, len(array), buffers, children=[child])


def _flat(draw: st.DrawFn, array: pa.Array) -> pa.Array:
    kind = array.type
    how = draw(st.sampled_from(["", "", "dictionary", "runs", "view"]))
    try:
        if how == "dictionary":
            encoded = pc.dictionary_encode(array)
            indices = encoded.indices.cast(draw(st.sampled_from([pa.int8(), pa.uint16(), pa.int64()])))
            return pa.DictionaryArray.from_arrays(indices, encoded.dictionary)
        if how == "runs" and not pt.is_null(kind):
            return pc.run_end_encode(array, run_end_type=draw(st.sampled_from([pa.int16(), pa.int64()])))
        if how == "view" and (pt.is_string(kind) or pt.is_binary(kind)):
            return array.cast(pa.string_view() if pt.is_string(kind) else pa.binary_view())
    except pa.ArrowException:  # Arrow has no such layout of this type
        return array
    return array


# ------------------------------------------------------------ exact values


def exact(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values as (kind, value): numbers as fractions, times as whole nanoseconds, nested values as tuples of pairs."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in exact(chunk)]
    kind = array.type
    valid = array.is_valid().to_pylist()
    return [value if there else None for value, there in zip(_values(array, kind), valid, strict=True)]


def _values(array: pa.Array, kind: pa.DataType) -> list[Any]:
    if pt.is_null(kind):
        return [None] * len(array)
    if pt.is_map(kind) or pt.is_list(kind) or pt.is_large_list(kind):
        offsets = np.asarray(array.offsets).tolist()
        if pt.is_map(kind):
            pairs = list(zip(exact(array.keys), exact(array.items), strict=True))
            return [("map", tuple(pairs[a:b])) for a, b in pairwise(offsets)]
        values = exact(array.values)
        return [("list", tuple(values[a:b])) for a, b in pairwise(offsets)]
    if pt.is_fixed_size_list(kind):
        values, width = exact(array.values), kind.list_size
        return [
            ("list", tuple(values[(array.offset + row) * width : (array.offset + row + 1) * width]))
            for row in range(len(array))
        ]
    if pt.is_struct(kind):
        names = [field.name for field in kind]
        children = [exact(array.field(place)) for place in range(len(names))]
        return [
            ("struct", tuple((name, child[row]) for name, child in zip(names, children, strict=True)))
            for row in range(len(array))
        ]
    if kind == pa.month_day_nano_interval():
        return [("interval", tuple(value) if value is not None else None) for value in array.to_pylist()]
    if pt.is_temporal(kind):
        raw = array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
        return [None if value is None else _time(value, kind) for value in raw]
    return [None if value is None else _single(value) for value in array.to_pylist()]


def _time(raw: int, kind: pa.DataType) -> tuple[str, Any]:
    if pt.is_date(kind):
        return "date", Fraction(raw, 1 if pt.is_date32(kind) else 86_400_000)
    nanos = raw * (10**9 // PER_SECOND[kind.unit])
    if pt.is_timestamp(kind):
        return f"timestamp {kind.tz}", nanos
    return "time" if pt.is_time(kind) else "duration", nanos


def _single(value: Any) -> tuple[str, Any]:
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int | Decimal):
        return "number", Fraction(value)
    if isinstance(value, float):
        return "number", Fraction(value) if np.isfinite(value) else str(value)
    return ("text", value) if isinstance(value, str) else ("bytes", value)


def same(given: Any, read: Any) -> bool:
    """Whether the read value equals the given one, or is its text if the column has values of other kinds."""
    if given is None or read is None:
        return given is None and read is None
    kind, value = given
    if kind == read[0]:
        if kind in ("list", "map"):
            pairs = zip(value, read[1], strict=False)
            nested = (
                all(same(a, b) for a, b in pairs)
                if kind == "list"
                else all(same(a, b) and same(c, d) for (a, c), (b, d) in pairs)
            )
            return len(value) == len(read[1]) and nested
        if kind == "struct":
            found = dict(read[1])
            return all(same(item, found.pop(name, None)) for name, item in value) and not any(
                item is not None for item in found.values()
            )
        return bool(value == read[1])
    if read[0] == "bytes":
        try:
            return (kind == "text" and value.encode() == read[1]) or same(given, ("text", read[1].decode()))
        except UnicodeDecodeError:
            return False
    return read[0] == "text" and _same_text(given, read[1])


def _same_text(given: Any, text: str) -> bool:
    kind, value = given
    if kind == "text":
        return bool(value == text)
    if kind == "bytes":
        return text == _decoded(value) or (
            text.startswith('{"base64"') and b64decode(json.loads(text)["base64"]) == value
        )
    if kind == "bool":
        return text == ("true" if value else "false")
    if kind == "number":
        if isinstance(value, str):
            return text == value
        with np.errstate(over="ignore"):
            floats = [float(width(text)) for width in (np.float64, np.float32, np.float16)]
        return value in [Fraction(text), *map(Fraction, filter(np.isfinite, floats))]
    if kind.startswith(("date", "time")) and text.lstrip("-").isdigit():  # outside the calendar: a number
        return any(value == int(text) * unit for unit in (1, *(10**9 // each for each in PER_SECOND.values())))
    if kind == "date":
        return Fraction(int(np.datetime64(text, "D").astype(np.int64))) == value
    if kind.startswith("timestamp"):
        return _nanos(text.removesuffix("Z")) == value
    if kind == "time":
        return _nanos(f"1970-01-01T{text}") == value
    if kind == "duration":
        return text.lstrip("-").isdigit()  # in the unit of its column
    if kind == "interval":
        return bool(text)
    return same_json(given, json.loads(text, parse_float=Decimal))


def same_json(given: Any, found: Any) -> bool:
    """Whether a JSON value, with numbers as `Decimal`, equals the given one; NaN and infinities are null."""
    if given is None or found is None:
        return (given is None and found is None) or (given is not None and given[1] in ("nan", "inf", "-inf"))
    kind, value = given
    if kind == "list":
        return len(value) == len(found) and all(same_json(a, b) for a, b in zip(value, found, strict=True))
    if kind == "struct":
        # members that only other rows of the column have are null, as in a struct
        others = set(found) - {name for name, _ in value}
        return all(same_json(item, found.get(name)) for name, item in value) and all(found[x] is None for x in others)
    if kind == "map":
        return isinstance(found, dict) and len(found) <= len(value)
    if isinstance(found, dict):
        return kind == "bytes" and b64decode(found["base64"]) == value
    if isinstance(found, str):
        return _same_text(given, found)
    return _same_text(given, str(found).lower() if isinstance(found, bool) else str(found))


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _nanos(text: str) -> int:
    whole, _, fraction = text.partition(".")
    sign = -1 if whole.startswith("-") else 1
    year, rest = whole.lstrip("-+").split("-", 1)
    # a cycle of 400 years has 146,097 days
    cycles, within = divmod(sign * int(year), 400)
    moment = dt.datetime.fromisoformat(f"{within + 2000:04}-{rest}")
    seconds = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1)
    return (seconds + (cycles - 5) * 146_097 * 86_400) * 10**9 + int((fraction + "0" * 9)[:9] or 0)
