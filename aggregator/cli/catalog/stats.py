"""`aggregator stats`: show the contents and the size of a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from aggregator.cli.shared.open_catalog import catalog_or_server, open_any_read_only, optional_topic
from esformat.cli.parts import json_option, moment, say, say_json, size

_EXAMPLES = """\b
Examples:
  aggregator stats data
  aggregator stats data clicks
  aggregator stats data --json
  aggregator stats http://127.0.0.1:3030 --token-file token
"""


@click.command(epilog=_EXAMPLES)
@catalog_or_server
@optional_topic
@json_option
def stats(catalog: str, topic: str | None, as_json: bool) -> None:
    """Show the events, segments, bytes on disk and partitions of a catalog, or of one TOPIC."""
    with open_any_read_only(catalog) as opened:
        facts = opened.stats() if topic is None else opened.topic(topic).stats()
        for name in ("schema", "indexes", "keys") if topic is not None else ():
            facts.pop(name, None)  # a server returns these as well; `aggregator topics` shows them
        if as_json:
            say_json(facts)
            return
    from esformat.cli.parts import show_rows  # here: rich is slow to import

    if topic is None:
        show_rows(("", facts["path"]), _of_catalog(facts))
        say("")
        if facts["pipes"]:
            show_rows(("pipe", "copied", "lag", "gone", "state"), _of_pipes(facts["pipes"]), right=(1, 2, 3))
            say("")
    shown = {topic: facts} if topic is not None else facts["topics"]
    rows = [row for name, mine in shown.items() for row in _of_topic(name, mine)]
    names = ("topic", "partition", "events", "unsealed", "segments", "bytes", "record indexes", "first", "last")
    show_rows(names, rows, right=(2, 3, 4, 5, 6))


def store_rows(stored: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Rows for the lag of the store and for its problems, as far as this process knows them."""
    facts = stored["shipping"] or {}
    if "lag_bytes" in facts:
        lag = f"all but {size(facts['lag_bytes'])}, of {facts['lag_seconds']:.1f} s"
        yield "log in the store", lag if facts["lag_bytes"] else "all"
    elif facts:
        yield "newest in the store", f"of {moment(facts['shipped_us'])}"
    if trouble := facts.get("trouble") or stored.get("problem"):
        yield "store", trouble


def _of_catalog(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "events", f"{facts['rows']:,}"
    yield "segments", f"{facts['segments']:,}"
    for name, used in facts["disk"].items():
        yield f"disk, {name.replace('_', ' ')}", size(used)
    if "store" in facts:
        stored = facts["store"]
        yield "in the store", f"{stored['arrived']['segments']:,} segments, {size(stored['arrived']['bytes'])}"
        yield "only there", f"{stored['evicted']['segments']:,} segments, {size(stored['evicted']['bytes'])}"
        yield "not there yet", f"{stored['waiting']['segments']:,} segments, {size(stored['waiting']['bytes'])}"
        yield from store_rows(stored)
    if facts.get("follows") is not None:
        follows = facts["follows"]
        yield "follows", follows["url"]
        seconds = "" if follows["lag_seconds"] is None else f", complete {follows['lag_seconds']:,.0f} s ago"
        behind = f"{size(follows['lag_bytes'])} behind{seconds}" if follows["whole"] else "not a complete copy yet"
        yield "how far", f"{behind}: {follows['trouble']}" if follows["trouble"] else behind
    yield "events in quarantine", f"{sum(mine['quarantined_rows'] for mine in facts['topics'].values()):,}"
    yield "problems", f"{facts['problems']:,}" + ("" if not facts["problems"] else ": see `aggregator verify`")


def _of_pipes(pipes: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for pipe in pipes:
        yield (
            pipe["name"],
            f"{pipe['copied']:,}",
            f"{pipe['lag']:,}",
            f"{pipe['gone']:,}",
            pipe["problem"] or pipe["state"],
        )


def _of_topic(name: str, facts: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for partition, mine in facts["partitions"].items():
        yield (
            name,
            partition,
            f"{mine['rows']:,}",
            f"{mine['unsealed_rows']:,}",
            f"{mine['segments']:,}",
            size(mine["bytes"]),
            f"{mine['first_index']:,} to {mine['end_index'] - 1:,}" if mine["rows"] else "-",
            moment(mine["min_timestamp"]),
            moment(mine["max_timestamp"]),
        )
    if not facts["partitions"]:
        yield name, "-", "0", "0", "0", size(0), "-", "-", "-"
