"""One schema for several files: columns by name, each of a type that can represent the values of all files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.types as pt

from esformat.errors import UsageError
from esformat.format.schema import EventSchema, Field
from esformat.write.plain_array import plain_array

_WIDER = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary(), pa.float32(): pa.float64()}
_DECIMAL_DIGITS = 38


def unify(schemas: Iterable[tuple[str, EventSchema]]) -> EventSchema:
    """The schema of the events of all files. schemas: pairs of a file's name, for error messages, and its schema.

    A column that a file lacks is null there. A column is indexed if every file that has it indexes it.
    Raises UsageError for incompatible keys or columns.
    """
    fields: dict[str, tuple[str, Field]] = {}
    first: tuple[str, EventSchema] | None = None
    seen: set[EventSchema] = set()
    for name, schema in schemas:
        if first is None:
            first = name, schema
            fields = {field.name: (name, field) for field in schema.fields}
        elif schema not in seen:
            if schema.binary_keys != first[1].binary_keys:
                binary, text = (name, first[0]) if schema.binary_keys else (first[0], name)
                raise UsageError(f"{binary} has binary keys and {text} has text keys: they cannot be read together")
            _add(fields, name, schema)
        seen.add(schema)
    assert first is not None, "at least one file"
    return EventSchema(tuple(field for _, field in fields.values()), first[1].binary_keys)


def _add(fields: dict[str, tuple[str, Field]], file: str, schema: EventSchema) -> None:
    for name, (owner, field) in fields.items():
        if name not in schema.positions:
            fields[name] = owner, Field(name, field.type, True, field.indexed)
    for field in schema.fields:
        if field.name not in fields:
            fields[field.name] = file, Field(field.name, field.type, True, field.indexed)
            continue
        owner, known = fields[field.name]
        kind = common_type(known.type, field.type)
        if kind is None:
            raise UsageError(
                f"column {field.name!r} is {known.type} in {owner} and {field.type} in {file}",
                hint="rewrite one of them with the other's type, or read them separately",
            )
        both = Field(field.name, kind, known.nullable or field.nullable, known.indexed and field.indexed)
        fields[field.name] = owner, both


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """A type that represents every value of both types exactly; None if there is none."""
    if one == other:
        return one
    for small, large in ((one, other), (other, one)):
        if pt.is_null(small) or _WIDER.get(small) == large:
            return large
        for is_number in (pt.is_signed_integer, pt.is_unsigned_integer):
            if is_number(small) and is_number(large) and small.bit_width < large.bit_width:
                return large
    return _wider_decimal(one, other) if pt.is_decimal(one) and pt.is_decimal(other) else None


def _wider_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The decimal type with enough digits for both types on either side of the point; None if it needs more than 38."""
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return pa.decimal128(precision, scale) if precision <= _DECIMAL_DIGITS else None


def fit(batch: pa.RecordBatch, fields: Sequence[pa.Field]) -> pa.RecordBatch:
    """Convert a file's batch to columns of the unified schema: cast, and null if the file lacks the column."""
    names = set(batch.schema.names)
    columns = [
        _fit(batch.column(field.name), field.type) if field.name in names else pa.nulls(len(batch), field.type)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pt.is_dictionary(kind):
        return plain_array(column, kind)
    return column if column.type == kind else plain_array(column, kind.value_type).dictionary_encode()
