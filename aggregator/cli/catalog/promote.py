"""`aggregator promote`: make a follower's directory a catalog of its own."""

from __future__ import annotations

import click

import aggregator
from aggregator.cli.shared.opened import catalog_argument
from esformat.cli.parts import json_option, say, say_json, size

_EXAMPLES = """\b
Examples:
  aggregator promote copy
  aggregator promote copy --json
"""


@click.command(epilog=_EXAMPLES)
@catalog_argument
@json_option
def promote(catalog: str, as_json: bool) -> None:
    """Make CATALOG, a directory that followed a server, a catalog that is written to. The follower must have stopped.

    Stop the server before, if it still runs: what it takes in from now on is in no copy. Record indexes that it may
    have given since the follower heard from it last are passed over, 2^32 in each partition.
    """
    told = aggregator.promote(catalog)
    if as_json:
        say_json(told)
    else:
        say(f"{catalog}: promoted at position {told['position']:,}, {size(told['lag_bytes'])} behind {told['url']}")
