"""The columns of a segment: types as JSON, normalised types, and refused ones."""

# ruff: noqa: E501 - tables read better in one line per case

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from arrow_strategies import NESTED_TYPES, PLAIN_TYPES, types
from effort import examples
from hypothesis import given

from esformat.errors import CorruptSegmentError, InvalidEventError, UsageError
from esformat.format.schema import (
    EventSchema,
    Field,
    default_schema,
    make_schema,
    normalise_type,
    type_from_json,
    type_to_json,
)

JSON_TYPES = [
    (pa.int8(), "int8"),
    (pa.bool_(), "bool"),
    (pa.large_string(), "large_string"),
    (pa.month_day_nano_interval(), "month_day_nano_interval"),
    (pa.timestamp("ms"), {"timestamp": "ms", "zone": None}),
    (pa.timestamp("ns", "Europe/Stockholm"), {"timestamp": "ns", "zone": "Europe/Stockholm"}),
    (pa.time32("s"), {"time": "s"}),
    (pa.time64("ns"), {"time": "ns"}),
    (pa.duration("us"), {"duration": "us"}),
    (pa.decimal128(9, -2), {"decimal": [9, -2], "bits": 128}),
    (pa.decimal256(76, 76), {"decimal": [76, 76], "bits": 256}),
    (pa.binary(16), {"fixed_size_binary": 16}),
    (pa.list_(pa.field("x", pa.int8(), nullable=False)), {"list": {"name": "x", "type": "int8", "nullable": False}}),
    (pa.large_list(pa.int8()), {"large_list": {"name": "item", "type": "int8", "nullable": True}}),
    (pa.list_(pa.int8(), 3), {"fixed_size_list": {"name": "item", "type": "int8", "nullable": True}, "size": 3}),
    (pa.struct([pa.field("a", pa.string())]), {"struct": [{"name": "a", "type": "string", "nullable": True}]}),
    (pa.map_(pa.string(), pa.int8()), {"map": ["string", {"name": "value", "type": "int8", "nullable": True}], "sorted": False}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stored"), JSON_TYPES, ids=str)
def test_types_as_json(kind, stored):
    """Each type has its JSON form, and is read back from it."""
    assert type_to_json(kind) == stored
    assert type_from_json(json.loads(json.dumps(stored))) == kind


@pytest.mark.parametrize("kind", PLAIN_TYPES + NESTED_TYPES, ids=str)
def test_every_type_survives_json(kind):
    """Every type is read back from JSON, including its metadata."""
    assert type_from_json(json.loads(json.dumps(type_to_json(kind)))).equals(kind, check_metadata=True)


@examples(100)
@given(types(depth=3))
def test_any_nesting_survives_json(kind):
    """Names, nullability and order of children are preserved."""
    assert type_from_json(json.loads(json.dumps(type_to_json(kind)))).equals(kind)


@pytest.mark.parametrize(
    "stored",
    ["int7", 5, None, [], {}, {"list": "int8"}, {"timestamp": "minutes", "zone": None}, {"decimal": [99, 0], "bits": 128},
     {"decimal": [5, 0], "bits": 64}, {"fixed_size_binary": -1}, {"fixed_size_binary": 1 << 40}, {"fixed_size_binary": "3"},
     {"fixed_size_list": {"name": "i", "type": "int8", "nullable": True}, "size": -1}, {"map": ["string"], "sorted": True},
     {"struct": {"a": 1}}, {"decimal": [9, 10**10], "bits": 128}, {"decimal": ["9", 0], "bits": 128},
     {"decimal": [9], "bits": 128}, {"decimal": [9, 1.0], "bits": 128}, {"decimal": [9, True], "bits": 128},
     {"list": {"name": 5, "type": "int8", "nullable": True}}, {"list": {"name": "i", "type": "int8", "nullable": 1}},
     {"struct": [{"name": "a\0", "type": "int8", "nullable": True}]}, {"struct": [{"name": "\ud800", "type": "int8", "nullable": True}]},
     {"map": ["string", {"name": "value", "type": "int8", "nullable": True}], "sorted": 0}, {"timestamp": "s", "zone": 5}],
    ids=repr,
)  # fmt: skip
def test_types_that_no_writer_makes(stored):
    """A stored schema with such a type is refused as damage."""
    schema = {"keys": "text", "columns": [{"name": "a", "type": stored, "nullable": True, "indexed": False}]}
    with pytest.raises(CorruptSegmentError, match="stored schema breaks the format"):
        EventSchema.from_json(schema)


A = {"name": "a", "type": "int8", "nullable": True, "indexed": False}


@pytest.mark.parametrize(
    "columns",
    [
        [A | {"name": 5}],
        [A | {"name": "a\0"}],
        [A | {"name": "\ud800"}],
        [A | {"nullable": "yes"}],
        [A | {"indexed": 0}],
        [A | {"name": "space"}],
        [A | {"name": "b"}, A, A],
        [A | {"type": "float32", "indexed": True}],
        [A | {"type": "null", "nullable": False}],
        [A | {"name": str(i)} for i in range(4097)],
    ],
    ids=lambda columns: repr(columns)[:60],
)
def test_columns_that_no_writer_makes(columns):
    """Columns that no writer makes are refused as damage."""
    EventSchema.from_json({"keys": "text", "columns": [A]})
    with pytest.raises(CorruptSegmentError, match="stored schema breaks the format"):
        EventSchema.from_json({"keys": "text", "columns": columns})


def test_types_that_nest_too_deep():
    """Types nest at most 32 levels deep; a hostile file cannot exhaust the stack."""
    stored = "int8"
    for _ in range(32):
        stored = {"list": {"name": "item", "type": stored, "nullable": True}}
    assert type_to_json(type_from_json(stored)) == stored
    with pytest.raises(ValueError, match="too deep"):
        type_from_json({"list": {"name": "item", "type": stored, "nullable": True}})


def test_columns_that_nest_too_deep_are_not_written():
    """A type that no reader would accept is refused before it is written."""
    kind = pa.int8()
    for _ in range(33):
        kind = pa.list_(kind)
    with pytest.raises(InvalidEventError, match=r"'deep'.*nest deeper than 32"):
        make_schema(pa.schema([pa.field("deep", kind)]), [], binary_keys=False)


NORMALISED = [
    (pa.decimal32(5, 2), pa.decimal128(5, 2)),
    (pa.list_(pa.decimal64(12, -2)), pa.list_(pa.decimal128(12, -2))),
    (pa.dictionary(pa.int32(), pa.string()), pa.string()),
    (pa.dictionary(pa.int8(), pa.dictionary(pa.int8(), pa.int64())), pa.int64()),
    (pa.run_end_encoded(pa.int32(), pa.string()), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.binary_view(), pa.binary()),
    (pa.list_view(pa.string_view()), pa.list_(pa.string())),
    (pa.large_list_view(pa.int8()), pa.large_list(pa.int8())),
    (
        pa.struct([pa.field("a", pa.dictionary(pa.int8(), pa.string()), nullable=False)]),
        pa.struct([pa.field("a", pa.string(), nullable=False)]),
    ),
    (pa.map_(pa.string_view(), pa.binary_view()), pa.map_(pa.string(), pa.binary())),
    (pa.list_(pa.string_view(), 2), pa.list_(pa.string(), 2)),
    (pa.uuid(), pa.binary(16)),
    (pa.json_(), pa.string()),
]


@pytest.mark.parametrize(("given_type", "stored"), NORMALISED, ids=str)
def test_ways_of_lying_in_memory_become_plain_types(given_type, stored):
    """Dictionaries, run ends, views, extensions and short decimals become the plain types that are stored."""
    assert normalise_type(given_type) == stored


@pytest.mark.parametrize(
    "kind",
    [pa.sparse_union([pa.field("a", pa.int8())]), pa.list_(pa.dense_union([pa.field("a", pa.int8())])),
     pa.binary(1 << 24), pa.list_(pa.int8(), 1 << 24)],
    ids=str,
)  # fmt: skip
def test_types_that_cannot_be_stored(kind):
    """The error names the column and its type, and suggests a cast."""
    with pytest.raises(InvalidEventError, match=r"'odd'.*cannot be stored.*cast the column"):
        make_schema(pa.schema([pa.field("odd", kind)]), [], binary_keys=False)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.bool_(), pa.int8(), pa.uint64(), pa.dictionary(pa.int8(), pa.string())]
)
def test_types_that_can_be_indexed(kind):
    """Text, integers and booleans can be indexed."""
    schema = make_schema(pa.schema([pa.field("a", kind)]), ["a"], binary_keys=False)
    assert schema.indexes == ("a",)


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.binary(), pa.timestamp("us"), pa.list_(pa.int8()), pa.null(), pa.decimal128(5)]
)
def test_types_that_cannot_be_indexed(kind):
    """The error names the types that can be indexed."""
    with pytest.raises(InvalidEventError, match=r"'a' of type .* cannot be indexed; index string, integer or boolean"):
        make_schema(pa.schema([pa.field("a", kind)]), ["a"], binary_keys=False)


