"""`esdb spaces`: list the spaces of segments and the number of events in each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from esformat.cli.count_table import Row, count_options, show_counts
from esformat.cli.output import chosen_format
from esformat.cli.params import Hex
from esformat.cli.segments import Segments, files_argument, open_segments

if TYPE_CHECKING:
    import pyarrow as pa

_EXAMPLES = """\b
Examples:
  esdb spaces activity.esdb --limit 10
  esdb spaces activity.esdb --prefix customer- --sort count
  esdb spaces activity.esdb --groupings --format csv
  esdb spaces parts --sort count --limit 3
"""


@click.command(epilog=_EXAMPLES)
@files_argument
@click.option("--prefix", metavar="TEXT", help="Only keys with this prefix.")
@click.option("--prefix-hex", type=Hex(), metavar="HEX", help="The same, with a hexadecimal prefix.")
@click.option("--groupings", is_flag=True, help="Print a line for each grouping of each space.")
@count_options
def spaces(files: tuple[str, ...], prefix: str | None, prefix_hex: bytes | None, groupings: bool, **shown: Any) -> None:
    """List the spaces of segments and the number of events in each, sorted by key or count."""
    if prefix is not None and prefix_hex is not None:
        raise click.UsageError("give only one of --prefix and --prefix-hex")
    chosen_format(shown["format_"], shown["output"])  # fails before the file is opened
    with open_segments(files) as segments:
        schema = _schema(segments, by_grouping=groupings)
        rows = _rows(segments, prefix if prefix_hex is None else prefix_hex, by_grouping=groupings)
        show_counts(rows, schema, shown)


def _schema(segments: Segments, *, by_grouping: bool) -> pa.Schema:
    import pyarrow as pa  # here: slow to import

    keys = ["space", "grouping"] if by_grouping else ["space"]
    return pa.schema([*map(segments.schema.field, keys), pa.field("events", pa.int64())])


def _rows(segments: Segments, prefix: str | bytes | None, *, by_grouping: bool) -> Iterator[Row]:
    for key, count in segments.spaces(prefix).items():
        if by_grouping:
            yield from ((key, grouping, events) for grouping, events in segments[key].groupings().items())
        else:
            yield key, count
