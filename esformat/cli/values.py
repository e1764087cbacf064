"""`esdb values`: list the values of an index and the number of events with each."""

from __future__ import annotations

from typing import Any

import click

from esformat.cli.count_table import count_options, show_counts
from esformat.cli.output import chosen_format
from esformat.cli.segments import files_argument, open_segments

_EXAMPLES = """\b
Examples:
  esdb values activity.esdb type
  esdb values activity.esdb country --sort count --limit 10
  esdb values activity.esdb type --format csv
  esdb values parts type --sort count
"""


@click.command(epilog=_EXAMPLES)
@files_argument
@click.argument("index")
@count_options
def values(files: tuple[str, ...], index: str, **shown: Any) -> None:
    """List the values of INDEX in segments and the number of events with each, sorted by value or count."""
    chosen_format(shown["format_"], shown["output"])  # fails before the file is opened
    import pyarrow as pa  # here: slow to import

    with open_segments(files) as segments:
        found = segments.index_values(index)
        schema = pa.schema([pa.field(index, segments.schema.field(index).type), pa.field("events", pa.int64())])
        show_counts(iter(found.items()), schema, shown)
