"""`esdb repair`: save the readable events of damaged segments."""

from __future__ import annotations

from dataclasses import asdict

import click

from esformat.cli.console import count, progress, warn
from esformat.cli.new_files import FileReport, files_and_out, write_files
from esformat.cli.output import finished_file, json_option, shown_name
from esformat.io.location import Place, name_of

_EXAMPLES = """\b
Examples:
  esdb repair damaged.esdb saved.esdb
  esdb repair damaged.esdb saved.esdb --force
  esdb repair parts saved
"""


@click.command(epilog=_EXAMPLES)
@files_and_out
@json_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def repair(files: tuple[str, ...], out: str, as_json: bool, force: bool) -> int:
    """Write the events of damaged segments that can still be read to new segments, and count the lost ones.

    Works on files that are truncated or lack their directory, indexes or footer. Prints each problem as a line on
    standard error. Exit status 1 if events are lost or may be. FILE is a segment, a directory or pattern of segments,
    or a place in a store, and is not changed. A single file goes to OUT, several go into the directory OUT.
    """
    from esformat.tools import repair as repair_segment  # here: slow to import

    def write(file: Place, target: str) -> FileReport:
        shown = shown_name(target)
        with finished_file(target) as made_at, progress("reading") as show:
            report = repair_segment(file, made_at, overwrite=force, progress=show)
        for problem in () if as_json else report.problems:
            warn(f"{name_of(file)}: {problem}")
        facts = {**asdict(report), "path": shown, "complete": report.complete}
        lost = _lost(report.lost_events, report.lost_at_least)
        return FileReport(facts, [f"{shown}: {count(report.saved_events, 'event')} saved, {lost}"], report.complete)

    return write_files(files, out, write, as_json=as_json)


def _lost(events: int | None, at_least: int) -> str:
    if events is not None:
        return "none lost" if not events else f"{events:,} lost"
    known = f"at least {at_least:,} lost; " if at_least else ""
    return f"{known}the total is unknown"
