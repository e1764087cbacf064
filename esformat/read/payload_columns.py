"""Fields of JSON payloads as columns beside those of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from esformat.errors import UsageError
from esformat.format.arrays import is_bytes
from esformat.format.json_values import values_column

PAYLOAD = "data"


def with_fields(table: pa.Table, fields: Iterable[str] | Mapping[str, pa.DataType]) -> pa.Table:
    """`table` with a column for each path, named like it; a mapping gives their types.

    Raises UsageError for an invalid path, a value that a type does not take, and a table without payloads.
    """
    payloads = table.column(check_payload(table.schema))
    kinds = fields if isinstance(fields, Mapping) else dict.fromkeys([fields] if isinstance(fields, str) else fields)
    for path, kind in kinds.items():
        if path in table.schema.names:
            raise UsageError(f"there is a column {path!r} already")
        table = table.append_column(path, values_column(payloads, path, kind))
    return table


def check_payload(schema: pa.Schema) -> str:
    """The name of the column of payloads. Raises UsageError where there is none, or none of text or bytes."""
    if PAYLOAD not in schema.names or not is_bytes(schema.field(PAYLOAD).type):
        raise UsageError(
            f"fields of payloads are read from the column {PAYLOAD}, of text or bytes, which is not there",
            hint=f"ask for {PAYLOAD} among the columns",
        )
    return PAYLOAD
