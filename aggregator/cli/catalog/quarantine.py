"""`aggregator quarantine`: manage the damaged files and unsealable batches that a catalog set aside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

import aggregator
from aggregator.cli.shared.open_catalog import catalog_argument, open_read_only, open_writable
from esformat import convert
from esformat.cli.parts import (
    Group,
    count,
    json_option,
    moment,
    opened_output,
    report_printer,
    say,
    say_json,
    shown_name,
    size,
    warn,
)

SHOWN = 10
_NAMES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".arrow": "arrow"}
_EXAMPLES = """\b
Examples:
  aggregator quarantine list data
  aggregator quarantine show data 1
  aggregator quarantine export data 1 batch.arrow
  aggregator quarantine retry data 1
  aggregator quarantine drop data 2
"""


@click.group(cls=Group, epilog=_EXAMPLES)
def quarantine() -> None:
    """List, show, export, retry and drop batches and files that a catalog set aside.

    Batches that cannot be sealed have numbers; damaged files have names. Scans read neither.
    """


@quarantine.command("list", epilog=_EXAMPLES)
@catalog_argument
@json_option
def list_(catalog: str, as_json: bool) -> None:
    """List the batches and files in the quarantine of CATALOG."""
    with open_read_only(catalog) as opened:
        entries = opened.quarantine.entries()
    if as_json:
        say_json([asdict(entry) for entry in entries])
        return
    if not entries:
        say("no batches in quarantine")
        return
    from esformat.cli.parts import show_rows  # here: rich is slow to import

    names = ("", "topic", "partition", "events", "record indexes", "bytes", "since", "reason")
    show_rows(names, [_row(entry) for entry in entries], right=(3, 4, 5))


def _row(entry: aggregator.Quarantined) -> tuple[str, ...]:
    since, taken = moment(entry.created_us), size(entry.size_bytes)
    if entry.number is None:
        return entry.name, "-", "-", "-", "-", taken, since, entry.reason
    span = f"{entry.first_index:,} to {entry.last_index:,}"
    return (
        str(entry.number),
        entry.topic or "",
        entry.partition or "",
        f"{entry.rows:,}",
        span,
        taken,
        since,
        entry.reason,
    )


@quarantine.command(epilog=_EXAMPLES)
@catalog_argument
@click.argument("number", type=int)
@json_option
def show(catalog: str, number: int, as_json: bool) -> None:
    """Show the batch NUMBER and its first events."""
    with open_read_only(catalog) as opened:
        entry = next((each for each in opened.quarantine.entries() if each.number == number), None)
        events = opened.quarantine.events(number).slice(0, SHOWN).to_pylist()
    assert entry is not None
    if as_json:
        say_json({**asdict(entry), "events": events})
        return
    for name, value in asdict(entry).items():
        say(f"{name}: {moment(value) if name.endswith(('timestamp', '_us')) else value}")
    for event in events:
        say(repr(event))


@quarantine.command(epilog=_EXAMPLES)
@catalog_argument
@click.argument("number", type=int)
@click.argument("file", type=click.Path(dir_okay=False, readable=False))
@json_option
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def export(catalog: str, number: int, file: str, as_json: bool, force: bool) -> None:
    """Write the events of the batch NUMBER to FILE, which ends with .arrow or .jsonl, or as JSON lines to "-"."""
    format_ = "jsonl" if file == "-" else next((_NAMES[end] for end in _NAMES if file.lower().endswith(end)), None)
    if format_ is None:
        raise click.UsageError(f"cannot tell a format from the name {file!r}: it must end with .arrow or .jsonl")
    with open_read_only(catalog) as opened:
        events = opened.quarantine.events(number)
    with opened_output(file, force=force) as sink:
        convert.write_batches(events.to_batches(), events.schema, format_, sink, warn)
    if as_json:
        say_json({"path": shown_name(file), "events": len(events)}, report_printer(file))
    else:
        report_printer(file)(f"{shown_name(file)}: {count(len(events), 'event')}")


@quarantine.command(epilog=_EXAMPLES)
@catalog_argument
@click.argument("numbers", type=int, nargs=-1, required=True)
@json_option
def retry(catalog: str, numbers: tuple[int, ...], as_json: bool) -> None:
    """Append the events of batches again, for example after an upgrade. A refused batch stays in quarantine."""
    done: list[dict[str, Any]] = []
    with open_writable(catalog) as opened, printed_at_end(done, as_json):
        for number in numbers:
            receipt = opened.quarantine.retry(number)
            first, last, events = (None, None, 0) if receipt is None else (receipt.first, receipt.last, len(receipt))
            done.append({"number": number, "events": events, "first": first, "last": last})
            if as_json:
                continue
            if receipt is None:
                say(f"{number}: all of its events were erased")
            else:
                say(f"{number}: {count(events, 'event')}, record indexes {first} to {last}")


@quarantine.command(epilog=_EXAMPLES)
@catalog_argument
@click.argument("names", nargs=-1, required=True)
@json_option
def drop(catalog: str, names: tuple[str, ...], as_json: bool) -> None:
    """Permanently delete batches, by number, and damaged files, by name."""
    done: list[dict[str, Any]] = []
    with open_writable(catalog) as opened, printed_at_end(done, as_json):
        for name in names:
            opened.quarantine.drop(int(name) if name.isdecimal() else name)
            done.append({"name": name})
            if not as_json:
                say(f"{name}: dropped")


@contextmanager
def printed_at_end(done: list[dict[str, Any]], as_json: bool) -> Iterator[None]:
    """Print the completed work as JSON, even if the rest fails."""
    try:
        yield
    finally:
        if as_json:
            say_json(done)
