"""`aggregator retain`: remove expired segments now."""

from __future__ import annotations

from dataclasses import asdict

import click

from aggregator.cli.shared.open_catalog import catalog_argument, open_read_only, open_writable, optional_topic
from esformat.cli.parts import count, json_option, moment, say, say_json, size

_EXAMPLES = """\b
Examples:
  aggregator retain data --dry-run
  aggregator retain data clicks
  aggregator retain data --json
"""


@click.command(epilog=_EXAMPLES)
@catalog_argument
@optional_topic
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
@json_option
def retain(catalog: str, topic: str | None, dry_run: bool, as_json: bool) -> None:
    """Remove the expired segments of CATALOG, or of one TOPIC, oldest first.

    An open catalog does this in the background. `aggregator topics --alter` sets what a topic keeps.
    """
    with open_read_only(catalog) if dry_run else open_writable(catalog) as opened:
        report = opened.retain(topic, dry_run=dry_run)
    if as_json:
        say_json({**asdict(report), "rows": report.rows, "size_bytes": report.size_bytes})
        return
    if report.removed:
        from esformat.cli.parts import show_rows  # here: rich is slow to import

        names = ("topic", "partition", "segment", "events", "bytes", "first", "last", "reason")
        rows = [
            (
                each.topic,
                each.partition,
                str(each.number),
                f"{each.rows:,}",
                size(each.size_bytes),
                moment(each.min_timestamp),
                moment(each.max_timestamp),
                each.reason,
            )
            for each in report.removed
        ]
        show_rows(names, rows, right=(2, 3, 4))
    gone = f"{count(len(report.removed), 'segment')}, {count(report.rows, 'event')}, {size(report.size_bytes)}"
    say(f"{gone} {'would be removed' if dry_run else 'removed'}; {size(report.disk_bytes)} on disk")
