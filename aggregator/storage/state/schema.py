"""Schema changes caused by a batch: it fits, it adds columns, it needs another family, or it is refused because no type
can hold both its values and those in the topic.

The decision depends only on types and on the magnitudes of numbers and times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from aggregator.base.common_type import common_type, takes
from aggregator.base.names import is_unicode
from aggregator.model import RESERVED_COLUMNS, SchemaInfo
from esformat import InvalidEventError, UsageError
from esformat.parts import KEY_COLUMNS, EventSchema, Field, check_unique, make_schema, normalise_type

DATA_COLUMN = "data"
MAX_COLUMNS = 4095
"""Limit for a topic's schema, including keys; a segment has one more column, the record index."""

FEW_COLUMNS = 64
"""A family may grow to this many columns, whatever columns the batches have that add them."""
SPARSE = 4
"""A family may grow further only by a batch that itself has at least 1/SPARSE of the columns, because every batch is
stored with all columns of its family.
"""

Magnitudes = Mapping[str, int]


def topic_schema(
    arrow: pa.Schema, indexes: Sequence[str], *, binary_keys: bool, known: EventSchema | None = None
) -> EventSchema:
    """The schema of a topic whose events have the columns of `arrow`. An indexed column that is missing or has only
    nulls gets its type from `known`; if it has none there, it gets the null type, and no index yet.

    Raises InvalidEventError, esformat.UsageError.
    """
    if not isinstance(arrow, pa.Schema):
        raise UsageError(f"schema must be a pyarrow.Schema, not {type(arrow).__name__}")
    for name in indexes:
        named = isinstance(name, str) and name and is_unicode(name)
        if not named or name in (*KEY_COLUMNS, *RESERVED_COLUMNS):
            raise UsageError(f"{name!r} cannot be the name of an index")
    for name in RESERVED_COLUMNS:
        if name in arrow.names:
            raise InvalidEventError(
                f"a column cannot be named {name!r}",
                hint="the aggregator uses this name itself; rename the column, or put it into the payload",
            )
    check_unique(arrow.names)  # get_field_index does not find a doubled name
    types = {} if known is None else {field.name: field.type for field in known.fields}
    for name in indexes:
        place = arrow.get_field_index(name)
        if place >= 0 and not pa.types.is_null(arrow.field(place).type):
            continue
        field = pa.field(name, types.get(name, pa.null()))
        arrow = arrow.append(field) if place < 0 else arrow.set(place, field)
    typed = [name for name in indexes if not pa.types.is_null(arrow.field(name).type)]
    schema = make_schema(arrow, typed, binary_keys=binary_keys)
    if len(schema.arrow) > MAX_COLUMNS:
        raise InvalidEventError(
            f"{len(schema.arrow)} columns, including keys, exceed the limit of {MAX_COLUMNS}",
            hint="put values that few events have into one column, such as a map",
        )
    return schema


def small_types(arrow: pa.Schema) -> pa.Schema:
    """The columns of a batch in their stored types, with 32-bit offsets: no batch is large enough to need 64 bits."""
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


def fit(schema: EventSchema, given: EventSchema, magnitudes: Magnitudes | None = None) -> EventSchema | None:
    """Extend `schema` by the columns of `given`; None if the two cannot share segments.

    magnitudes: of the columns of `given`.
    """
    far = magnitudes or {}
    for field in given.fields:
        place = schema.positions.get(field.name)
        if place is not None and not takes(schema.fields[place].type, (field.type, far.get(field.name, 0))):
            return None
    for field in schema.fields:
        if not field.nullable and field.name not in given.positions and field.name != DATA_COLUMN:
            return None
    added = [Field(f.name, f.type, True, f.indexed) for f in given.fields if f.name not in schema.positions]
    added = [field for field in added if not pa.types.is_null(field.type)]  # without values, its type is unknown
    if not added:
        return schema
    wider = EventSchema((*schema.fields, *added), schema.binary_keys)
    count = len(wider.arrow)
    if count > MAX_COLUMNS or count > max(FEW_COLUMNS, SPARSE * len(given.arrow)):
        return None
    return wider


def widened(
    known: EventSchema, arrow: pa.Schema, indexes: Sequence[str], magnitudes: Magnitudes | None = None
) -> EventSchema | None:
    """Extend `known` for events with the columns of `arrow`; None if it cannot accept them.

    Raises as `topic_schema`.
    """
    given = topic_schema(small_types(arrow), indexes, binary_keys=known.binary_keys, known=known)
    return fit(known, given, magnitudes)


