"""Arrow types and arrays of every kind that a segment can store, including extreme values of each type."""

from __future__ import annotations

import decimal
import struct
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import strategies as st

PLAIN_TYPES = [
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.binary(), pa.string(),
    pa.large_binary(), pa.large_string(), pa.month_day_nano_interval(),
    pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Stockholm"), pa.timestamp("ns"),
    pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.duration("ns"),
    pa.decimal128(5, 2), pa.decimal128(38, 0), pa.decimal256(76, 10), pa.binary(1), pa.binary(16),
]  # fmt: skip
"""One of each plain type, and both kinds where they have parameters."""

NESTED_TYPES = [
    pa.list_(pa.int64()),
    pa.large_list(pa.string()),
    pa.list_(pa.field("item", pa.float32(), nullable=False), 3),
    pa.list_(pa.string(), 0),
    pa.struct([pa.field("x", pa.int16()), pa.field("y", pa.string(), nullable=False)]),
    pa.struct([]),
    pa.map_(pa.string(), pa.int32()),
    pa.map_(pa.int8(), pa.list_(pa.bool_())),
    pa.list_(pa.struct([pa.field("a", pa.decimal128(9, 3)), pa.field("b", pa.list_(pa.date32()))])),
    pa.list_(pa.list_(pa.map_(pa.string(), pa.struct([pa.field("z", pa.binary(2))])), 2)),
    pa.struct([pa.field("n", pa.null()), pa.field("m", pa.month_day_nano_interval()), pa.field("t", pa.time64("ns"))]),
]


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> pa.DataType:
    """Any type that a segment can store."""
    nesting = draw(st.sampled_from(["", "", "list", "large list", "fixed list", "struct", "map"])) if depth else ""
    if not nesting:
        return draw(st.sampled_from(PLAIN_TYPES))
    if nesting == "struct":
        names = draw(st.lists(st.text(max_size=3), max_size=3, unique=True))
        return pa.struct([_field(draw, name, depth) for name in names])
    if nesting == "map":
        key = draw(st.sampled_from([pa.string(), pa.int8(), pa.binary(1)]))
        return pa.map_(key, draw(types(depth - 1)), draw(st.booleans()))
    field = _field(draw, "item", depth)
    if nesting == "fixed list":
        return pa.list_(field, draw(st.integers(0, 3)))
    return pa.list_(field) if nesting == "list" else pa.large_list(field)


def _field(draw: st.DrawFn, name: str, depth: int) -> pa.Field:
    kind = draw(types(depth - 1))
    return pa.field(name, kind, nullable=pt.is_null(kind) or draw(st.booleans()))


