"""Columns in JSON: type names are Arrow's or common ones; others are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aggregator import InvalidRequestError
from aggregator.server.bodies.shared.columns import describe_columns, read_columns

TYPES = [
    ("string", pa.string()), ("text", pa.string()), ("utf8", pa.string()), ("bytes", pa.binary()),
    ("binary", pa.binary()), ("bool", pa.bool_()), ("boolean", pa.bool_()), ("int64", pa.int64()),
    ("integer", pa.int64()), ("uint8", pa.uint8()), ("float64", pa.float64()), ("double", pa.float64()),
    ("number", pa.float64()), ("date", pa.date32()), ("date32[day]", pa.date32()), ("time64[us]", pa.time64("us")),
    ("duration[ms]", pa.duration("ms")), ("timestamp", pa.timestamp("us", "UTC")),
    ("timestamp[ns]", pa.timestamp("ns")), ("timestamp[ms, tz=Asia/Tokyo]", pa.timestamp("ms", "Asia/Tokyo")),
    ("timestamp[s, tz=+02:00]", pa.timestamp("s", "+02:00")), ("decimal128(10, 2)", pa.decimal128(10, 2)),
    ("decimal128(5,0)", pa.decimal128(5, 0)), ("list<int64>", pa.list_(pa.int64())),
    ("list<item: list<string>>", pa.list_(pa.list_(pa.string()))), (" int64 ", pa.int64()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), TYPES)
def test_types(name, kind):
    """A name is read as its type, and the type's own name is read back as the same type."""
    schema = read_columns({"c": name})
    assert schema == pa.schema([("c", kind)])
    assert read_columns(describe_columns(schema)) == schema


def test_order_and_keys():
    """Columns keep their order; a topic's key columns are not listed."""
    assert read_columns({"b": "int64", "a": "string"}).names == ["b", "a"]
    assert read_columns(None) is read_columns({}) is None
    assert describe_columns(pa.schema([("space", pa.string()), ("n", pa.int64())])) == {"n": "int64"}


WRONG = [
    [], "int64", 5, {"c": "nothing"}, {"c": None}, {"c": {"type": "int64"}}, {"c": "null"}, {"c": "decimal128(99, 2)"},
    {"c": "list<>"}, {"c": "list<null>"}, {"c": "list<" * 90}, {"c": "timestamp[m]"}, {"c": "int64" * 100},
    {"timestamp": "int64"}, {str(n): "int64" for n in range(1001)},
]  # fmt: skip


@pytest.mark.parametrize("given", WRONG, ids=[str(given)[:30] for given in WRONG])
def test_wrong(given):
    """Invalid columns are refused with one kind of error."""
    with pytest.raises(InvalidRequestError, match="schema"):
        read_columns(given)
