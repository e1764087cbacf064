"""`esdb fields`: the fields of JSON payloads, with their kinds and how many values each has."""

from __future__ import annotations

from typing import Any

import click

from esformat.cli.console import warn
from esformat.cli.counted import counted_options, show_counted
from esformat.cli.output import chosen_format
from esformat.cli.segments import files_argument, open_segments, shown_files

_EXAMPLES = """\b
Examples:
  esdb fields activity.esdb
  esdb fields activity.esdb --sort count --limit 10
  esdb fields parts --format csv
"""


@click.command(epilog=_EXAMPLES)
@files_argument
@counted_options
def fields(files: tuple[str, ...], **shown: Any) -> None:
    """List the fields of payloads that are JSON, the kinds of their values, and how many values each has.

    A field is named by its path, which `scan --columns` and `scan --where` take: $.user.id, $.items[0]. All elements
    of an array together are $.items[*]. Every payload is read.
    """
    chosen_format(shown["format_"], shown["output"])  # refused before the file is opened
    import pyarrow as pa  # here: slow to import

    with open_segments(files) as segments:
        found = segments.scan(columns=["data"]).payload_fields()
        if found.no_json:
            warn(f"{shown_files(segments)}: {found.no_json:,} of {found.payloads:,} payloads are no JSON")
        if found.left_out:
            warn(f"{shown_files(segments)}: too many fields, {found.left_out:,} values are of others")
        schema = pa.schema([("field", pa.string()), ("kinds", pa.string()), ("values", pa.int64())])
        rows = ((field.path, ", ".join(field.kinds), field.count) for field in found.fields)
        show_counted(rows, schema, shown)
