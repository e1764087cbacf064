"""`aggregator sql`: run an SQL statement over topics and streams, and print or write its result."""

from __future__ import annotations

import sys
from typing import Any

import click

from aggregator.cli.shared.open_catalog import catalog_or_server, open_any_read_only
from esformat.cli.parts import ROWS, chosen_format, format_option, give_rows, interact, is_terminal, output_options

_EXAMPLES = """\b
Examples:
  aggregator sql data "SELECT type, count(*) FROM clicks GROUP BY 1 ORDER BY 2 DESC"
  aggregator sql data "SELECT * FROM clicks WHERE space = 'ada' ORDER BY timestamp DESC LIMIT 5"
  aggregator sql data "SELECT tags['app'] AS app, count(*) FROM streams GROUP BY 1" --format csv
  aggregator sql data "SELECT timestamp, decode(data) AS msg FROM streams LIMIT 3" --format jsonl
  aggregator sql data "FROM clicks" -o clicks.parquet
  aggregator sql http://127.0.0.1:3030 "SELECT count(*) FROM clicks" --token-file token
"""


@click.command(epilog=_EXAMPLES)
@catalog_or_server
@click.argument("statement", required=False, metavar="[SQL]")
@format_option(*ROWS, "esdb")
@output_options
def sql(catalog: str, statement: str | None, format_: str | None, output: str, force: bool) -> None:
    """Run an SQL statement over a catalog and print its result. Without SQL, read statements from the terminal.

    Topics are tables, which include unsealed events; the table "streams" has the records of streams, with their tags as
    a map. The dialect is DuckDB's. Times without a zone are UTC. "-" reads the statement from standard input. If the
    catalog is a directory, statements can also read Parquet, CSV and JSON files, named in quotes.
    A segment as output needs the columns space and timestamp.
    """
    chosen = chosen_format(format_, output)  # refused before the catalog is opened
    with open_any_read_only(catalog) as opened:
        asked: Any = opened
        if statement is None and is_terminal(sys.stdin):
            interact(asked.sql, "aggregator", format_, [*asked.topics(), "streams"])
            return
        text = sys.stdin.read() if statement in (None, "-") else statement
        give_rows(asked.sql, str(text), chosen, output, force=force)
