"""Mapping of segments' Arrow types to Spark types, without loss: unsuitable types raise errors."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType

from esformat.errors import UsageError
from esformat.read.collection.schema import common_type

_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.time32("s"): pa.time64("ns"),
    pa.time32("ms"): pa.time64("ns"),
    pa.time64("us"): pa.time64("ns"),
}
_MAX_DECIMAL_DIGITS = 38
_TO_TEXT = "cast it to string first"
_NOT_HELD = {
    "variant": "keep it as JSON: to_json(column)",
    "geometry": "keep it as bytes: st_asbinary(column)",
    "geography": "keep it as bytes: st_asbinary(column)",
    "interval year": _TO_TEXT,
    "interval month": _TO_TEXT,
    "interval": _TO_TEXT,
}


def spark_arrow_type(kind: pa.DataType, *, rounds: bool = False) -> pa.DataType:
    """Return the Arrow type in which Spark accepts values of `kind`. Raises UsageError if no type fits all of them.

    Timestamps and durations in nanoseconds become int64, since Spark's own types have microseconds. rounds: they become
    Spark's own types, so that values which would lose digits do not fit.
    """
    inner = partial(spark_arrow_type, rounds=rounds)
    is_fine = not rounds and (pt.is_timestamp(kind) or pt.is_duration(kind)) and kind.unit == "ns"
    if kind in _SIGNED:
        return _SIGNED[kind]
    if pt.is_timestamp(kind):
        return pa.int64() if is_fine else pa.timestamp("us", "UTC" if kind.tz else None)
    if pt.is_duration(kind):
        return pa.int64() if is_fine else pa.duration("us")
    if pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_decimal(kind) and kind.precision <= _MAX_DECIMAL_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if pt.is_map(kind):
        key = pa.field("key", inner(kind.key_type), nullable=False)
        return pa.map_(key, pa.field("value", inner(kind.item_type), kind.item_field.nullable))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", inner(kind.value_type), kind.value_field.nullable))
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, inner(f.type), f.nullable) for f in kind])
    plain = pt.is_boolean(kind) or pt.is_integer(kind) or pt.is_floating(kind) or pt.is_null(kind)
    if plain or kind in (pa.string(), pa.binary(), pa.date32(), pa.time64("ns")):
        return kind
    raise UsageError(f"Spark has no type for values of type {kind}")


def spark_schema(arrow: pa.Schema, *, rounds: bool = False) -> StructType:
    """Return the Spark schema of a segment's columns. Raises UsageError with the column if Spark has no type for it.

    rounds: as in `spark_arrow_type`.
    """
    fields = []
    for column in arrow:
        try:
            kind = spark_arrow_type(column.type, rounds=rounds)
        except UsageError as error:
            raise UsageError(
                f"column {column.name!r}: {error.message}", hint="leave it out with the option columns"
            ) from None
        fields.append(StructField(column.name, from_arrow_type(kind, prefer_timestamp_ntz=True), column.nullable))
    return StructType(fields)


def readable(arrow: pa.Schema) -> pa.Schema:
    """Return the columns for which Spark has a type, in that type."""
    fields = []
    for column in arrow:
        with contextlib.suppress(UsageError):
            fields.append(column.with_type(spark_arrow_type(column.type)))
    return pa.schema(fields)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for a Spark schema. Raises UsageError for a type that events lack."""
    for field in schema:
        _check_held(field.name, field.dataType, nullable=field.nullable)
    return to_arrow_schema(schema, timezone="UTC")


def check_requested(requested: StructType, known: StructType) -> None:
    """Raise UsageError if a schema given with `.schema(…)` has columns or types that the segments lack."""
    types = {field.name: field.dataType for field in known}
    for field in requested:
        if field.name not in types:
            raise UsageError(f"no column {field.name!r}", hint=f"the columns are {', '.join(types)}")
        if field.dataType.simpleString() != types[field.name].simpleString():  # ignores nullability
            raise UsageError(
                f"column {field.name!r} is {types[field.name].simpleString()}, not {field.dataType.simpleString()}",
                hint="read it as it is, and cast it with Spark",
            )


