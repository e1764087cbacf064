"""The command `esdb` and its verbs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from esformat import __version__
from esformat.cli.program import CONTEXT_SETTINGS, Group, Verbs, run_program

_TOOLS = ("merge", "split", "erase", "reindex", "recompress", "repair", "diff")
_COMMANDS = (
    "write",
    "info",
    "spaces",
    "values",
    "fields",
    "scan",
    "sql",
    "verify",
    "view",
    "convert",
    *_TOOLS,
    "spark",
    "completion",
)


@click.group("esdb", cls=Group, commands=Verbs("esformat.cli", _COMMANDS), context_settings=CONTEXT_SETTINGS)
@click.version_option(__version__, prog_name="esdb", message="%(prog)s %(version)s")
def main() -> None:
    """Write, read and check .esdb files: events sorted by space, grouping and time.

    Exit status: 0 on success, 1 if a problem was found, 2 for wrong usage.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status. An error is printed as one line on stderr."""
    return run_program(main, arguments)
