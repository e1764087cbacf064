"""`aggregator erase`: erase every event of a space."""

from __future__ import annotations

from dataclasses import asdict

import click

import aggregator
from aggregator.cli.shared.open_catalog import catalog_argument, open_read_only, open_writable, topic_argument
from esformat.cli.parts import Hex, count, json_option, say, say_json, warn

_EXAMPLES = """\b
Examples:
  aggregator erase data clicks ada --dry-run
  aggregator erase data clicks ada
  aggregator erase data clicks bob --now
"""


@click.command(epilog=_EXAMPLES)
@catalog_argument
@topic_argument
@click.argument("space", required=False)
@click.option("--space-hex", type=Hex(), metavar="HEX", help="Space to erase, in hexadecimal.")
@click.option(
    "--now", is_flag=True, help="Remove the events from the disk before returning, and check that none are left."
)
@click.option("--dry-run", is_flag=True, help="Print how many events would be erased; erase nothing.")
@json_option
def erase(
    catalog: str, topic: str, space: str | None, space_hex: bytes | None, now: bool, dry_run: bool, as_json: bool
) -> int:
    """Erase every event of SPACE from TOPIC.

    The events are hidden immediately, and removed from the disk soon after, while the catalog is open. Exit status 1 if
    --now found events left, for example in a file that another process still reads, or if SPACE has no events: it may
    be misspelled.
    """
    if (space is None) == (space_hex is None):
        raise click.UsageError("give either SPACE or --space-hex")
    key: str | bytes = space_hex if space is None else space  # type: ignore[assignment]
    with open_read_only(catalog) if dry_run else open_writable(catalog) as opened:
        chosen = opened.topic(topic)
        if dry_run:
            found = chosen.scan(space=key).count()
            if as_json:
                say_json({"topic": topic, "space": key, "events": found, "dry_run": True})
            else:
                say(f"{count(found, 'event')} would be erased")
            return 0 if found else _unknown(topic, key)
        erasure = chosen.erase(key)
        if now:
            chosen.compact()
        traces = chosen.traces(key) if now else None
        stored = now and "store" in opened.stats()
    if as_json:
        say_json({**asdict(erasure), "traces": traces and {**asdict(traces), "gone": traces.gone}})
    else:
        say(f"{count(erasure.events, 'event')} erased")
    status = 0 if traces is None else _print_traces(traces, stored=stored)
    return status if erasure.events else _unknown(topic, key)


def _unknown(topic: str, space: str | bytes) -> int:
    """Warn that the space has no events, and return status 1: a misspelled space must not look erased."""
    warn(f"{topic} has no events of {space!r}: they were already erased, or the events spell the space differently")
    return 1


def _print_traces(traces: aggregator.Traces, *, stored: bool) -> int:
    """Warn about traces that are left, and return the exit status. stored: whether the catalog has a store."""
    if traces.manifest:
        times = count(traces.manifest, "time")
        warn(f"the manifest contains the bytes of the key {times}, perhaps as part of other keys")
    places = {
        "the log": traces.logged,
        "memory": traces.unsealed,
        count(len(traces.segments), "segment"): len(traces.segments),
        "quarantine": traces.set_aside,
    }
    left = " and ".join(place for place, found in places.items() if found)
    if traces.visible:
        warn(f"the space has {count(traces.visible, 'event')} appended meanwhile: erase it again")
    elif left or traces.hidden:
        who = (
            "The store keeps them for its history, an hour by default"
            if stored
            else "Another process may still read them"
        )
        warn(
            f"the events are hidden, but not yet removed{' from ' * bool(left)}{left}. {who}. To remove them, run "
            "`aggregator compact` later, or leave the catalog open"
        )
    return int(bool(traces.visible or left or traces.hidden))
