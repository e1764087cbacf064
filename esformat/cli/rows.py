"""Output of the results of SQL statements: a table on a terminal, or rows in the chosen format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeAlias

import click

from esformat import convert
from esformat.cli.console import progress, say, warn
from esformat.cli.output import TABLES, finished_file, opened_output
from esformat.cli.question import with_progress, write_segment

if TYPE_CHECKING:
    import pyarrow as pa

    from esformat.sql.rows import Rows

Ask: TypeAlias = "Callable[[str], Rows]"
"""Runs a statement and returns its rows."""


def give_rows(ask: Ask, statement: str, chosen: str, output: str = "-", *, force: bool = False) -> None:
    """Run a statement with `ask` and print or write its rows in the format `chosen`."""
    text = statement.strip().rstrip(";")
    if not text:
        raise click.UsageError('no statement: give one, or "-" for standard input')
    if chosen in TABLES and output != "-":
        raise click.UsageError(f"--format {chosen} goes to standard output only: choose another format for -o")
    rows = ask(text)
    reader = rows.to_reader()
    shown = nullcontext() if output == "-" or chosen in TABLES else progress("writing", things=True)
    if chosen == "esdb":
        with finished_file(output) as made_at, shown as show:
            write_segment(with_progress(iter(reader), show), reader.schema, (), made_at, force=force)
    elif chosen not in TABLES:
        with opened_output(output, force=force) as sink, shown as show:
            convert.write_batches(with_progress(iter(reader), show), reader.schema, chosen, sink, warn)
    elif reader.schema.names == ["explain_key", "explain_value"]:
        for batch in reader:
            say("\n".join(batch.column(1).to_pylist()))
    else:
        _print_table(reader, chosen)


def _print_table(reader: pa.RecordBatchReader, layout: str) -> None:
    from esformat.cli.table import ROWS_SHOWN, show_table  # here: rich is slow to import

    seen = 0

    def first() -> Iterator[pa.RecordBatch]:
        nonlocal seen
        for batch in reader:
            yield batch.slice(0, max(0, ROWS_SHOWN - seen))
            seen += len(batch)
            if seen > ROWS_SHOWN:
                return

    show_table(first(), reader.schema, layout)
    reader.close()
    if seen > ROWS_SHOWN:
        say(f"… and more: only {ROWS_SHOWN} are shown; LIMIT chooses some, --format jsonl shows all")
