"""Pages as bytes: an Arrow file, or JSON as pandas writes records."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from aggregator import InvalidRequestError

ARROW_FILE = "application/vnd.apache.arrow.file"
JSON = "application/json"


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

    Times are ISO 8601, bytes text where they are UTF-8 and else base64; what JSON cannot say, such as NaN, is null.
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
            return pc.replace_substring(column.cast(pa.string()), " ", "T").to_pylist()  # type: ignore[no-any-return]
        return [_value(value) for value in column.to_pylist()]
    except (ValueError, OverflowError, LookupError):
        # dates that Python cannot hold, nanoseconds inside of other values, time zones that nobody knows
        raise InvalidRequestError(
            f"column {name[:100]!r} holds values that JSON cannot", hint=f"leave it out, or accept {ARROW_FILE}"
        ) from None


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, tuple):  # an entry of a map
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _value(item) for name, item in value.items()}
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
