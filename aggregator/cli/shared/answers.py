"""Print the results of statements: as a table, JSON lines, CSV, Arrow, or by the statement's format string."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from aggregator import forward, lql
from aggregator.cli.shared.open_catalog import AnyCatalog, is_address, open_any_read_only, open_any_writable
from esformat import convert
from esformat.cli.parts import ROWS, TABLES, chosen_format, format_option, is_terminal, say

if TYPE_CHECKING:
    import pyarrow as pa

    from aggregator.lql.parse.tree import Select, Statement

FORMATS = (*TABLES, *ROWS, "template")
_FOLLOWED = (*TABLES, "jsonl", "template")
ROWS_SHOWN = 50
"""Number of records shown for a SELECT without LIMIT, in a table or in the shell."""


def statement_format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the option --format."""
    text = (
        "template is the statement's format string. Default: template if it has one, else table on a terminal and "
        "jsonl in a pipe."
    )
    return cast("Callable[..., Any]", format_option(*FORMATS[len(TABLES) :], text=text)(command))


@contextmanager
def shown_errors() -> Iterator[None]:
    """End the command with status 2 if a statement is invalid, and show where."""
    try:
        yield
    except lql.LqlError as error:
        click.echo(f"aggregator: {error}", err=True)
        raise click.exceptions.Exit(2) from None


def changes(statement: Statement) -> bool:
    """Whether the statement needs a catalog that is open for writing."""
    from aggregator.lql.parse.tree import CreatePipe, DeletePipe, Truncate

    return isinstance(statement, CreatePipe | DeletePipe) or (isinstance(statement, Truncate) and not statement.dry_run)


def run_statement(
    place: str, text: str, format_: str | None, catalog: AnyCatalog | None = None, sink: BinaryIO | None = None
) -> None:
    """Run a statement and print its result. catalog: one that is already open for reading, or a server.

    sink: written to instead of standard output.

    Raises LqlError, AggregatorError, and any error of reading.
    """
    statement = lql.parse_statement(text)
    limit = None if catalog is None else ROWS_SHOWN
    if catalog is not None and (is_address(place) or not changes(statement)):
        show(catalog, statement, text, format_, limit, sink)
        return
    with open_any_writable(place) if changes(statement) else open_any_read_only(place) as opened:
        show(opened, statement, text, format_, limit, sink)


def show(
    catalog: AnyCatalog,
    statement: Statement,
    text: str,
    format_: str | None,
    limit: int | None,
    sink: BinaryIO | None = None,
) -> None:
    """Print the result of a statement. limit: applies to a SELECT without LIMIT."""
    from aggregator.lql.parse.tree import Select

    if format_ is not None and sink is None:
        format_ = chosen_format(format_, "-")
    sink = sys.stdout.buffer if sink is None else sink
    if not isinstance(statement, Select) or statement.count:
        table: Any = catalog.query(text)
        warned = (table.schema.metadata or {}).get(b"warning")
        _show_table(table.replace_schema_metadata(None) if warned else table, format_, sink)
        _warn([] if warned is None else [warned.decode()])
        return
    chosen = format_of(statement, format_)
    limit = ROWS_SHOWN if chosen in TABLES and limit is None else limit
    shortened = statement.limit is None and limit is not None
    if shortened:
        text = lql.to_text(replace(statement, limit=limit))
    selection: Any = catalog.query(text)
    answer = selection.to_reader()  # one request: a server is not asked separately for the schema
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in answer:
            rows += len(batch)
            yield batch

    write_records(counted(), answer.schema, statement, chosen, sink)
    if shortened and rows == limit and is_terminal(sys.stdout):
        click.echo(f"… only the first {rows}: use LIMIT for more", err=True)
    if not rows:
        _warn(selection.warnings)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def format_of(statement: Select, format_: str | None) -> str:
    """The format to print records in; `format_` if it is not None."""
    if format_ is not None:
        return format_
    return "template" if statement.format is not None else "table" if is_terminal(sys.stdout) else "jsonl"


def followed_format(statement: Select, format_: str | None) -> str:
    """The format to print records in as they arrive. Raises click.UsageError if it does not suit a stream."""
    chosen = format_of(statement, format_)
    if chosen not in _FOLLOWED:
        raise click.UsageError(f"--format {chosen} cannot be followed: use {', '.join(_FOLLOWED)}")
    return chosen


def write_records(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, statement: Select, chosen: str, sink: BinaryIO
) -> None:
    """Write the records of a SELECT in the format `chosen`."""
    if chosen in ("arrow", "arrows", "parquet"):
        convert.write_batches(batches, schema, chosen, sink)
        return
    if chosen in (*TABLES, "csv"):
        plain = plain_schema()
        shaped = (_plain(batch, plain) for batch in batches)
        if chosen == "csv":
            convert.write_batches(shaped, plain, "csv", sink)
        else:
            from esformat.cli.parts import show_table  # here: rich is slow to import

            show_table(shaped, plain, chosen)
        return
    template = lql.Template.compile(statement.format or "{msg}")
    before = b"["
    for batch in batches:
        columns = forward.columns_of(batch)
        as_lines = chosen == "template"
        texts = forward.lines(batch, columns, template) if as_lines else forward.json_lines(batch, columns)
        written = b"".join(texts.to_pylist())
        if chosen == "json" and written:
            written = before + b"\n" + written[:-1].replace(b"\n", b",\n")  # JSON lines have no other newlines
            before = b","
        sink.write(written)
        sink.flush()
    if chosen == "json":
        sink.write(b"[]\n" if before == b"[" else b"\n]\n")
        sink.flush()


def plain_schema() -> pa.Schema:
    """The schema of records as people read them: tags as written in LQL, fields as JSON."""
    import pyarrow as pa  # here: slow to import

    texts = [(name, pa.string()) for name in ("tags", "msg", "fields")]
    return pa.schema([("ts", pa.timestamp("us", "UTC")), *texts])


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # here: slow to import

    from aggregator.lql.parse.columns import as_text, decoded
    from esformat.parts import as_text as shown

    fields = forward.fields_as_json(batch, forward.columns_of(batch))
    arrays = [
        batch.column("timestamp"),
        as_text(batch.column("space")).cast(pa.string()),
        shown(decoded(batch.column("data"))),
        pa.array(fields, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _show_table(table: Any, format_: str | None, sink: BinaryIO) -> None:
    chosen = format_ or ("table" if is_terminal(sys.stdout) else "jsonl")
    if chosen == "template":
        raise click.UsageError("--format template goes with SELECT")
    import pyarrow as pa  # here: slow to import

    plain = [pa.field(f.name, pa.string() if pa.types.is_large_string(f.type) else f.type) for f in table.schema]
    table = table.cast(pa.schema(plain, metadata=table.schema.metadata))
    batches = table.combine_chunks().to_batches()
    if chosen in TABLES:
        from esformat.cli.parts import show_table  # here: rich is slow to import

        show_table(batches, table.schema, chosen)
        for name, total in (table.schema.metadata or {}).items():
            say(f"{name.decode()}: {int(total):,}" if total.isdigit() else f"{name.decode()}: {total.decode()}")
        return
    convert.write_batches(iter(batches), table.schema, chosen, sink)
    sink.flush()
