"""Fields of JSON payloads as additional columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from esformat.errors import UsageError
from esformat.format.arrays import is_bytes
from esformat.format.json_values import FOUND, JsonValues, Step, parse_path, values_column

PAYLOAD = "data"


Paths = Mapping[str, tuple[Step, ...]]
"""Paths into payloads: the text of each path and its steps."""


def parse_paths(fields: Iterable[str] | Mapping[str, pa.DataType], schema: pa.Schema) -> Paths:
    """Parse the paths of fields. Raises UsageError for an invalid path, and for one that equals a column's name."""
    names = [fields] if isinstance(fields, str) else fields
    for path in names:
        if path in schema.names:
            raise UsageError(f"there is a column {path!r} already")
    return {path: parse_path(path) for path in names}


def typed_fields(table: pa.Table, paths: Paths, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """Convert the path columns of a table, which are `FOUND`, to values of one type each. kinds: types of some paths.

    Raises UsageError for a value that does not fit its type.
    """
    for path in paths:
        values = [JsonValues.of(chunk) for chunk in table.column(path).chunks]
        place = table.schema.get_field_index(path)
        table = table.set_column(place, path, values_column(values, path, kinds.get(path)))
    return table


def with_fields(table: pa.Table, fields: Iterable[str] | Mapping[str, pa.DataType]) -> pa.Table:
    """Append a column for each path, with its name, to `table`. fields: paths, or a mapping of paths to types.

    Raises UsageError for an invalid path, a value that does not fit its type, and a table without payloads.
    """
    kinds = fields if isinstance(fields, Mapping) else {}
    payloads = table.column(check_payload(table.schema))
    for path, steps in parse_paths(fields, table.schema).items():
        values = [JsonValues(chunk, steps) for chunk in payloads.chunks]
        table = table.append_column(path, values_column(values, path, kinds.get(path)))
    return table


def with_found(batch: pa.RecordBatch, columns: Sequence[str], paths: Paths) -> pa.RecordBatch:
    """Some columns of a batch, and for each path a column of `FOUND`; nothing is found if the batch has no payloads."""
    payloads = batch.column(PAYLOAD) if PAYLOAD in batch.schema.names else pa.nulls(len(batch), pa.binary())
    found = [JsonValues(payloads, steps).found() for steps in paths.values()]
    schema = pa.schema([*map(batch.schema.field, columns), *(pa.field(path, FOUND) for path in paths)])
    return pa.RecordBatch.from_arrays([*map(batch.column, columns), *found], schema=schema)


def check_payload(schema: pa.Schema) -> str:
    """The name of the payload column. Raises UsageError if there is none, or if it is neither text nor bytes."""
    if PAYLOAD not in schema.names or not is_bytes(schema.field(PAYLOAD).type):
        raise UsageError(
            f"payload fields need the column {PAYLOAD}, of text or bytes, which is missing",
            hint=f"include {PAYLOAD} in the columns",
        )
    return PAYLOAD
