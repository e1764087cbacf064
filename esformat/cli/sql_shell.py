"""An interactive SQL prompt with history and completion."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from esformat.cli.console import say, warn
from esformat.cli.output import ROWS, TABLES
from esformat.cli.prompt import prompt_session
from esformat.cli.rows import Ask, give_rows
from esformat.errors import EsdbError

_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "HAVING", "JOIN", "USING", "count(*)", "DISTINCT",
    "DESC", "AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS NULL", "EXPLAIN", "DESCRIBE", "SUMMARIZE", "space",
    "grouping", "timestamp", "data",
)  # fmt: skip
_ENDS = ("exit", "quit", "\\q", "\\quit")
_WORD = re.compile(r"[\w./*:-]*$")
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_SHOW_TABLES = ("\\tables", "\\d", "\\dt", ".tables")
_HELP = """\
A statement ends with a semicolon. {example}
\\tables         what FROM accepts here, like SHOW TABLES;
\\format NAME    how answers are printed: table, wide, vertical, jsonl, json, csv
\\help           this text
\\quit           end; so do exit, quit and Ctrl-D"""
_OF_TABLES = "FROM takes a table: SELECT count(*) FROM "
_OF_FILES = "FROM takes a file in quotes: SELECT count(*) FROM 'clicks.esdb';"


def interact(ask: Ask, program: str, format_: str | None, names: Iterable[str] = ()) -> None:
    """Prompt for statements until the user quits.

    names: tables to complete, besides the segments of the current directory.

    Raises click.UsageError if prompt_toolkit is missing.
    """
    session = _session(program, names)
    say("Statements end with a semicolon; \\help lists the other commands.")
    shown = format_ or "table"
    example = next((_OF_TABLES + f"{name};" for name in names), _OF_FILES)
    while True:
        try:
            text = session.prompt().strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        name, _, rest = text.rstrip(";").partition(" ")
        if name.lower() in _ENDS:
            return
        if name.lower() in _SHOW_TABLES:
            _try(ask, "SHOW TABLES", shown)
        elif name == "\\format" and rest.strip() in (*TABLES, *ROWS):
            shown = rest.strip()
        elif name.lower() in ("\\help", "help"):
            say(_HELP.format(example=example))
        elif text.startswith("\\"):
            warn(f"no such command, or not in this form: {text}; \\help lists them")
        elif text:
            _try(ask, text, shown)


def _try(ask: Ask, text: str, shown: str) -> None:
    try:
        give_rows(ask, text, shown)
    except (EsdbError, OSError, click.UsageError) as error:
        click.echo(str(error), err=True)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)


def is_whole(text: str) -> bool:
    """Whether Enter runs the text: a statement that ends with a semicolon, or a command."""
    plain = _QUOTED.sub("", text).strip()
    return plain.endswith(";") or plain.startswith(("\\", ".")) or plain.lower() in ("", "help", *_ENDS)


def completions(before: str, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield completions of the word at the end of `before`, each with the number of characters that it replaces."""
    found = _WORD.search(before)
    word = found[0] if found else ""
    in_quotes = before[: len(before) - len(word)].count("'") % 2 == 1
    candidates = sorted(names) if in_quotes else [*sorted(names), *_KEYWORDS]
    for one in candidates:
        if word and one.lower().startswith(word.lower()) and one != word:
            yield one, len(word)


def _session(program: str, names: Iterable[str]) -> Any:
    def complete(before: str) -> Iterator[tuple[str, int]]:
        return completions(before, [*names, *(path.name for path in Path().glob("*.esdb"))])

    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / program
    folder.mkdir(parents=True, exist_ok=True)
    return prompt_session("sql", folder / "sql-history", is_whole, complete)
