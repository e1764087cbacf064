"""`aggregator follow`: keep a directory an up-to-date copy of a server's catalog."""

from __future__ import annotations

import logging
from threading import Event

import click

from aggregator.cli.events.collect import ONCE_PATIENCE_S, ended_by_signals
from aggregator.cli.shared.open_catalog import access, is_address, server
from esformat.cli.parts import json_option, say, say_json, size

_EXAMPLES = """\b
Examples:
  aggregator follow http://127.0.0.1:3030 copy --token-file token
  aggregator follow http://127.0.0.1:3030 copy --once
  aggregator serve copy --follow http://127.0.0.1:3030 --bind 127.0.0.1:3031
"""


@click.command(epilog=_EXAMPLES)
@server
@click.argument("directory", type=click.Path(readable=False))
@click.option(
    "--once",
    is_flag=True,
    help="Exit when the copy has caught up, or has failed to for a minute.",
)
@json_option
def follow(url: str, directory: str, once: bool, as_json: bool) -> None:
    """Copy the catalog of the server at URL into DIRECTORY, and keep the copy up to date until SIGTERM or Ctrl-C.

    The copy is a catalog that can be read at any time, with the same topics, events, record indexes, erasures,
    producers and pipes. It continues where it was after either side was stopped or killed. The token must have the
    scope admin. `aggregator stats DIRECTORY` shows how far behind the copy is; `aggregator promote DIRECTORY` makes it
    an independent catalog when the server is gone.
    """
    if not is_address(url):
        raise click.UsageError(f"{url} is not the address of a server, such as http://127.0.0.1:3030")
    from aggregator.client.following import Follower  # needs the extra `client`

    logging.basicConfig(format="aggregator: %(message)s", level=logging.WARNING)
    token, ca = access()
    with Follower(url, directory, token=token, ca_file=ca) as follower, ended_by_signals(Event(), follower.stop):
        if once:
            follower.wait_until_caught_up(ONCE_PATIENCE_S)
        else:
            follower.wait()
        lag = follower.lag
    if as_json:
        say_json(lag)
    else:
        say(f"{directory}: at position {lag['position']:,} of the log, {size(lag['lag_bytes'])} behind")
