"""`esdb spaces`: the keys of a segment and how many events each has."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

import esformat
from esformat import convert
from esformat.cli.console import say
from esformat.cli.output import TABLES, chosen_format, format_option, opened_output
from esformat.cli.params import Hex, Limit

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 10_000
_EXAMPLES = """\b
Examples:
  esdb spaces activity.esdb --limit 10
  esdb spaces activity.esdb --prefix customer- --sort count
  esdb spaces activity.esdb --groupings --format csv
"""

Row = tuple[str | bytes | int, ...]  # the keys, then the count


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.option("--prefix", metavar="TEXT", help="Only keys that begin so.")
@click.option("--prefix-hex", type=Hex(), metavar="HEX", help="The same, in hexadecimal.")
@click.option("--sort", type=click.Choice(["key", "count"]), default="key", show_default=True, help="Line order.")
@click.option("--limit", type=Limit(), metavar="N", help="At most N lines. Default: 50 in a table.")
@click.option("--groupings", is_flag=True, help="A line for each grouping of each space.")
@format_option("jsonl", "csv")
def spaces(file: str, prefix: str | None, prefix_hex: bytes | None, groupings: bool, **shown: Any) -> None:
    """List the spaces of the segment FILE, and how many events each has; by key, or most events first."""
    if prefix is not None and prefix_hex is not None:
        raise click.UsageError("--prefix and --prefix-hex both say how keys begin: give one")
    chosen, limit = chosen_format(shown["format_"], "-"), shown["limit"]
    with esformat.open(file) as segment:
        schema = _schema(segment, by_grouping=groupings)
        rows = _rows(segment, prefix if prefix_hex is None else prefix_hex, by_grouping=groupings)
        rows = _sorted(rows, shown["sort"], limit)
        if chosen in TABLES:
            _print_table(rows, schema, limit, chosen)
            return
        with opened_output("-", force=False) as sink:
            convert.write_batches(_batches(islice(rows, limit), schema), schema, chosen, sink)


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


def _sorted(rows: Iterator[Row], sort: str, limit: int | None) -> Iterator[Row]:
    """Give `rows`, which come by key, in the order asked for; at least the first `limit` of them."""
    if sort == "key":
        return rows
    if limit is None:
        return iter(sorted(rows, key=itemgetter(-1), reverse=True))
    return iter(heapq.nlargest(limit, rows, key=itemgetter(-1)))


def _batches(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # here: slow to import

    while piece := list(islice(rows, _BATCH_ROWS)):
        columns = [pa.array(column, field.type) for column, field in zip(zip(*piece, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _print_table(rows: Iterator[Row], schema: pa.Schema, limit: int | None, layout: str) -> None:
    from esformat.cli.table import ROWS_SHOWN, show_table  # here: rich is slow to import, and most output needs none

    show_table(_batches(islice(rows, ROWS_SHOWN if limit is None else limit), schema), schema, layout)
    more = sum(1 for _ in rows) if limit is None else 0
    if more:
        say(f"… and {more:,} more: --limit N shows more, --format jsonl all")
