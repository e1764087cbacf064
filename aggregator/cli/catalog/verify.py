"""`aggregator verify`: read every segment of a catalog from end to end."""

from __future__ import annotations

from dataclasses import asdict

import click

from aggregator.cli.shared.open_catalog import catalog_argument, open_writable, open_writable_if_possible
from esformat.cli.parts import count, json_option, moment, progress, say, say_json, warn

_EXAMPLES = """\b
Examples:
  aggregator verify data
  aggregator verify data --accept-losses --forget
  aggregator verify data --json
"""


@click.command(epilog=_EXAMPLES)
@catalog_argument
@click.option("--accept-losses", is_flag=True, help="Continue without segments that are missing or set aside.")
@click.option("--forget", is_flag=True, help="Report known problems one last time, then drop them.")
@json_option
def verify(catalog: str, accept_losses: bool, forget: bool, as_json: bool) -> int:
    """Check every segment of CATALOG against its checksums, recover the log, and find missing and orphaned files.

    A damaged segment is set aside in quarantine/, where `esdb repair` can make a copy of it; scans that need it fail
    until it is put back, or until --accept-losses says to continue without it. Exit status 1 if the catalog has
    recorded a problem. The problem of a segment that is intact again is dropped; others, such as losses, are listed
    until --forget. If another process writes, such as a server, or the directory is read-only, problems are reported
    and nothing is set aside.
    """
    changing = accept_losses or forget
    with progress("verifying"), open_writable(catalog) if changing else open_writable_if_possible(catalog) as opened:
        problems = opened.verify()
        lost = opened.accept_losses() if accept_losses else []
        if forget:
            opened.forget_problems()
        segments, events = opened.stats()["segments"], opened.stats()["rows"]
    if as_json:
        facts = {"segments": segments, "events": events}
        say_json({**facts, "problems": [asdict(each) for each in problems], "lost": [asdict(each) for each in lost]})
        return 1 if problems else 0
    for each in (*problems, *lost):
        warn(f"{moment(each.found_us)} {each.subject}: {each.message}; {each.action}")
    if not problems:
        say(f"{catalog}: ok, {count(events, 'event')}, {count(segments, 'segment')}")
    return 1 if problems else 0
