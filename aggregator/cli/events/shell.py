"""`aggregator shell`: run statements, typed with history and completion, or from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from aggregator import lql
from aggregator.cli.shared.answers import (
    FORMATS,
    followed_format,
    run_statement,
    shown_errors,
    statement_format_option,
    write_records,
)
from aggregator.cli.shared.open_catalog import AnyCatalog, catalog_or_server, open_any_read_only, state_folder
from aggregator.cli.shared.statements import split
from aggregator.lql.parse.completion import completions
from esformat import EsdbError
from esformat.cli.parts import count, is_terminal, prompt_session, say

_EXAMPLES = """\b
Examples:
  echo "SHOW PARTITIONS; SELECT LIMIT 3;" | aggregator shell data
  cat statements.lql | aggregator shell data --format jsonl
  echo "SHOW PARTITIONS" | aggregator shell http://127.0.0.1:3030 --token-file token
"""
_HELP = """\
A statement ends with a semicolon, or with an empty line. SELECT without LIMIT shows 50 records.
\\format NAME    how answers are printed: table, jsonl, json, csv, arrow, parquet, template;
                \\format alone: as each fits
\\follow SELECT  records as they arrive, until Ctrl-C
\\help           this text, as help; the language is described in docs/lql.md
\\quit           end; so do exit, quit and Ctrl-D"""
_ENDS = ("exit", "quit")
_HELPS = "help"


@click.command(epilog=_EXAMPLES)
@catalog_or_server
@statement_format_option
def shell(catalog: str, format_: str | None) -> None:
    """Type statements, each ended with a semicolon, and see their results; Ctrl-C stops a statement.

    If standard input is not a terminal, the statements in it are run in order; the first that fails ends the command.
    """
    with open_any_read_only(catalog) as opened:
        made = Shell(catalog, opened, format_)
        if is_terminal(sys.stdin):
            made.interact()
            return
        ended, rest = split(sys.stdin.read())
        with shown_errors():
            for text in [*ended, rest]:
                if not made.take(text):
                    return


class Shell:
    """A session of statements over one catalog."""

    def __init__(self, path: str, catalog: AnyCatalog, format_: str | None) -> None:
        self._path, self._catalog, self._format = path, catalog, format_

    def take(self, text: str) -> bool:
        """Run a statement, or a command that begins with a backslash. Return False if the session ends."""
        text = text.strip()
        if text.startswith("\\") or text.lower() == _HELPS:
            return self._command(text)
        if text.lower() in _ENDS:
            return False
        if text:
            run_statement(self._path, text, self._format, self._catalog)
        return True

    def _command(self, text: str) -> bool:
        name, _, rest = text.removeprefix("\\").partition(" ")
        if name in ("q", "quit", "exit"):
            return False
        if name == "format" and rest.strip() in ("", *FORMATS):
            self._format = rest.strip() or None
        elif name in ("follow", "watch") and rest.strip():
            self._follow(rest)
        elif name.lower() == _HELPS:
            say(_HELP)
        else:
            raise click.UsageError(f"no such command, or not in this form: {text}; \\help lists them")
        return True

    def _follow(self, text: str) -> None:
        from aggregator.lql.parse.tree import Select

        statement = lql.parse_statement(text)
        tail = self._catalog.tail(text)
        assert isinstance(statement, Select)  # tail refuses everything else
        for batch in tail.batches():
            write_records(
                iter([batch]), batch.schema, statement, followed_format(statement, self._format), sys.stdout.buffer
            )
            sys.stdout.flush()

    # ------------------------------------------------------------ at a terminal

    def interact(self) -> None:
        """Prompt until the user ends the session. Raises click.UsageError if prompt_toolkit is not installed."""
        session = self._session()
        say(f"{self._path}: {count(len(self._catalog.streams()), 'stream')}. Type \\help for help.")
        while True:
            try:
                text = session.prompt()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            try:
                if not self._all(text):
                    return
            except KeyboardInterrupt:
                click.echo("stopped", err=True)

    def _all(self, text: str) -> bool:
        if text.strip().startswith("\\"):
            ended = [text.strip().rstrip(";")]
        else:
            ended, rest = split(text)
            ended.append(rest)
        for one in ended:
            try:
                if not self.take(one):
                    return False
            except (EsdbError, OSError, click.UsageError) as error:
                click.echo(str(error), err=True)
                break
        return True

    def _session(self) -> Any:
        def complete(before: str) -> Iterator[tuple[str, int]]:
            return completions(before, self._catalog.streams(), self._pipes())

        return prompt_session("lql", state_folder() / "history", is_whole, complete)

    def _pipes(self) -> list[str]:
        try:
            table: Any = self._catalog.query("SHOW PIPES")
            return [str(name) for name in table.column(0).to_pylist()]
        except EsdbError:
            return []


def is_whole(text: str) -> bool:
    """Whether Enter runs the text: it is a command, or ends with a semicolon or an empty line."""
    _, rest = split(text)
    return text.startswith("\\") or rest.strip().lower() in ("", *_ENDS, _HELPS) or text.endswith("\n")
