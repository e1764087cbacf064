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
    """Make CATALOG, a follower's copy, a catalog that takes events. The follower must have stopped.

    If the server still runs, stop it first: what it takes in from now on is in no copy. 2^32 record indexes of each
    partition are skipped, as the server may have given out some since the follower last heard from it.
    """
    told = aggregator.promote(catalog)
    if as_json:
        say_json(told)
    else:
        say(f"{catalog}: promoted at position {told['position']:,}, {size(told['lag_bytes'])} behind {told['url']}")
