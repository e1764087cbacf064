"""The format of a page that a client asks for, and pages as Arrow files. `json_text` writes the other format."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa

ARROW_FILE = "application/vnd.apache.arrow.file"
JSON = "application/json"
RECORDS = "application/json; format=pandas-records"
"""Content type of JSON responses."""


def media_type(accept: str) -> str | None:
    """Return the response format for an Accept header: ARROW_FILE or JSON; None if the client accepts neither."""
    if not accept.strip():
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


def arrow_file(records: pa.Table, metadata: dict[str, str], cuts: Sequence[int] = ()) -> bytes:
    """Return an Arrow file with `metadata` added to its schema's; a new record batch begins at each row in `cuts`."""
    kept = records.schema.metadata or {}
    schema = records.schema.with_metadata({**kept, **{name.encode(): text.encode() for name, text in metadata.items()}})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        records = records.replace_schema_metadata(schema.metadata)
        for begin, end in itertools.pairwise(sorted({0, *cuts, len(records)})):
            writer.write_table(records.slice(begin, end - begin))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
