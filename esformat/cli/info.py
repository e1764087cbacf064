"""`esdb info`: what is in a segment, without reading its events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

import esformat
from esformat.cli.console import moment, say, size
from esformat.cli.output import json_option, say_json

_EXAMPLES = """\b
Examples:
  esdb info activity.esdb
  esdb info activity.esdb --json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@json_option
def info(file: str, as_json: bool) -> None:
    """Show what is in the segment FILE: how much, of when, in which columns, and what takes the space."""
    with esformat.open(file) as segment:
        facts = {**segment.info(), "schema": {field.name: str(field.type) for field in segment.schema}}
    if as_json:
        say_json(facts)
        return
    from esformat.cli.table import show_rows  # here: rich is slow to import

    show_rows(("", facts["path"]), _facts(facts))
    say("")
    show_rows(("column", "type", "index"), _columns(facts))
    say("")
    show_rows(("blocks", "count", "bytes", "share"), _blocks(facts), right=(1, 2, 3))


def _facts(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    events = facts["events"]
    yield "events", f"{events:,}"
    yield "spaces", f"{facts['spaces']:,}"
    yield "groupings", f"{facts['groupings']:,}"
    yield "first", moment(facts["min_timestamp"])
    yield "last", moment(facts["max_timestamp"])
    yield "keys", facts["keys"]
    yield "codec", facts["codec"] if facts["level"] is None else f"{facts['codec']}, level {facts['level']}"
    yield "size", size(facts["size_bytes"])
    if events:
        yield "bytes per event", f"{facts['size_bytes'] / events:.1f}"
    yield from facts["properties"].items()


def _columns(facts: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, type_ in facts["schema"].items():
        index = facts["indexes"].get(name)
        words = "" if index is None else f"{index['values']:,} values in {index['events']:,} events"
        yield name, type_, words


def _blocks(facts: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for kind, block in facts["blocks"].items():
        share = 100 * block["bytes"] / facts["size_bytes"]
        yield kind.replace("_", " "), f"{block['count']:,}", f"{block['bytes']:,}", f"{share:.1f} %"
