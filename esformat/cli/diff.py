"""`esdb diff`: compare the events of two segments, or of two sets of segments."""

from __future__ import annotations

from dataclasses import asdict

import click

from esformat import EsdbError
from esformat.cli.console import count, progress, say
from esformat.cli.output import json_option, say_json
from esformat.cli.params import Limit
from esformat.cli.program import one_line

_EXAMPLES = """\b
Examples:
  esdb diff activity.esdb merged.esdb
  esdb diff activity.esdb merged.esdb --limit 5
  esdb diff activity.esdb 'parts/first*.esdb'
"""


class _NotComparedError(click.ClickException):
    """The segments could not be compared: exit status 2, whereas a difference is status 1."""

    exit_code = 2


@click.command(epilog=_EXAMPLES)
@click.argument("left", type=click.Path(readable=False))
@click.argument("right", type=click.Path(readable=False))
@click.option("--limit", type=Limit(), default=20, show_default=True, metavar="N", help="List at most N spaces.")
@json_option
def diff(left: str, right: str, limit: int, as_json: bool) -> int:
    """Compare the columns and events of two segments, however they are encoded.

    LEFT and RIGHT are each a segment, a directory or pattern of segments, which are read as one, or a place in a store.
    Exit status: 0 if they contain the same events in the same columns, 1 if not, 2 if they cannot be compared.
    Different indexes are reported but do not count as a difference. Floats are compared by their bits: -0.0 differs
    from 0.0.
    """
    from esformat.tools import diff as diff_segments  # here: slow to import

    try:
        with progress("comparing") as show:
            report = diff_segments(left, right, progress=show)
    except (EsdbError, OSError) as error:
        raise _NotComparedError(one_line(error)) from error
    if as_json:
        facts = {**asdict(report), "spaces": [asdict(each) for each in report.spaces[:limit]]}
        say_json({"same": report.same, **facts})
        return 0 if report.same else 1
    for line in report.schema + report.indexes:
        say(line)
    for space in report.spaces[:limit]:
        key = space.space.hex() if isinstance(space.space, bytes) else space.space
        say(f"{key}: {space.only_left:,} only in {left}, {space.only_right:,} only in {right}")
    if len(report.spaces) > limit:
        say(f"… and {count(len(report.spaces) - limit, 'more space')}")
    only = f"{report.only_left:,} only in {left}, {report.only_right:,} only in {right}"
    say(f"{count(report.common, 'event')} in both, {only}")
    return 0 if report.same else 1
