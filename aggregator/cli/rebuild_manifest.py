"""`aggregator rebuild-manifest`: the manifest made anew from the segments."""

from __future__ import annotations

from dataclasses import asdict

import click

import aggregator
from aggregator.cli.opened import catalog_argument, format_option, say_json
from esformat.cli.parts import count, progress, say, warn

_EXAMPLES = """\b
Examples:
  aggregator rebuild-manifest data
  aggregator rebuild-manifest data --format json
"""


@click.command("rebuild-manifest", epilog=_EXAMPLES)
@catalog_argument
@format_option
def rebuild_manifest(catalog: str, format_: str) -> int:
    """Make the manifest of CATALOG anew from its segments, where it is lost or damaged; nobody may have it open.

    Every segment is read from end to end. What cannot be read goes to quarantine/, the old manifest, too. Exit status
    1 if a segment was set aside.
    """
    with progress("reading") as show:
        report = aggregator.rebuild_manifest(catalog, progress=show)
    damaged = [path for path in report.quarantined if path.endswith(".esdb")]
    if format_ == "json":
        say_json(asdict(report))
    else:
        events, segments = count(report.rows, "event"), count(report.segments, "segment")
        say(f"{catalog}: {count(report.topics, 'topic')}, {segments}, {events}")
        for path in report.quarantined:
            warn(f"set aside: {path}")
    return 1 if damaged else 0
