"""`esdb fields`: list the fields of JSON payloads, with the kinds and number of their values."""

from __future__ import annotations

from typing import Any

import click

from esformat.cli.console import warn
from esformat.cli.count_table import count_options, show_counts
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
@count_options
def fields(files: tuple[str, ...], **shown: Any) -> None:
    """List the fields of JSON payloads, with the kinds and number of their values.

    Fields are shown as paths such as $.user.id and $.items[0], which `scan --columns` and `scan --where` accept.
    $.items[*] stands for all elements of an array. Reads every payload.
    """
    chosen_format(shown["format_"], shown["output"])  # fails before the file is opened
    import pyarrow as pa  # here: slow to import

    with open_segments(files) as segments:
        found = segments.scan(columns=["data"]).payload_fields()
        if found.no_json:
            warn(f"{shown_files(segments)}: {found.no_json:,} of {found.payloads:,} payloads are not JSON")
        if found.left_out:
            warn(f"{shown_files(segments)}: too many fields: {found.left_out:,} values of other fields are not listed")
        schema = pa.schema([("field", pa.string()), ("kinds", pa.string()), ("values", pa.int64())])
        rows = ((field.path, ", ".join(field.kinds), field.count) for field in found.fields)
        show_counts(rows, schema, shown)
