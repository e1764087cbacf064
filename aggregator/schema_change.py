"""What becomes of a topic's schema when a batch arrives: it fits, it adds columns, or it needs another family.

Decided by types alone, before any value is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from aggregator.model import RESERVED_COLUMNS, SchemaInfo
from esformat import InvalidEventError
from esformat.parts import EventSchema, Field, make_schema

DATA_COLUMN = "data"


def topic_schema(arrow: pa.Schema, indexes: Sequence[str], *, binary_keys: bool) -> EventSchema:
    """The schema of a topic whose events have the columns of `arrow`; indexed columns that are missing are texts.

    Raises InvalidEventError, esformat.UsageError.
    """
    for name in RESERVED_COLUMNS:
        if name in arrow.names:
            raise InvalidEventError(
                f"a column cannot be called {name!r}", hint="the aggregator keeps its own facts under that name"
            )
    for name in indexes:
        if name not in arrow.names:
            arrow = arrow.append(pa.field(name, pa.string()))
    return make_schema(arrow, indexes, binary_keys=binary_keys)


_SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def small_types(arrow: pa.Schema) -> pa.Schema:
    """The columns of a batch, texts and bytes with 32-bit offsets: a batch is never so large as to need others."""
    return pa.schema([field.with_type(_SMALL.get(field.type, field.type)) for field in arrow])


def fit(schema: EventSchema, given: EventSchema) -> EventSchema | None:
    """`schema` with what `given` adds to it; None where the two cannot share segments."""
    for field in given.fields:
        place = schema.positions.get(field.name)
        if place is not None and not _takes(schema.fields[place].type, field.type):
            return None
    for field in schema.fields:
        if not field.nullable and field.name not in given.positions and field.name != DATA_COLUMN:
            return None
    added = [Field(f.name, f.type, True, f.indexed) for f in given.fields if f.name not in schema.positions]
    if any(pa.types.is_null(field.type) for field in added):  # a column without values says nothing of its type
        added = [field for field in added if not pa.types.is_null(field.type)]
    return EventSchema((*schema.fields, *added), schema.binary_keys) if added else schema


def _takes(kind: pa.DataType, given: pa.DataType) -> bool:
    """Whether a column of type `kind` holds every value of type `given`."""
    if given == kind:
        return True
    try:
        both = pa.unify_schemas(
            [pa.schema([pa.field("x", kind)]), pa.schema([pa.field("x", given)])], promote_options="permissive"
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return bool(both.field(0).type == kind)


def newest_of_families(schemas: Iterable[SchemaInfo]) -> list[SchemaInfo]:
    """The newest schema of each family, newest first."""
    newest: dict[int, SchemaInfo] = {}
    for info in sorted(schemas, key=lambda info: info.number):
        newest[info.family] = info
    return sorted(newest.values(), key=lambda info: info.number, reverse=True)


def union_schema(schemas: Iterable[SchemaInfo], *, binary_keys: bool) -> EventSchema:
    """One schema for reading events of all `schemas`: a column whose types cannot be one is read as text."""
    fields: dict[str, Field] = {}
    for info in newest_of_families(schemas):
        for field in info.schema.fields:
            known = fields.get(field.name)
            if known is None:
                fields[field.name] = field
            else:
                kind = _common_type(known.type, field.type)
                nullable = known.nullable or field.nullable
                fields[field.name] = Field(field.name, kind, nullable, known.indexed or field.indexed)
    families = [info.schema for info in newest_of_families(schemas)]
    complete = [
        field if all(field.name in schema.positions for schema in families) else _nullable(field)
        for field in fields.values()
    ]
    return EventSchema(tuple(complete), binary_keys)


def _nullable(field: Field) -> Field:
    return Field(field.name, field.type, True, field.indexed)


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if _takes(left, right):
        return left
    if _takes(right, left):
        return right
    try:
        both = pa.unify_schemas(
            [pa.schema([pa.field("x", left)]), pa.schema([pa.field("x", right)])], promote_options="permissive"
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()
    return both.field(0).type
