"""`aggregator clock`: show whether a catalog trusts the machine's clock for the ages of events."""

from __future__ import annotations

from dataclasses import asdict

import click

from aggregator.cli.shared.open_catalog import catalog_argument, open_read_only, open_writable
from esformat.cli.parts import json_option, moment, say, say_json

_EXAMPLES = """\b
Examples:
  aggregator clock data
  aggregator clock data --believe
"""


@click.command(epilog=_EXAMPLES)
@catalog_argument
@click.option("--believe", is_flag=True, help="Trust the clock and count ages from it. No other process may write now.")
@json_option
def clock(catalog: str, believe: bool, as_json: bool) -> int:
    """Show the time from which CATALOG counts the ages of events, and whether it trusts the clock.

    A clock that jumps ahead would suddenly make every event old, so the catalog doubts it: retention by age waits until
    the clock and incoming events have agreed for a day, or until --believe. Exit status 1 if the clock is doubted.
    """
    with open_writable(catalog) if believe else open_read_only(catalog) as opened:
        report = opened.believe_clock() if believe else opened.clock()
    if as_json:
        say_json(asdict(report))
    elif report.believed:
        say(f"the clock is trusted: {moment(report.wall_us)}")
    else:
        say(f"the clock shows {moment(report.wall_us)} and is not trusted")
        say(f"ages are counted from {moment(report.believed_us)}")
        say(
            f"the clock has run evenly for {report.agreed_s / 3600:.1f} hours; the newest events agreed with it "
            f"{report.events_for} times, with the other time {report.events_against} times"
        )
    return 0 if report.believed else 1
