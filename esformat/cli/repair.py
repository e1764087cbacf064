"""`esdb repair`: what can still be read of a damaged segment, as a sound one."""

from __future__ import annotations

from dataclasses import asdict

import click

from esformat.cli.console import count, progress, warn
from esformat.cli.output import finished_file, json_option, say_json, shown_name, teller

_EXAMPLES = """\b
Examples:
  esdb repair damaged.esdb saved.esdb
  esdb repair damaged.esdb saved.esdb --force
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.argument("out", type=click.Path(dir_okay=False))
@json_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def repair(file: str, out: str, as_json: bool, force: bool) -> int:
    """Write every event that can still be read of the damaged segment FILE to OUT, and count those that are lost.

    Works on files that were cut off or lost their directory, indexes or footer. What is wrong is told on standard
    error, a line each. Exit status 1 if events are lost, or may be. FILE stays as it is.
    """
    from esformat.tools import repair as repair_segment  # here: slow to import

    tell, shown = teller(out), shown_name(out)
    with finished_file(out) as made_at, progress("reading") as show:
        report = repair_segment(file, made_at, overwrite=force, progress=show)
    if as_json:
        say_json({**asdict(report), "path": shown, "complete": report.complete}, tell)
        return 0 if report.complete else 1
    for problem in report.problems:
        warn(f"{file}: {problem}")
    tell(f"{shown}: {count(report.saved_events, 'event')} saved, {_lost(report.lost_events, report.lost_at_least)}")
    return 0 if report.complete else 1


def _lost(events: int | None, at_least: int) -> str:
    if events is not None:
        return "none lost" if not events else f"{events:,} lost"
    known = f"at least {at_least:,} lost; " if at_least else ""
    return f"{known}nothing tells how many there were"
