"""Where the rows of a command go: stdout, or a file that appears when it is complete; and in which format."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

import click

from esformat.cli.console import is_terminal

_BINARY = ("arrow", "arrows", "parquet")


def format_option(*formats: str) -> Callable[[Any], Any]:
    """Make the option --format."""
    text = "Default: table on a terminal, else jsonl."
    return click.option("--format", "format_", type=click.Choice(["table", *formats]), help=text)


def chosen_format(asked: str | None, out: str) -> str:
    """Tell the format to write to `out`, where "-" is stdout. Arrow is a stream in a pipe, and a file in a file."""
    if out == "-" and sys.stdout is None:
        raise click.UsageError("standard output is closed")
    to_terminal = out == "-" and is_terminal(sys.stdout)
    if asked is None:
        return "table" if to_terminal else "jsonl"
    if asked in _BINARY and to_terminal:
        raise click.UsageError(f"--format {asked} is not for a terminal: name a file with -o, or pipe it on")
    if asked == "arrow" and (out == "-" or out.endswith(".arrows")):
        return "arrows"
    return asked


@contextmanager
def opened_output(out: str, *, force: bool) -> Iterator[BinaryIO]:
    """Open stdout, or a file beside `out` that takes its name when all went well and is removed when not."""
    if out == "-":
        yield sys.stdout.buffer
        return
    path = Path(out)
    if path.exists() and not force:
        raise click.UsageError(f"{out} exists: choose another name, or replace it with --force")
    partial = path.with_name(f".{path.name}.{token_hex(6)}.partial")
    with partial.open("xb") as file:
        try:
            yield file
            file.flush()
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
