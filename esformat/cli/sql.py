"""`esdb sql`: a statement in SQL over segments, its answer printed or written."""

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
    """One that says where files are named, to whoever names them before the statement."""

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
@format_option(*ROWS)
@output_options
def sql(statement: str | None, format_: str | None, output: str, force: bool) -> None:
    """Run a statement over files and print its answer; without one, at a terminal, type statements.

    A quoted name after FROM is a segment, a directory or pattern of them, or a place in a store; Parquet, CSV and JSON
    files can be named beside them. The dialect is DuckDB's. Times without a zone are UTC. "-": the statement comes from
    standard input. EXPLAIN shows the plan, and how many blocks of each file would be read.

    The text of a payload is `decode(data)`, and a field of one that is JSON `decode(data)->>'$.url'`.
    """
    chosen = chosen_format(format_, output)  # refused before a file is opened
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
    """Say of a statement that is wrong how it names a file, where it does so otherwise than behind FROM, in quotes."""
    try:
        yield
    except esformat.UsageError as error:
        alone, unquoted = _FILE.fullmatch(statement), _UNQUOTED.search(statement)
        if error.hint is None and alone is not None:
            error.hint = _behind_from(alone[1])
        elif error.hint is None and unquoted is not None:
            error.hint = f"a file's name stands in quotes: FROM '{unquoted[1]}'"
        raise


def _behind_from(file: str) -> str:
    return f"a file stands behind FROM: esdb sql \"SELECT … FROM '{file}'\""  # noqa: S608 - for people to read
