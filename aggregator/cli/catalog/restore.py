"""`aggregator restore`: restore a catalog from its object store."""

from __future__ import annotations

from dataclasses import asdict

import click

import aggregator
from aggregator.cli.shared.open_catalog import parsed_time
from esformat.cli.parts import count, json_option, progress, say, say_json, size, warn

_EXAMPLES = """\b
Examples:
  aggregator restore s3://bucket/prefix data
  aggregator restore s3://bucket/prefix data --at 2026-11-27T03:00:00Z
"""


@click.command(epilog=_EXAMPLES)
@click.argument("store")
@click.argument("directory", type=click.Path(readable=False))
@click.option("--at", metavar="TIME", help="Restore its state at TIME: ISO 8601, UTC without a zone. Default: now.")
@json_option
def restore(store: str, directory: str, at: str | None, as_json: bool) -> int:
    """Restore the catalog in the object store at STORE into DIRECTORY, which must be empty or absent.

    Record indexes, producers, policies and pipes are restored, too. If interrupted, run it again: it continues. The
    restored catalog is independent and has no store. If objects are damaged or missing in the store, they are reported,
    the rest is restored, and the exit status is 1.
    """
    with progress("restoring") as show:
        report = aggregator.restore(store, directory, at=parsed_time(at), progress=show)
    if as_json:
        say_json(asdict(report))
    else:
        segments = f"{count(report.segments, 'segment')} of {size(report.size_bytes)}"
        say(f"{directory}: {segments}, a log of {size(report.log_bytes)}")
        if not report.complete:
            say("events acknowledged after the last upload of the log are missing; see --json for the time")
        for one in report.lacking:
            warn(f"{store}/{one.name}: {one.message}")
    return 1 if report.lacking else 0
