"""`esdb verify`: every byte of segments held against the rules of the format."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import esformat
from esformat.cli.console import count, progress, say, size, warn
from esformat.cli.output import json_option, say_json
from esformat.cli.program import one_line

_HINT = "restore the file from a copy, or write it again"
_EXAMPLES = """\b
Examples:
  esdb verify activity.esdb
  esdb verify activity.esdb reviews.esdb
"""


@click.command(epilog=_EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path())
@json_option
def verify(files: tuple[str, ...], as_json: bool) -> int:
    """Check every block of segments against its checksum and the rules of the format.

    A line for each FILE without a problem on standard output; a line for each problem on standard error, and exit
    status 1.
    """
    if as_json:
        facts = [_facts(file) for file in files]
        say_json(facts)
        return 0 if all(each["ok"] for each in facts) else 1
    sound = [_verify(file) for file in files]
    return 0 if all(sound) else 1


def _facts(file: str) -> dict[str, Any]:
    try:
        with progress(f"verifying {file}") as show:
            report = esformat.verify(file, progress=show)
    except (esformat.EsdbError, OSError) as error:
        return {"path": file, "ok": False, "error": one_line(error)}
    return {**asdict(report), "path": file, "ok": report.ok}


def _verify(file: str) -> bool:
    try:
        with progress(f"verifying {file}") as show:
            report = esformat.verify(file, progress=show)
    except (esformat.EsdbError, OSError) as error:
        warn(f"esdb: {one_line(error)}")
        return False
    for problem in report.problems:
        warn(f"{file}: {problem}" + ("" if problem.hint else f"; {_HINT}"))
    if report.ok:
        events, blocks = count(report.num_events, "event"), count(report.num_blocks, "block")
        say(f"{file}: ok, {events} in {blocks}, {size(report.size_bytes)}")
    return bool(report.ok)
