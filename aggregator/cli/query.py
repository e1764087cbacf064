"""`aggregator query`: an LQL statement run, its answer printed."""

from __future__ import annotations

import sys

import click

from aggregator.cli.answers import run_statement, shown_errors, statement_format_option
from aggregator.cli.opened import catalog_or_server

_EXAMPLES = """\b
Examples:
  aggregator query data "SHOW PARTITIONS"
  aggregator query data 'SELECT FROM app = web RANGE "-1h" WHERE msg CONTAINS ERROR'
  aggregator query data 'SELECT "{ts} {vars:app}: {msg}" ORDER BY ts DESC LIMIT 5'
  aggregator query data 'SELECT COUNT GROUP BY app' --format csv
  aggregator query data 'EXPLAIN SELECT WHERE msg CONTAINS ERROR' --format table
  aggregator query http://127.0.0.1:3030 'SELECT COUNT' --token-file token
"""


@click.command(epilog=_EXAMPLES)
@catalog_or_server
@click.argument("statement", metavar="LQL")
@statement_format_option
def query(catalog: str, statement: str, format_: str | None) -> None:
    """Run a statement over the streams of a catalog and print the answer. "-": the statement comes from standard input.

    Exit status 2 where the statement is wrong; the place is shown.
    """
    text = sys.stdin.read() if statement == "-" else statement
    with shown_errors():
        run_statement(catalog, text, format_)
