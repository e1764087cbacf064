"""`aggregator compact`: merge small segments, and remove erased spaces from the disk."""

from __future__ import annotations

from dataclasses import asdict

import click

from aggregator.cli.shared.open_catalog import catalog_argument, open_writable, optional_topic
from esformat.cli.parts import count, json_option, progress, say, say_json, size

_EXAMPLES = """\b
Examples:
  aggregator compact data
  aggregator compact data clicks --json
"""


@click.command(epilog=_EXAMPLES)
@catalog_argument
@optional_topic
@json_option
def compact(catalog: str, topic: str | None, as_json: bool) -> None:
    """Merge the segments of CATALOG, or of one TOPIC, into larger ones, and remove erased events from the disk.

    An open catalog does this in the background, a little at a time. Record indexes do not change.
    """
    with progress("compacting"), open_writable(catalog) as opened:
        report = opened.compact(topic)
    if as_json:
        say_json(asdict(report))
        return
    say(f"{count(report.merged, 'segment')} merged into {report.made:,}, {size(report.written_bytes)} written")
    if report.erased or report.still_erasing:
        say(f"{count(len(report.erased), 'erased space')} off the disk, {len(report.still_erasing):,} remaining")
