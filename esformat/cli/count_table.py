"""Output of keys or values with the number of events of each: sorted, limited, in the chosen format."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from esformat import convert
from esformat.cli.console import say
from esformat.cli.output import ROWS, TABLES, chosen_format, format_option, opened_output, output_options
from esformat.cli.params import Limit

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 10_000

Row = tuple[str | bytes | int, ...]
"""The key or value columns, then the count."""


def count_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for sorting, limiting and writing the lines to a command."""
    for option in (
        output_options,
        format_option(*ROWS),
        click.option("--limit", type=Limit(), metavar="N", help="At most N lines. Default: 50 in a table."),
        click.option(
            "--sort", type=click.Choice(["key", "count"]), default="key", show_default=True, help="Line order."
        ),
    ):
        command = option(command)
    return command


def show_counts(rows: Iterator[Row], schema: pa.Schema, shown: dict[str, Any]) -> None:
    """Print or write `rows`, which are sorted by key, according to the options."""
    chosen, limit, output = chosen_format(shown["format_"], shown["output"]), shown["limit"], shown["output"]
    if chosen == "esdb":
        raise click.UsageError(
            "cannot write counts to an event file: choose a name other than .esdb, or a format with --format"
        )
    rows = _sorted(rows, shown["sort"], limit)
    if chosen in TABLES:
        if output != "-":
            raise click.UsageError(f"--format {chosen} goes to standard output only: choose another format for -o")
        _print_table(rows, schema, limit, chosen)
        return
    with opened_output(output, force=shown["force"]) as sink:
        convert.write_batches(_batches(islice(rows, limit), schema), schema, chosen, sink)


def _sorted(rows: Iterator[Row], sort: str, limit: int | None) -> Iterator[Row]:
    """Return `rows`, which are sorted by key, in the requested order; at least the first `limit`."""
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
    from esformat.cli.table import ROWS_SHOWN, show_table  # here: rich is slow to import, and most output does without

    show_table(_batches(islice(rows, ROWS_SHOWN if limit is None else limit), schema), schema, layout)
    more = sum(1 for _ in rows) if limit is None else 0
    if more:
        say(f"… and {more:,} more: --limit N shows more, --format jsonl all")