def _int(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


def _float(code: str, width: int) -> st.SearchStrategy[float]:
    """Floats of a width, without NaN, which is not equal to itself."""
    return st.floats(width=width, allow_nan=False).map(lambda x: struct.unpack(code, struct.pack(code, x))[0])


def _decimals(kind: pa.DataType) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**kind.precision - 1
    return st.integers(-most, most).map(lambda n: decimal.Decimal(n).scaleb(-kind.scale, decimal.Context(prec=80)))


def _day_length(kind: pa.DataType) -> int:
    return 86400 * {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[kind.unit]


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, never None at the top level. Those of temporal types are integers: see `make_array`."""
    if pt.is_null(kind):
        return st.none()
    if pt.is_boolean(kind):
        return st.booleans()
    if pt.is_integer(kind):
        return _int(kind.bit_width, signed=pt.is_signed_integer(kind))
    if pt.is_floating(kind):
        return {16: _float("<e", 16), 32: _float("<f", 32), 64: _float("<d", 64)}[kind.bit_width]
    if pt.is_time(kind):
        return st.integers(0, _day_length(kind) - 1)
    if pt.is_date64(kind):
        return st.integers(-(10**6), 10**6).map(lambda day: day * 86_400_000)
    if kind == pa.month_day_nano_interval():
        return st.tuples(_int(32), _int(32), _int(64)).map(pa.MonthDayNano)
    if pt.is_temporal(kind):
        return _int(kind.bit_width)
    if pt.is_decimal(kind):
        return _decimals(kind)
    if pt.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return st.binary(max_size=9)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return st.text(max_size=5)
    return _nested_values(kind)


def _nested_values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    def of(field: pa.Field) -> st.SearchStrategy[Any]:
        return st.none() | values(field.type) if field.nullable else values(field.type)

    if pt.is_map(kind):
        return st.lists(st.tuples(values(kind.key_type), of(kind.item_field)), max_size=3)
    if pt.is_fixed_size_list(kind):
        return st.lists(of(kind.value_field), min_size=kind.list_size, max_size=kind.list_size)
    if pt.is_struct(kind):
        return st.fixed_dictionaries({f.name: of(f) for f in (kind.field(i) for i in range(kind.num_fields))})
    return st.lists(of(kind.value_field), max_size=3)


def make_array(items: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of values from `values`: temporal ones are integers, also beyond `datetime`."""
    if pt.is_temporal(kind) and kind != pa.month_day_nano_interval():
        return pa.array(items, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    if pt.is_map(kind):
        pairs = [pair for item in items if item is not None for pair in item]
        keys = make_array([key for key, _ in pairs], kind.key_type)
        entries = make_array([value for _, value in pairs], kind.item_type)
        return pa.MapArray.from_arrays(_offsets(items, pa.int32()), keys, entries, kind)
    if pt.is_fixed_size_list(kind):
        filler = [None if kind.value_field.nullable else _zero(kind.value_type)] * kind.list_size
        flat = make_array([e for item in items for e in (filler if item is None else item)], kind.value_type)
        return pa.Array.from_buffers(kind, len(items), [_bitmap(items)], children=[flat])
    if pt.is_list(kind) or pt.is_large_list(kind):
        flat = make_array([e for item in items if item is not None for e in item], kind.value_type)
        offsets = _offsets(items, pa.int64() if pt.is_large_list(kind) else pa.int32())
        return type_of_list(kind).from_arrays(offsets, flat, kind)
    if pt.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        children = [
            make_array([(None if f.nullable else _zero(f.type)) if i is None else i[f.name] for i in items], f.type)
            for f in fields
        ]
        return pa.Array.from_buffers(kind, len(items), [_bitmap(items)], children=children)
    return pa.array(items, kind)


def type_of_list(kind: pa.DataType) -> type:
    """The array class of a list type."""
    return pa.LargeListArray if pt.is_large_list(kind) else pa.ListArray


def _zero(kind: pa.DataType) -> Any:
    """Some value of a type, to be stored beneath a null of its parent."""
    if pt.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return {f.name: None if f.nullable else _zero(f.type) for f in fields}
    if pt.is_map(kind) or pt.is_list(kind) or pt.is_large_list(kind):
        return []
    if pt.is_fixed_size_list(kind):
        return [None if kind.value_field.nullable else _zero(kind.value_type)] * kind.list_size
    if pt.is_fixed_size_binary(kind) and not pt.is_decimal(kind):
        return bytes(kind.byte_width)
    if pt.is_string(kind) or pt.is_large_string(kind):
        return ""
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return b""
    if pt.is_null(kind):
        return None
    if pt.is_boolean(kind):
        return False
    if pt.is_decimal(kind):
        return decimal.Decimal(0)
    return pa.MonthDayNano((0, 0, 0)) if kind == pa.month_day_nano_interval() else 0


def _offsets(items: list[Any], kind: pa.DataType) -> pa.Array:
    """The offset of each list; a null offset makes the list null."""
    edges, at = [], 0
    for item in items:
        edges.append(None if item is None else at)
        at += len(item or [])
    return pa.array([*edges, at], kind)


def _bitmap(items: list[Any]) -> pa.Buffer | None:
    if None not in items:
        return None
    return pa.array([item is not None for item in items]).buffers()[1]


@st.composite
def array_of(draw: st.DrawFn, kind: pa.DataType, max_size: int = 12) -> pa.Array:
    """Arrays of a type, with and without nulls; some are slices of longer ones, as is common in Arrow."""
    item = values(kind)
    if draw(st.booleans()):
        item = st.none() | item
    array = make_array(draw(st.lists(item, max_size=max_size)), kind)
    if draw(st.booleans()):
        first = draw(st.integers(0, 4))
        array = array.slice(first, max(0, len(array) - first - draw(st.integers(0, 3))))
    return array
