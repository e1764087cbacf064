"""`esdb spaces`: the keys of a segment and how many events each has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

import esformat
from esformat.cli.counted import Row, counted_options, show_counted
from esformat.cli.output import chosen_format
from esformat.cli.params import Hex

if TYPE_CHECKING:
    import pyarrow as pa

_EXAMPLES = """\b
Examples:
  esdb spaces activity.esdb --limit 10
  esdb spaces activity.esdb --prefix customer- --sort count
  esdb spaces activity.esdb --groupings --format csv
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.option("--prefix", metavar="TEXT", help="Only keys that begin so.")
@click.option("--prefix-hex", type=Hex(), metavar="HEX", help="The same, in hexadecimal.")
@click.option("--groupings", is_flag=True, help="A line for each grouping of each space.")
@counted_options
def spaces(file: str, prefix: str | None, prefix_hex: bytes | None, groupings: bool, **shown: Any) -> None:
    """List the spaces of the segment FILE, and how many events each has; by key, or most events first."""
    if prefix is not None and prefix_hex is not None:
        raise click.UsageError("--prefix and --prefix-hex both say how keys begin: give one")
    chosen_format(shown["format_"], shown["output"])  # refused before the file is opened
    with esformat.open(file) as segment:
        schema = _schema(segment, by_grouping=groupings)
        rows = _rows(segment, prefix if prefix_hex is None else prefix_hex, by_grouping=groupings)
        show_counted(rows, schema, shown)


def _schema(segment: esformat.Segment, *, by_grouping: bool) -> pa.Schema:
    import pyarrow as pa  # here: slow to import

    keys = ["space", "grouping"] if by_grouping else ["space"]
    return pa.schema([*map(segment.schema.field, keys), pa.field("events", pa.int64())])


def _rows(segment: esformat.Segment, prefix: str | bytes | None, *, by_grouping: bool) -> Iterator[Row]:
    for key, count in segment.spaces(prefix).items():
        if by_grouping:
            yield from ((key, grouping, events) for grouping, events in segment[key].groupings().items())
        else:
            yield key, count
