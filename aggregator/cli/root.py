"""The command `aggregator` and its subcommands."""

from __future__ import annotations

from collections.abc import Sequence

import click

from aggregator import CatalogNotFoundError, InvalidRequestError, TopicExistsError, TopicNotFoundError
from esformat import __version__
from esformat.cli.parts import CONTEXT_SETTINGS, Group, Verbs, run_program

_COMMANDS = (
    "catalog/init", "catalog/topics", "events/append", "events/scan", "events/query", "events/sql", "events/tail",
    "events/shell", "events/collect", "events/forward", "catalog/stats", "events/import", "events/export",
    "catalog/verify", "catalog/quarantine", "catalog/retain", "catalog/clock", "catalog/compact", "catalog/erase",
    "catalog/store", "catalog/rebuild-manifest", "catalog/restore", "server/serve", "server/follow", "catalog/promote",
    "server/token", "server/bench",
    "completion",
)  # fmt: skip
_WRONG_USAGE = (CatalogNotFoundError, InvalidRequestError, TopicExistsError, TopicNotFoundError)


@click.group("aggregator", cls=Group, commands=Verbs("aggregator.cli", _COMMANDS), context_settings=CONTEXT_SETTINGS)
@click.version_option(__version__, prog_name="aggregator", message="%(prog)s %(version)s")
def main() -> None:
    """Append events durably, limit what is kept, and read them: a catalog of topics in one directory.

    Most commands take the CATALOG's directory first. One process can write to it, while any number read.

    Exit status: 0 on success, 1 if a problem was found, 2 for wrong usage.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status. Errors are printed to stderr, one line each."""
    return run_program(main, arguments, wrong_usage=_WRONG_USAGE)