def choose_schema(
    schemas: Iterable[SchemaInfo],
    arrow: pa.Schema,
    indexes: Sequence[str],
    *,
    binary_keys: bool,
    magnitudes: Magnitudes | None = None,
) -> tuple[SchemaInfo | None, SchemaInfo]:
    """Choose the schema for events with the columns of `arrow`: the one of a topic's `schemas` that accepts them, and
    its new version, which is the same or wider. If no family accepts them: None, and a new schema with number and
    family 0.

    Families with exactly these types are preferred, because floats accept whole numbers, but not all of them. Among
    those, one that need not be widened is preferred.
    Raises InvalidEventError if a column would have values that no type can hold together; and as `topic_schema`.
    """
    families = newest_of_families(schemas)
    far = dict(magnitudes or {})
    choices: list[tuple[SchemaInfo | None, SchemaInfo]] = []
    for family in families:
        wider = widened(family.schema, arrow, indexes, far)
        if wider is not None:
            choices.append((family, replace(family, schema=wider, magnitudes=_larger(family.magnitudes, far, wider))))
    given = small_types(arrow)
    choices.sort(  # stable: the newest of equals first
        key=lambda choice: (not _has_types_of(choice[1].schema, given), choice[0] is None or choice[0] != choice[1])
    )
    newest = families[0].schema if families else None
    if not choices:
        begun = topic_schema(given, indexes, binary_keys=binary_keys, known=newest)
        choices.append((None, SchemaInfo(0, 0, 0, begun, _larger((), far, begun))))
    conflict = None
    for known, wanted in choices:
        conflict = _conflict([info for info in families if info is not known], wanted)
        if conflict is None:
            return known, wanted
    assert conflict is not None, "there is a choice, and each has one"
    name, before, after = conflict
    raise InvalidEventError(
        f"column {name!r} of type {after} does not fit its type {before} in the topic: no type can store the "
        "values of both exactly",
        hint="cast it, or use another name",
    )


def _larger(known: tuple[tuple[str, int], ...], far: Magnitudes, schema: EventSchema) -> tuple[tuple[str, int], ...]:
    """The magnitudes of a schema's columns after adding values of magnitudes `far`."""
    both = dict(known)
    for name, magnitude in far.items():
        if name in schema.positions:
            both[name] = max(magnitude, both.get(name, 0))
    return tuple(sorted(both.items()))


def _conflict(others: Sequence[SchemaInfo], wanted: SchemaInfo) -> tuple[str, pa.DataType, pa.DataType] | None:
    """A column that cannot be read in one type over all families, with its types there and in `wanted`."""
    together = _common_types([*others, wanted], strict=True)
    for name, (kind, _) in _common_types(others).items():
        if name in wanted.schema.positions and name not in together and not _is_text(kind):
            return name, kind, wanted.schema.fields[wanted.schema.positions[name]].type
    return None


def _has_types_of(schema: EventSchema, given: pa.Schema) -> bool:
    """Whether the columns of `given` have the same types in the schema. Columns that the schema lacks are ignored."""
    types = {field.name: field.type for field in schema.fields}
    return all(pa.types.is_null(field.type) or types.get(field.name, field.type) == field.type for field in given)


def newest_of_families(schemas: Iterable[SchemaInfo]) -> list[SchemaInfo]:
    """The newest schema of each family, newest first."""
    newest: dict[int, SchemaInfo] = {}
    for info in sorted(schemas, key=lambda info: info.number):
        newest[info.family] = info
    return sorted(newest.values(), key=lambda info: info.number, reverse=True)


def union_schema(schemas: Iterable[SchemaInfo], *, binary_keys: bool) -> EventSchema:
    """One schema for reading events of all `schemas` exactly. A column whose values are of different kinds is read as
    text, or as bytes if some are bytes.
    """
    families = newest_of_families(schemas)
    kinds = _common_types(families)
    fields: dict[str, Field] = {}
    for info in families:
        for field in info.schema.fields:
            known = fields.get(field.name, field)
            nullable, indexed = known.nullable or field.nullable, known.indexed or field.indexed
            fields[field.name] = Field(field.name, kinds[field.name][0], nullable, indexed)
    complete = [
        field if all(field.name in info.schema.positions for info in families) else _nullable(field)
        for field in fields.values()
    ]
    return EventSchema(tuple(complete), binary_keys)


def _common_types(families: Sequence[SchemaInfo], *, strict: bool = False) -> dict[str, tuple[pa.DataType, int]]:
    """For each column, the type that holds all its values, and its magnitude.

    If there is no such type: text, or no entry if `strict`.
    """
    found: dict[str, tuple[pa.DataType, int] | None] = {}
    for info in families:
        far = dict(info.magnitudes)
        for field in info.schema.fields:
            mine = (field.type, far.get(field.name, 0))
            if field.name not in found:
                found[field.name] = mine
                continue
            known = found[field.name]
            if known is None:
                continue
            kind = common_type(known, mine)
            if kind is None and not strict:
                kind = pa.string()
            found[field.name] = None if kind is None else (kind, max(known[1], mine[1]))
    return {name: known for name, known in found.items() if known is not None}


def _is_text(kind: pa.DataType) -> bool:
    return bool(kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()))


def _nullable(field: Field) -> Field:
    return Field(field.name, field.type, True, field.indexed)
