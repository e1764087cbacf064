"""`esdb sql`: a statement in SQL over segments, its answer printed or written."""

from __future__ import annotations

import sys
from contextlib import closing

import click

from esformat.cli.console import is_terminal
from esformat.cli.output import ROWS, chosen_format, format_option, output_options
from esformat.cli.rows import give_rows
from esformat.cli.sql_shell import interact

_EXAMPLES = """\b
Examples:
  esdb sql "SELECT type, count(*) FROM 'activity.esdb' GROUP BY 1 ORDER BY 2 DESC"
  esdb sql "SELECT * FROM 'activity.esdb' ORDER BY timestamp DESC LIMIT 5"
  esdb sql "SELECT space, count(*) FROM 'parts/*.esdb' WHERE type = 'purchase' GROUP BY 1" --format csv
  esdb sql "FROM 'activity.esdb' WHERE space LIKE 'customer-1%'" -o customers.parquet
  esdb sql "SELECT u.city, count(*) FROM 'activity.esdb' a JOIN 'users.csv' u USING (space) GROUP BY 1"
  esdb sql "SELECT timestamp, decode(data) AS msg FROM 'activity.esdb' WHERE space = 'other'" --format jsonl
  esdb sql "EXPLAIN SELECT count(*) FROM 'activity.esdb' WHERE space = 'customer-1'"
  esdb sql - < question.sql
"""


@click.command(epilog=_EXAMPLES)
@click.argument("statement", required=False, metavar="[SQL]")
@format_option(*ROWS)
@output_options
def sql(statement: str | None, format_: str | None, output: str, force: bool) -> None:
    """Run a statement over files and print its answer; without one, at a terminal, type statements.

    A name behind FROM, in quotes, is a segment, a directory or pattern of them, or a place in a store; Parquet, CSV and
    JSON go beside them. The dialect is DuckDB's. Times without a zone are UTC. "-": the statement comes from standard
    input. EXPLAIN tells the plan, and how many blocks each file would be read of.
    """
    chosen = chosen_format(format_, output)  # refused before a file is opened
    from esformat.duckdb import session  # needs the extra `sql`

    asking, files = session()
    with files, closing(asking):
        if statement is None and is_terminal(sys.stdin):
            interact(asking.ask, "esdb", format_)
            return
        text = sys.stdin.read() if statement in (None, "-") else statement
        give_rows(asking.ask, str(text), chosen, output, force=force)
