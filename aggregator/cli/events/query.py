"""`aggregator query`: run an LQL statement and print its result."""

from __future__ import annotations

import sys

import click

from aggregator import lql
from aggregator.cli.shared.answers import FORMATS, run_statement, shown_errors, statement_format_option
from aggregator.cli.shared.open_catalog import catalog_or_server
from esformat.cli.parts import TABLES, chosen_format, opened_output, output_options

_EXAMPLES = """\b
Examples:
  aggregator query data "SHOW PARTITIONS"
  aggregator query data 'SELECT FROM app = web RANGE "-1h" WHERE msg CONTAINS ERROR'
  aggregator query data 'SELECT "{ts} {vars:app}: {msg}" ORDER BY ts DESC LIMIT 5'
  aggregator query data 'SELECT COUNT GROUP BY app' --format csv
  aggregator query data 'SELECT COUNT GROUP BY app' -o counts.parquet
  aggregator query data 'EXPLAIN SELECT WHERE msg CONTAINS ERROR' --format table
  aggregator query http://127.0.0.1:3030 'SELECT COUNT' --token-file token
"""


@click.command(epilog=_EXAMPLES)
@catalog_or_server
@click.argument("statement", metavar="LQL")
@statement_format_option
@output_options
def query(catalog: str, statement: str, format_: str | None, output: str, force: bool) -> None:
    """Run an LQL statement over the streams of a catalog and print its result. "-" reads it from standard input.

    The format of FILE follows from its name. If the statement is invalid, shows where, and exits with status 2.
    """
    text = sys.stdin.read() if statement == "-" else statement
    if output != "-":
        chosen = chosen_format(format_, output)
        if chosen not in FORMATS:  # of the name
            raise click.UsageError(f"-o {output}: a result cannot be written as {chosen}: choose another format")
        if chosen in TABLES:
            raise click.UsageError(f"--format {chosen} cannot be used with -o: choose another")
        format_ = chosen
    elif format_ is not None:
        format_ = chosen_format(format_, output)
    with shown_errors():
        lql.parse_statement(text)  # refused before anything is opened
        with opened_output(output, force=force) as sink:
            run_statement(catalog, text, format_, sink=sink)
