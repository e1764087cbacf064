"""`aggregator rebuild-manifest`: rebuild the manifest from segments, the log and the manifest backup."""

from __future__ import annotations

from dataclasses import asdict

import click

import aggregator
from aggregator.cli.shared.open_catalog import catalog_argument
from esformat.cli.parts import count, json_option, progress, say, say_json, warn

_EXAMPLES = """\b
Examples:
  aggregator rebuild-manifest data
  aggregator rebuild-manifest data --json
"""


@click.command("rebuild-manifest", epilog=_EXAMPLES)
@catalog_argument
@click.option("--store", metavar="ADDRESS", help="Object store that has segments. Default: the one in catalog.facts.")
@json_option
def rebuild_manifest(catalog: str, store: str | None, as_json: bool) -> int:
    """Rebuild a lost or damaged manifest from the segments of CATALOG, which no process may have open.

    Every segment is read from end to end, including those that are only in its object store. Facts that are in neither
    the segments nor the log (topics without events, policies, pipes, unfinished erasures, record indexes) come from the
    file catalog.facts. Unreadable files and the old manifest are moved to quarantine/. Exit status 1 if a segment was
    set aside, or something could not be recovered.
    """
    with progress("reading") as show:
        report = aggregator.rebuild_manifest(catalog, store=store, progress=show)
    damaged = [path for path in report.quarantined if path.endswith(".esdb")]
    if as_json:
        say_json(asdict(report))
    else:
        events, segments = count(report.rows, "event"), count(report.segments, "segment")
        parts = [count(report.topics, "topic"), segments, events]
        if report.logged:
            parts.append(f"{report.logged:,} more in the log")
        if report.pipes:
            parts.append(count(report.pipes, "pipe"))
        if report.hidden:
            parts.append(count(report.hidden, "hidden space"))
        say(f"{catalog}: {', '.join(parts)}")
        for path in report.quarantined:
            warn(f"set aside: {path}")
        for sentence in report.missing:
            warn(sentence)
    return 1 if damaged or report.missing else 0
