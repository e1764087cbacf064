"""`esdb sql`: run an SQL statement on segments and print or write its result."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

import esformat
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


_FILE = re.compile(r"""\s*['"]?([^\s'"();]+\.esdb)['"]?\s*""")
_UNQUOTED = re.compile(r"""\b(?:FROM|JOIN)\s+([^\s'"(),;]+\.esdb)\b""", re.IGNORECASE)


class _Command(click.Command):
    """A command that answers surplus arguments with a hint: files are named after FROM in the statement."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        file = next((found[1] for found in map(_FILE.fullmatch, args) if found), "x.esdb")
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            raise click.UsageError(f"{error.message.rstrip('.')}: {_behind_from(file)}", error.ctx) from None


@click.command(cls=_Command, epilog=_EXAMPLES)
@click.argument("statement", required=False, metavar="[SQL]")
@format_option(*ROWS, "esdb")
@output_options
def sql(statement: str | None, format_: str | None, output: str, force: bool) -> None:
    """Run an SQL statement on files and print its result; without a statement, read statements from the terminal.

    A quoted name after FROM is a segment, a directory or pattern of segments, or a place in a store; Parquet, CSV and
    JSON files work too. The dialect is DuckDB's. Times without a zone are UTC. If SQL is "-", the statement is read
    from standard input. EXPLAIN shows the plan and how many blocks of each file would be read.
    A segment as output needs the columns space and timestamp.

    `decode(data)` is the payload as text, and `decode(data)->>'$.url'` a field of a JSON payload.
    """
    chosen = chosen_format(format_, output)  # fails before a file is opened
    from esformat.duckdb import session  # needs the extra `sql`

    asking, files = session()
    with files, closing(asking):
        if statement is None and is_terminal(sys.stdin):
            interact(asking.ask, "esdb", format_)
            return
        text = sys.stdin.read() if statement in (None, "-") else statement
        with _hints(str(text)):
            give_rows(asking.ask, str(text), chosen, output, force=force)


@contextmanager
def _hints(statement: str) -> Iterator[None]:
    """Add a hint to the error if an invalid statement does not name its file in quotes after FROM."""
    try:
        yield
    except esformat.UsageError as error:
        alone, unquoted = _FILE.fullmatch(statement), _UNQUOTED.search(statement)
        if error.hint is None and alone is not None:
            error.hint = _behind_from(alone[1])
        elif error.hint is None and unquoted is not None:
            error.hint = f"quote the file name: FROM '{unquoted[1]}'"
        raise


def _behind_from(file: str) -> str:
    return f"name the file after FROM: esdb sql \"SELECT … FROM '{file}'\""  # noqa: S608 - a hint, never executed
