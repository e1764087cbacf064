"""Fields of JSON payloads as columns beside those of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from esformat.errors import UsageError
from esformat.format.arrays import is_bytes
from esformat.format.json_values import FOUND, JsonValues, Step, parse_path, values_column

PAYLOAD = "data"


Paths = Mapping[str, tuple[Step, ...]]
"""The steps of paths by their text."""


def parse_paths(fields: Iterable[str] | Mapping[str, pa.DataType], schema: pa.Schema) -> Paths:
    """The paths that are asked for. Raises UsageError for an invalid one, and for one that is a column's name."""
    names = [fields] if isinstance(fields, str) else fields
    for path in names:
        if path in schema.names:
            raise UsageError(f"there is a column {path!r} already")
    return {path: parse_path(path) for path in names}


def typed_fields(table: pa.Table, paths: Paths, kinds: Mapping[str, pa.DataType]) -> pa.Table:
    """A table with its columns of paths, which are `FOUND`, as values of one type each; `kinds` chooses some types.

    Raises UsageError for a value that a type does not take.
    """
    for path in paths:
        values = [JsonValues.of(chunk) for chunk in table.column(path).chunks]
        place = table.schema.get_field_index(path)
        table = table.set_column(place, path, values_column(values, path, kinds.get(path)))
    return table


def with_fields(table: pa.Table, fields: Iterable[str] | Mapping[str, pa.DataType]) -> pa.Table:
    """`table` with a column for each path, named like it; a mapping gives their types.

    Raises UsageError for an invalid path, a value that a type does not take, and a table without payloads.
    """
    kinds = fields if isinstance(fields, Mapping) else {}
    payloads = table.column(check_payload(table.schema))
    for path, steps in parse_paths(fields, table.schema).items():
        values = [JsonValues(chunk, steps) for chunk in payloads.chunks]
        table = table.append_column(path, values_column(values, path, kinds.get(path)))
    return table


def with_found(batch: pa.RecordBatch, columns: Sequence[str], paths: Paths) -> pa.RecordBatch:
    """Some columns of a batch, and for each path one of `FOUND`; nothing is found in a batch without payloads."""
    payloads = batch.column(PAYLOAD) if PAYLOAD in batch.schema.names else pa.nulls(len(batch), pa.binary())
    found = [JsonValues(payloads, steps).found() for steps in paths.values()]
    schema = pa.schema([*map(batch.schema.field, columns), *(pa.field(path, FOUND) for path in paths)])
    return pa.RecordBatch.from_arrays([*map(batch.column, columns), *found], schema=schema)


def check_payload(schema: pa.Schema) -> str:
    """The name of the column of payloads. Raises UsageError where there is none, or none of text or bytes."""
    if PAYLOAD not in schema.names or not is_bytes(schema.field(PAYLOAD).type):
        raise UsageError(
            f"fields of payloads are read from the column {PAYLOAD}, of text or bytes, which is not there",
            hint=f"ask for {PAYLOAD} among the columns",
        )
    return PAYLOAD
