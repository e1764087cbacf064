"""`esdb verify`: check every byte of segments against the format."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import esformat
from esformat.cli.console import count, progress, say, size, warn
from esformat.cli.output import json_option, say_json
from esformat.cli.program import one_line
from esformat.cli.segments import files_argument, places
from esformat.io.location import Place, name_of

_HINT = "restore the file from a copy, or write it again"
_EXAMPLES = """\b
Examples:
  esdb verify activity.esdb
  esdb verify activity.esdb reviews.esdb
  esdb verify parts
"""


@click.command(epilog=_EXAMPLES)
@files_argument
@json_option
def verify(files: tuple[str, ...], as_json: bool) -> int:
    """Check every block of segments against its checksum and the rules of the format.

    FILE is a segment, a directory or pattern of segments, or a place in a store. Prints a line for each valid file to
    standard output, and a line for each problem to standard error; exit status 1 if there are any.
    """
    found = places(files)
    if as_json:
        facts = [_facts(place) for place in found]
        say_json(facts)
        return 0 if all(each["ok"] for each in facts) else 1
    sound = [_verify(place) for place in found]
    return 0 if all(sound) else 1


def _facts(place: Place) -> dict[str, Any]:
    file = name_of(place)
    try:
        with progress(f"verifying {file}") as show:
            report = esformat.verify(place, progress=show)
    except (esformat.EsdbError, OSError) as error:
        return {"path": file, "ok": False, "error": one_line(error)}
    return {**asdict(report), "path": file, "ok": report.ok}


def _verify(place: Place) -> bool:
    file = name_of(place)
    try:
        with progress(f"verifying {file}") as show:
            report = esformat.verify(place, progress=show)
    except (esformat.EsdbError, OSError) as error:
        warn(f"esdb: {one_line(error)}")
        return False
    for problem in report.problems:
        warn(f"{file}: {problem}" + ("" if problem.hint else f"; {_HINT}"))
    if report.ok:
        events, blocks = count(report.events, "event"), count(report.blocks, "block")
        say(f"{file}: ok, {events} in {blocks}, {size(report.size_bytes)}")
    return bool(report.ok)
