"""`aggregator promote`: turn a follower's copy into an independent catalog."""

from __future__ import annotations

import click

import aggregator
from aggregator.cli.shared.open_catalog import catalog_argument
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
    """Turn CATALOG, a follower's copy, into a catalog that accepts events. The follower must have stopped.

    If the server is still running, stop it first: the copy does not get events that it accepts from now on. 2^32 record
    indexes of each partition are skipped, because the server may have assigned some since the follower last heard from
    it.
    """
    done = aggregator.promote(catalog)
    if as_json:
        say_json(done)
    else:
        say(f"{catalog}: promoted at position {done['position']:,}, {size(done['lag_bytes'])} behind {done['url']}")
