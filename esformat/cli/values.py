"""`esdb values`: the values of an index and how many events each has."""

from __future__ import annotations

from typing import Any

import click

import esformat
from esformat.cli.counted import counted_options, show_counted
from esformat.cli.output import chosen_format

_EXAMPLES = """\b
Examples:
  esdb values activity.esdb type
  esdb values activity.esdb country --sort count --limit 10
  esdb values activity.esdb type --format csv
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.argument("index")
@counted_options
def values(file: str, index: str, **shown: Any) -> None:
    """List the values of INDEX in the segment FILE, and how many events each has; by value, or most events first."""
    chosen_format(shown["format_"], shown["output"])  # refused before the file is opened
    import pyarrow as pa  # here: slow to import

    with esformat.open(file) as segment:
        found = segment.index_values(index)
        schema = pa.schema([pa.field(index, segment.schema.field(index).type), pa.field("events", pa.int64())])
        show_counted(iter(found.items()), schema, shown)
