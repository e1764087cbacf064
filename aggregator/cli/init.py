"""`aggregator init`: an empty catalog."""

from __future__ import annotations

import click

import aggregator
from aggregator.cli.opened import catalog_argument
from esformat.cli.parts import count, say

_EXAMPLES = """\b
Examples:
  aggregator init data
  aggregator init data && aggregator topics data --create clicks --index type
"""


@click.command(epilog=_EXAMPLES)
@catalog_argument
def init(catalog: str) -> None:
    """Make the directory CATALOG and an empty catalog in it. One that is there stays as it is."""
    with aggregator.open(catalog) as opened:
        say(f"{catalog}: {count(len(opened.topics()), 'topic')}")
