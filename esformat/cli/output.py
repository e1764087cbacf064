"""Output of commands: the format, and stdout or a file that appears only when it is complete."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, BinaryIO

import click

from esformat.cli.console import is_terminal, say, warn
from esformat.convert.formats import format_by_name, refuse_compressed
from esformat.io import publish
from esformat.io.publish import STDOUT

_BINARY = ("arrow", "arrows", "parquet", "esdb", "go-esdb", "go-stream")


json_option = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, for scripts.")
templates_option = click.option(
    "--templates/--no-templates",
    default=None,
    help="Store JSON and log lines as templates and variables: smaller, but slower lookups. Default: with zstd.",
)
TABLES = ("table", "wide", "vertical")
"""Formats for people: a table that fits the terminal, a table of full width, and one line per value."""


ROWS = ("jsonl", "json", "csv", "arrow", "parquet")
"""Formats of rows for programs."""
_BY_NAME = "json is an array. Default: by the name of FILE, else table on a terminal and jsonl in a pipe."


def say_json(facts: Any, emit: Callable[[str], None] = say) -> None:
    """Print a report as JSON. Binary keys are in hexadecimal."""
    emit(json.dumps(facts, ensure_ascii=False, indent=2, default=_plain))


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def input_format_option(*formats: str, text: str = "Default: by the file name.") -> Callable[[Any], Any]:
    """Return the option --input-format."""
    return click.option("--input-format", type=click.Choice(formats), help=text)


def target_format_option(*formats: str, text: str, default: str | None = None) -> Callable[[Any], Any]:
    """Return the option --format of a command that writes to a named file."""
    return click.option(
        "--format", "format_", type=click.Choice(formats), default=default, show_default=default is not None, help=text
    )


def format_option(*formats: str, text: str = _BY_NAME) -> Callable[[Any], Any]:
    """Return the option --format, with --wide and --vertical as short forms of two of its values."""

    def decorate(command: Any) -> Any:
        for name, help_ in (
            ("vertical", "Print a table with one line per value."),
            ("wide", "Print a table without cutting long text."),
        ):
            command = click.option(f"--{name}", "format_", flag_value=name, help=help_)(command)
        return click.option("--format", "format_", type=click.Choice([*TABLES, *formats]), help=text)(command)

    return decorate


def output_options(command: Any) -> Any:
    """Add the options --output and --force to a command that prints rows."""
    command = click.option("--force", is_flag=True, help="Replace FILE if it exists.")(command)
    text = "Write to FILE instead of standard output."
    return click.option("-o", "--output", type=click.Path(readable=False), default=STDOUT, metavar="FILE", help=text)(
        command
    )


def chosen_format(requested: str | None, out: str) -> str:
    """Return the format to write to `out` ("-": stdout). Arrow becomes a stream on stdout, else the file format."""
    if out == STDOUT and sys.stdout is None:
        raise click.UsageError("standard output is closed")
    refuse_compressed(out)
    to_terminal = out == STDOUT and is_terminal(sys.stdout)
    if requested is None:
        requested = "table" if to_terminal else _by_name(out)
    if requested in _BINARY:
        refuse_terminal(out, f"--format {requested}")
    if requested == "arrow" and (out == STDOUT or out.endswith(".arrows")):
        return "arrows"
    return requested


def _by_name(out: str) -> str:
    """The format for the extension of an output file: of .json an array, JSON lines if it has none, or .txt.

    Raises click.UsageError for an unknown extension.
    """
    ending = PurePath(out).suffix.lower()
    if ending in (".esdb", ".json"):
        return ending[1:]
    found = format_by_name(f"x{ending}")
    if found not in ROWS and ending not in ("", ".txt"):  # such as .xlsx
        raise click.UsageError(f"cannot tell a format from the name {out!r}: give --format {'|'.join(ROWS)}")
    return found or "jsonl"


@contextmanager
def opened_output(out: str, *, force: bool) -> Iterator[BinaryIO]:
    """Open stdout or the path or URI `out`, which appears if the block succeeds; a failure leaves nothing behind."""
    if out == STDOUT:
        with publish.naming_stdout():
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
    """Yield a path to write a whole segment to; for stdout it is a temporary file, copied to stdout afterwards."""
    refuse_terminal(out, "a segment")
    with publish.finished_file(out) as path:
        yield path


def report_printer(out: str) -> Callable[[str], None]:
    """Return the function that prints the report: to stderr if the output itself goes to stdout."""
    return warn if out == STDOUT else say


def shown_name(out: str) -> str:
    """The name of the output in reports."""
    return "<stdout>" if out == STDOUT else out


def refuse_terminal(out: str, what: str) -> None:
    """Raise click.UsageError if binary data would go to a terminal."""
    if out == STDOUT and is_terminal(sys.stdout):
        raise click.UsageError(f"{what} cannot be written to a terminal: name a file or use a pipe")
