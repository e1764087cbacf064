"""`esdb info`: summarise a segment without reading its events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

import esformat
from esformat.cli.console import moment, say, size
from esformat.cli.output import json_option, say_json
from esformat.cli.segments import files_argument, is_one, places
from esformat.io.location import Place

_EXAMPLES = """\b
Examples:
  esdb info activity.esdb
  esdb info activity.esdb --json
  esdb info parts
"""


@click.command(epilog=_EXAMPLES)
@files_argument
@json_option
def info(files: tuple[str, ...], as_json: bool) -> None:
    """Show the size, time range, columns and indexes of a segment, and the bytes of each kind of block.

    For several files, a directory or a pattern: print a line per file and a total; with --json, a list.
    """
    facts = [_info(place) for place in places(files)]
    if is_one(files):
        (say_json if as_json else _show)(facts[0])
    elif as_json:
        say_json(facts)
    else:
        _show_all(facts)


def _info(place: Place) -> dict[str, Any]:
    with esformat.open(place) as segment:
        return {**segment.info(), "schema": {field.name: str(field.type) for field in segment.schema}}


def _show_all(facts: Sequence[dict[str, Any]]) -> None:
    from esformat.cli.table import show_rows  # here: rich is slow to import

    ends = [each[f"{end}_timestamp"] for each in facts for end in ("min", "max") if each["events"]]
    total = {"path": f"{len(facts):,} files", "spaces": None}
    total |= {name: sum(each[name] for each in facts) for name in ("events", "size_bytes")}
    total |= {"min_timestamp": min(ends, default=None), "max_timestamp": max(ends, default=None)}
    names = ("file", "events", "spaces", "first", "last", "size")
    show_rows(names, map(_line, [*facts, total]), right=(1, 2, 5))


def _line(facts: dict[str, Any]) -> tuple[str, ...]:
    spaces = "" if facts["spaces"] is None else f"{facts['spaces']:,}"  # no total: a space may be in several files
    span = moment(facts["min_timestamp"]), moment(facts["max_timestamp"])
    return facts["path"], f"{facts['events']:,}", spaces, *span, size(facts["size_bytes"])


def _show(facts: dict[str, Any]) -> None:
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
