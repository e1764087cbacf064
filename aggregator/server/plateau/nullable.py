"""Makes fields nullable that contain nulls although their schema forbids it: readers may refuse such records."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from esformat.parts import is_list


def loosened(schema: pa.Schema, table: pa.Table) -> pa.Schema:
    """Return the schema with fields nullable, at any depth, that contain nulls. The table has the schema's names."""
    fields = [_field(field, table.column(place).chunks) for place, field in enumerate(schema)]
    return pa.schema(fields, schema.metadata)


def relabelled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table under a schema that differs only in nullability; nothing is copied or converted."""
    columns = [
        column if column.type == field.type else _with_type(column, field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def _with_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    label = kind.__arrow_c_schema__()
    chunks = [pa.Array._import_from_c_capsule(label, chunk.__arrow_c_array__()[1]) for chunk in column.chunks]
    return pa.chunked_array(chunks, kind)


def _field(field: pa.Field, chunks: list[pa.Array]) -> pa.Field:
    null = not field.nullable and any(chunk.null_count for chunk in chunks)
    field = field.with_nullable(True) if null else field
    if _is_strict(field.type):
        children = [_field(child, parts) for child, parts in _children(field.type, chunks)]
        field = field.with_type(_with_children(field.type, children))
    return field


def _is_strict(kind: pa.DataType) -> bool:
    """Whether any part of a type is declared non-nullable, apart from the keys of maps."""
    if not (pt.is_struct(kind) or pt.is_map(kind) or is_list(kind)):
        return False
    return any(not child.nullable or _is_strict(child.type) for child in _parts(kind))


def _parts(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields that are part of a value; for a map only its items, because keys are never null."""
    return [kind.item_field] if pt.is_map(kind) else [kind.field(place) for place in range(kind.num_fields)]


def _children(kind: pa.DataType, chunks: list[pa.Array]) -> list[tuple[pa.Field, list[pa.Array]]]:
    """Return the parts of a type, each with its values in arrays, without values hidden under nulls."""
    if pt.is_struct(kind):
        there = [chunk.drop_null() for chunk in chunks]
        return [(field, [chunk.field(place) for chunk in there]) for place, field in enumerate(_parts(kind))]
    if pt.is_map(kind):
        return [(kind.item_field, [_items(chunk.drop_null()) for chunk in chunks])]
    return [(kind.value_field, [chunk.flatten() for chunk in chunks])]


def _items(maps: pa.MapArray) -> pa.Array:
    first, last = (maps.offsets[place].as_py() for place in (0, -1))
    return maps.items.slice(first, last - first)


def _with_children(kind: pa.DataType, children: list[pa.Field]) -> pa.DataType:
    if pt.is_struct(kind):
        return pa.struct(children)
    (child,) = children
    if pt.is_map(kind):
        return pa.map_(kind.key_field, child, keys_sorted=kind.keys_sorted)
    if pt.is_fixed_size_list(kind):
        return pa.list_(child, kind.list_size)
    if pt.is_list_view(kind):
        return pa.list_view(child)
    if pt.is_large_list_view(kind):
        return pa.large_list_view(child)
    return pa.large_list(child) if pt.is_large_list(kind) else pa.list_(child)