def convert_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a segment's batch to exactly the columns and types of `schema`; missing columns become null.

    Raises UsageError for a value that the type cannot represent, such as a second after the year 294246.
    """
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(len(batch), field.type))
            continue
        column = batch.column(field.name)
        try:  # pyarrow's cast fails for some equal nested types, such as those of nulls, or maps in maps
            columns.append(column if column.type == field.type else _cast(column, field.type))
        except pa.ArrowInvalid as error:
            raise UsageError(f"column {field.name!r} does not fit Spark's type: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column, including fixed-size lists with nulls and non-nullable members, which `Array.cast` rejects."""
    if not pt.is_fixed_size_list(column.type) or column.type.value_type != kind.value_type:
        return column.cast(kind)
    sizes = np.where(np.asarray(column.is_valid()), column.type.list_size, 0)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), column.flatten(), type=kind, mask=column.is_null())


def unify_schemas(schemas: Sequence[tuple[str, pa.Schema]], columns: tuple[str, ...] | None = None) -> pa.Schema:
    """Unite the schemas of segments: columns by name, in the order first seen; nullable if a segment lacks them.

    schemas: each with its name for messages. columns: the wanted ones, in that order; None: all. Integers get the wider
    type; other types must be equal. Raises UsageError for a column that no segment has, or whose types in two segments
    differ.
    """
    fields: dict[str, pa.Field] = {}
    found_in: dict[str, str] = {}
    everywhere: set[str] | None = None
    for name, schema in schemas:
        for column in schema:
            if columns is not None and column.name not in columns:
                continue
            before = fields.get(column.name)
            if before is None:
                fields[column.name], found_in[column.name] = column, name
                continue
            kind = common_type(before.type, column.type)
            if kind is None:
                raise UsageError(
                    f"column {column.name!r} is {column.type} in {name} and {before.type} in {found_in[column.name]}",
                    hint="read them separately, or leave the column out with the option columns",
                )
            fields[column.name] = pa.field(column.name, kind, before.nullable or column.nullable)
        everywhere = set(schema.names) if everywhere is None else everywhere & set(schema.names)
    missing = [name for name in columns or () if name not in fields]
    if missing:
        known = dict.fromkeys(name for _, schema in schemas for name in schema.names)
        raise UsageError(f"no column {missing[0]!r}", hint=f"the columns are {', '.join(known)}")
    unified = [field.with_nullable(field.nullable or name not in (everywhere or ())) for name, field in fields.items()]
    return pa.schema(unified if columns is None else [unified[list(fields).index(name)] for name in columns])


def _check_held(name: str, kind: DataType, *, nullable: bool) -> None:
    """Raise UsageError for a type, at any depth, that Arrow stores as another: a variant as a struct of bytes.

    Also for non-nullable values without a type, as in the empty `array()`, which Arrow cannot express.
    """
    if isinstance(kind, StructType):
        for field in kind:
            _check_held(name, field.dataType, nullable=field.nullable)
    elif isinstance(kind, ArrayType):
        _check_held(name, kind.elementType, nullable=kind.containsNull)
    elif isinstance(kind, MapType):
        _check_held(name, kind.keyType, nullable=False)
        _check_held(name, kind.valueType, nullable=kind.valueContainsNull)
    elif isinstance(kind, NullType) and not nullable:
        raise UsageError(
            f"the values of column {name!r} have no type", hint="give it one: CAST(column AS array<string>)"
        )
    else:
        what, _, rest = kind.simpleString().partition("(")
        hint = _NOT_HELD.get(what.split(" to ")[0])
        if hint is not None:
            raise UsageError(
                f"column {name!r} is {what}{'(' if rest else ''}{rest}, which events cannot hold", hint=hint
            )