SCHEMA = pa.schema(
    [
        pa.field("space", pa.int8()),
        pa.field("b", pa.string()),
        pa.field("timestamp", pa.null()),
        pa.field("a", pa.int8(), nullable=False),
    ]
)


def test_key_columns_are_no_payload():
    """A table's key columns are not payload; the others keep their order and nullability."""
    schema = make_schema(SCHEMA, ["a"], binary_keys=True)
    assert schema.fields == (Field("b", pa.string()), Field("a", pa.int8(), nullable=False, indexed=True))
    assert schema.arrow.names == ["space", "grouping", "timestamp", "b", "a"]
    assert [schema.arrow.field(n).type for n in range(3)] == [pa.binary(), pa.binary(), pa.timestamp("us", "UTC")]
    assert not any(schema.arrow.field(n).nullable for n in range(3))
    assert schema.positions == {"b": 0, "a": 1}
    assert EventSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


@pytest.mark.parametrize(
    ("arrow", "indexes", "error", "message"),
    [
        (SCHEMA, ["nope"], UsageError, "no column 'nope' to index; the columns are"),
        (SCHEMA, ["b", "b"], UsageError, "named twice"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), [], InvalidEventError, "unique, found twice: a"),
        (
            pa.schema([(f"c{n}", pa.int8()) for n in range(4097)]),
            [],
            InvalidEventError,
            "4097 columns are more than the 4096",
        ),
    ],
)
def test_schemas_that_cannot_be(arrow, indexes, error, message):
    """An impossible schema is refused; the error names the fault."""
    with pytest.raises(error, match=message):
        make_schema(arrow, indexes, binary_keys=False)


def test_schema_of_events_added_one_by_one():
    """The default schema has `data`, never null, and a nullable text column for each index."""
    schema = default_schema(["type", "country"], binary_keys=False)
    assert schema.fields == (
        Field("data", pa.binary(), nullable=False),
        Field("type", pa.string(), indexed=True),
        Field("country", pa.string(), indexed=True),
    )
