"""Pages as bytes: an Arrow file, or JSON as pandas writes records."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from aggregator import InvalidRequestError

ARROW_FILE = "application/vnd.apache.arrow.file"
JSON = "application/json"
RECORDS = "application/json; format=pandas-records"
"""What JSON answers are called."""


def media_type(accept: str | None) -> str | None:
    """What to answer with for an Accept header: ARROW_FILE or JSON; None where the client takes neither."""
    if accept is None or not accept.strip():
        return JSON
    for entry in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in entry.split(";"))
        if kind == ARROW_FILE:
            return ARROW_FILE
        if kind in ("*/*", "application/*"):
            return JSON
        formats = [value.partition("=")[2] for value in parameters if value.startswith("format=")]
        if kind == JSON and formats in ([], ["pandas-records"]):
            return JSON
    return None


def arrow_file(records: pa.Table, metadata: dict[str, str]) -> bytes:
    """An Arrow file, its schema's metadata and these."""
    kept = records.schema.metadata or {}
    schema = records.schema.with_metadata({**kept, **{name.encode(): text.encode() for name, text in metadata.items()}})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(records.replace_schema_metadata(schema.metadata))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def json_records(records: pa.Table) -> bytes:
    """A JSON array with an object for each record.

    Times are as plateau writes them: 2026-03-01 08:00:00.500. Floats of 32 bits have their shortest digits, bytes are
    text where they are UTF-8 and else base64; what JSON cannot say, such as NaN, is null.
    """
    names = records.column_names
    columns = [_plain(*named) for named in zip(names, records.columns, strict=True)]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    return json.dumps(rows, separators=(",", ":"), default=_text, allow_nan=False).encode()


def _plain(name: str, column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as JSON takes them."""
    kind = column.type
    if pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_string(kind) or pt.is_large_string(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    try:
        if pt.is_timestamp(kind):
            return _shortened(column.cast(pa.string()))
        if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
            kind = kind.value_type
        return [_value(value, kind) for value in column.to_pylist()]
    except (ValueError, OverflowError, LookupError):
        # dates that Python cannot hold, nanoseconds inside of other values, time zones that nobody knows
        raise InvalidRequestError(
            f"column {name[:100]!r} holds values that JSON cannot", hint=f"leave it out, or accept {ARROW_FILE}"
        ) from None


def _shortened(times: pa.ChunkedArray) -> list[Any]:
    """Times with as few digits behind the second as tell them, in threes."""
    found = times
    for _ in range(3):
        found = pc.replace_substring_regex(found, r"(\.(?:\d{3})*)000(Z|[+-]\d\d:?\d\d)?$", r"\1\2")
    return pc.replace_substring_regex(found, r"\.(Z|[+-]\d\d:?\d\d)?$", r"\1").to_pylist()  # type: ignore[no-any-return]


def _value(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if pt.is_float64(kind) else float(str(np.float32(value)))  # its own digits, not the double's
    if isinstance(value, dict):
        return {field.name: _value(value[field.name], field.type) for field in kind}
    if isinstance(value, list) and pt.is_map(kind):
        return [(key, _value(item, kind.item_type)) for key, item in value]
    if isinstance(value, list):
        return [_value(item, kind.value_type) for item in value]
    return value


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal | dt.timedelta):
        return str(value)
    return repr(value)
