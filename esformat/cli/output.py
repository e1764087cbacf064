"""Where the rows of a command go: stdout, or a file that appears when it is complete; and in which format."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, BinaryIO

import click

from esformat.cli.console import is_terminal, say, warn
from esformat.convert.formats import format_by_name
from esformat.io import publish
from esformat.io.publish import STDOUT

_BINARY = ("arrow", "arrows", "parquet", "esdb", "go-esdb", "go-stream")


json_option = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, for scripts.")
templates_option = click.option(
    "--templates/--no-templates",
    default=None,
    help="Store JSON and log lines as templates and variables: smaller; lookups take longer. Default: with zstd.",
)
TABLES = ("table", "wide", "vertical")
"""Formats for people: a table that fits the terminal, one that cuts nothing, and a line for each value."""


ROWS = ("jsonl", "json", "csv", "arrow", "parquet")
"""Formats of rows for programs: lines of JSON objects, one JSON array of them, and so on."""
_BY_NAME = "Default: by the name of FILE, else table on a terminal and jsonl in a pipe."


def say_json(facts: Any, tell: Callable[[str], None] = say) -> None:
    """Print a report for a script. Keys that are no text are in hexadecimal."""
    tell(json.dumps(facts, ensure_ascii=False, indent=2, default=_plain))


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def input_format_option(*formats: str, text: str = "Default: by the file's name.") -> Callable[[Any], Any]:
    """Make the option --input-format."""
    return click.option("--input-format", type=click.Choice(formats), help=text)


def target_format_option(*formats: str, text: str, default: str | None = None) -> Callable[[Any], Any]:
    """Make the option --format of a command that writes a file that it is given the name of."""
    return click.option(
        "--format", "format_", type=click.Choice(formats), default=default, show_default=default is not None, help=text
    )


def format_option(*formats: str, text: str = _BY_NAME) -> Callable[[Any], Any]:
    """Make the option --format, and --wide and --vertical, which are two of its values."""

    def decorate(command: Any) -> Any:
        for name, help_ in (
            ("vertical", "A table with a line for each value."),
            ("wide", "A table that cuts nothing."),
        ):
            command = click.option(f"--{name}", "format_", flag_value=name, help=help_)(command)
        return click.option("--format", "format_", type=click.Choice([*TABLES, *formats]), help=text)(command)

    return decorate


def output_options(command: Any) -> Any:
    """Give a command the options --output and --force, of rows."""
    command = click.option("--force", is_flag=True, help="Replace FILE if it exists.")(command)
    text = "Write to FILE instead of standard output."
    return click.option("-o", "--output", type=click.Path(readable=False), default=STDOUT, metavar="FILE", help=text)(
        command
    )


def chosen_format(asked: str | None, out: str) -> str:
    """Tell the format to write to `out`, where "-" is stdout. Arrow is a stream in a pipe, and a file in a file."""
    if out == STDOUT and sys.stdout is None:
        raise click.UsageError("standard output is closed")
    to_terminal = out == STDOUT and is_terminal(sys.stdout)
    if asked is None:
        asked = "table" if to_terminal else _by_name(out)
    if asked in _BINARY:
        refuse_terminal(out, f"--format {asked}")
    if asked == "arrow" and (out == STDOUT or out.endswith(".arrows")):
        return "arrows"
    return asked


def _by_name(out: str) -> str:
    """The format that the name of an output tells; lines of JSON where it has no ending, or that of text.

    Raises click.UsageError for an ending that tells none.
    """
    ending = PurePath(out).suffix.lower()
    if ending == ".esdb":
        return "esdb"
    found = format_by_name(f"x{ending}")
    if found not in ROWS and ending not in ("", ".txt"):  # as .xlsx; or .gz: nothing is compressed here
        raise click.UsageError(f"cannot tell a format from the name {out!r}: give --format {'|'.join(ROWS)}")
    return found or "jsonl"


@contextmanager
def opened_output(out: str, *, force: bool) -> Iterator[BinaryIO]:
    """Open stdout, or what appears as `out`, a path or a URI, when all went well, and leaves nothing when not."""
    if out == STDOUT:
        with publish.naming("standard output", "what was written before stays there"):
            yield publish.standard_output()
        return
    from esformat.io.location import publication_of  # here: pyarrow is slow to import

    publication = publication_of(out, overwrite=force)
    try:
        with publish.naming(out):
            yield publication.file
            publication.commit()
    except BaseException:
        publication.abort()
        raise


@contextmanager
def finished_file(out: str) -> Iterator[str]:
    """Give a path for a segment, which must be made as a whole; if it is for stdout, it is copied there then."""
    refuse_terminal(out, "a segment")
    with publish.finished_file(out) as path:
        yield path


def teller(out: str) -> Callable[[str], None]:
    """What prints a report: on stderr where stdout is what was made."""
    return warn if out == STDOUT else say


def shown_name(out: str) -> str:
    """What a report calls the output."""
    return "<stdout>" if out == STDOUT else out


def refuse_terminal(out: str, what: str) -> None:
    """Raise click.UsageError if bytes that nobody can read would go to a terminal."""
    if out == STDOUT and is_terminal(sys.stdout):
        raise click.UsageError(f"{what} is not for a terminal: name a file, or pipe it on")
