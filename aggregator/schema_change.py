"""What becomes of a topic's schema when a batch arrives: it fits, it adds columns, or it needs another family.

Decided by types alone, before any value is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from aggregator.model import RESERVED_COLUMNS, SchemaInfo
from esformat import InvalidEventError, UsageError
from esformat.parts import KEY_COLUMNS, EventSchema, Field, make_schema, normalise_type

DATA_COLUMN = "data"


def topic_schema(
    arrow: pa.Schema, indexes: Sequence[str], *, binary_keys: bool, known: EventSchema | None = None
) -> EventSchema:
    """The schema of a topic whose events have the columns of `arrow`; indexed columns that are missing, or of which
    there are no values to tell, have the type that they have in `known`, else they are texts.

    Raises InvalidEventError, esformat.UsageError.
    """
    if not isinstance(arrow, pa.Schema):
        raise UsageError(f"schema must be a pyarrow.Schema, not {type(arrow).__name__}")
    for name in indexes:
        if not isinstance(name, str) or not name or name in (*KEY_COLUMNS, *RESERVED_COLUMNS):
            raise UsageError(f"{name!r} cannot be the name of an index")
    for name in RESERVED_COLUMNS:
        if name in arrow.names:
            raise InvalidEventError(
                f"a column cannot be called {name!r}", hint="the aggregator keeps its own facts under that name"
            )
    types = {} if known is None else {field.name: field.type for field in known.fields}
    for name in indexes:
        place = arrow.get_field_index(name)
        if place >= 0 and not pa.types.is_null(arrow.field(place).type):
            continue
        field = pa.field(name, types.get(name, pa.string()))
        arrow = arrow.append(field) if place < 0 else arrow.set(place, field)
    return make_schema(arrow, indexes, binary_keys=binary_keys)


def small_types(arrow: pa.Schema) -> pa.Schema:
    """The columns of a batch in the types that are stored, with 32-bit offsets: none is so large as to need others."""
    return pa.schema([field.with_type(_small_type(normalise_type(field.type))) for field in arrow])


def _small_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_small_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_small_field(field) for field in kind])
    return kind


def _small_field(field: pa.Field) -> pa.Field:
    return field.with_type(_small_type(field.type))


def fit(schema: EventSchema, given: EventSchema) -> EventSchema | None:
    """`schema` with what `given` adds to it; None where the two cannot share segments."""
    for field in given.fields:
        place = schema.positions.get(field.name)
        if place is not None and not takes(schema.fields[place].type, field.type):
            return None
    for field in schema.fields:
        if not field.nullable and field.name not in given.positions and field.name != DATA_COLUMN:
            return None
    added = [Field(f.name, f.type, True, f.indexed) for f in given.fields if f.name not in schema.positions]
    if any(pa.types.is_null(field.type) for field in added):  # a column without values says nothing of its type
        added = [field for field in added if not pa.types.is_null(field.type)]
    return EventSchema((*schema.fields, *added), schema.binary_keys) if added else schema


def widened(known: EventSchema, arrow: pa.Schema, indexes: Sequence[str]) -> EventSchema | None:
    """`known` with what events with the columns of `arrow` add to it; None where it does not take them.

    Raises as `topic_schema`.
    """
    given = topic_schema(small_types(arrow), indexes, binary_keys=known.binary_keys, known=known)
    return fit(known, given)


def choose_schema(
    schemas: Iterable[SchemaInfo], arrow: pa.Schema, indexes: Sequence[str], *, binary_keys: bool
) -> tuple[SchemaInfo | None, EventSchema]:
    """The schema of a topic's `schemas` that takes events with the columns of `arrow`, and what it is to become for
    them: itself, or wider. None where no family takes them, and what a new one has.

    Of several families that with these very types: floats take whole numbers, but not all of them.
    Raises as `topic_schema`.
    """
    families = newest_of_families(schemas)
    found = [(known, wider) for known in families if (wider := widened(known.schema, arrow, indexes)) is not None]
    if found:
        given = small_types(arrow)
        return next((pair for pair in found if _has_types_of(pair[0].schema, given)), found[0])
    newest = families[0].schema if families else None
    return None, topic_schema(small_types(arrow), indexes, binary_keys=binary_keys, known=newest)


def _has_types_of(schema: EventSchema, given: pa.Schema) -> bool:
    """Whether columns of `given` have the types that they have in the schema, those left out that it has not."""
    types = {field.name: field.type for field in schema.fields}
    return all(pa.types.is_null(field.type) or types.get(field.name, field.type) == field.type for field in given)


def takes(kind: pa.DataType, given: pa.DataType) -> bool:
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
    """One schema for reading events of all `schemas`: a column whose types cannot be one is read as text.

    Whole numbers and floating-point ones are read as the latter, rounded where they have more than 53 bits.
    """
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
    if left == right:
        return left
    numbers = _common_number(left, right)
    if numbers is not None:
        return numbers
    if takes(left, right):
        return left
    if takes(right, left):
        return right
    try:
        both = pa.unify_schemas(
            [pa.schema([pa.field("x", left)]), pa.schema([pa.field("x", right)])], promote_options="permissive"
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.string()
    return both.field(0).type


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """What numbers of two types are read as where Arrow's own choice is too narrow; None elsewhere."""
    whole = [kind for kind in (left, right) if pa.types.is_integer(kind)]
    decimal = next((kind for kind in (left, right) if pa.types.is_decimal(kind)), None)
    if decimal is not None and (pa.types.is_floating(left) or pa.types.is_floating(right)):
        return pa.float64()
    digits = 20 if pa.uint64() in whole else 19  # of the largest 64-bit number
    if decimal is not None and whole:
        precision = min(max(decimal.precision, digits + decimal.scale), 76)
        return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, decimal.scale)
    if len(whole) == 2 and pa.uint64() in whole and any(map(pa.types.is_signed_integer, whole)):
        return pa.decimal128(20, 0)
    return None
