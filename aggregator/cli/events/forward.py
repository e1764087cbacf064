"""`aggregator forward`: send the records that a statement selects to another system as they arrive."""

from __future__ import annotations

import hashlib
import logging
import math
import sys
from pathlib import Path
from threading import Event
from typing import Any

import click

from aggregator import lql
from aggregator.cli.events.collect import ONCE_PATIENCE_S, ended_by_signals
from aggregator.cli.shared.answers import shown_errors
from aggregator.cli.shared.open_catalog import catalog_or_server, is_address, open_any_read_only, state_file
from esformat.cli.parts import Pair, count, json_option, say, say_json, warn

_EXAMPLES = """\b
Examples:
  aggregator forward data 'SELECT POSITION HEAD' --to stdout --once
  aggregator forward http://127.0.0.1:3030 'SELECT POSITION HEAD' --to file:web.txt --once --token-file token
  aggregator forward data 'SELECT "{ts} {msg}" FROM app = web POSITION HEAD' --to file:web.txt --once
  aggregator forward data 'SELECT WHERE msg CONTAINS ERROR' --to syslog://logs.example.org:514 -f
  aggregator forward data 'SELECT FROM {logrange.pipe=errors}' --to https://example.org/in --http-header X-Key=k -f
"""


@click.command(epilog=_EXAMPLES)
@catalog_or_server
@click.argument("statement", metavar="LQL")
@click.option(
    "--to",
    required=True,
    metavar="WHERE",
    help="stdout, file:PATH, syslog://HOST:PORT (TCP), syslog+udp://…, syslog+tls://…, http://… or https://….",
)
@click.option(
    "--state",
    type=click.Path(readable=False),
    metavar="FILE",
    help="File that records progress. Default: in ~/.local/state/aggregator.",
)
@click.option("--once", is_flag=True, help="Exit when all existing records are sent, or none is accepted for a minute.")
@click.option("-f", "--follow", is_flag=True, help="Follow new records as they arrive. This is the default.")
@click.option(
    "--http-header", "headers", type=Pair(), multiple=True, metavar="NAME=VALUE", help="Header of HTTP requests."
)
@click.option(
    "--ca",
    type=click.Path(readable=False),
    metavar="FILE",
    help="CA certificates to trust for syslog+tls instead of the system's.",
)
@click.option(
    "--priority", type=click.IntRange(0, 191), default=134, show_default=True, help="Priority of syslog messages."
)
@click.option(
    "--host", default="", metavar="NAME", help="Host name in syslog messages, for streams without a tag host."
)
@click.option(
    "--app", default="aggregator", show_default=True, help="App name in syslog messages, for streams without a tag app."
)
@json_option
def forward(catalog: str, statement: str, to: str, once: bool, follow: bool, as_json: bool, **options: Any) -> None:
    """Send the records that a SELECT chooses to another system, at least once, in order, until interrupted.

    It begins with records that arrive from now on, unless the statement has a POSITION; a later run continues where the
    last one stopped. A destination that fails is retried with growing pauses. Records are sent as JSON lines, or as
    lines in the statement's format string; syslog gets RFC 5424 messages.
    """
    if once and follow:
        raise click.UsageError("--once and --follow contradict each other")
    from aggregator.forward import Forwarder, Sender, make_destination
    from aggregator.lql.parse.tree import Select

    logging.basicConfig(format="aggregator: %(message)s", level=logging.WARNING)
    with shown_errors(), open_any_read_only(catalog) as opened:
        parsed = lql.parse_statement(statement)
        template = lql.Template.compile(parsed.format) if isinstance(parsed, Select) and parsed.format else None
        sender = Sender(options["priority"], options["host"], options["app"])
        destination = make_destination(
            to, template, sys.stdout.buffer, sender=sender, headers=dict(options["headers"]), ca=options["ca"]
        )
        place = catalog if is_address(catalog) else Path(catalog).resolve()
        digest = hashlib.sha256(f"{place} {statement} {to}".encode()).hexdigest()[:16]
        notes = state_file(options["state"], f"forward-{digest}")
        patience_s = ONCE_PATIENCE_S if once else math.inf
        made = Forwarder(opened, statement, destination, notes, once=once, patience_s=patience_s)
        with ended_by_signals(Event(), made.stop):
            made.run()
    output = warn if to in ("stdout", "-") else say
    if as_json:
        say_json({"to": to, "sent": made.sent}, output)
    elif output is say:
        say(f"{count(made.sent, 'record')} sent")
