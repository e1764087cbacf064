"""`aggregator append`: append files of events, or a stream, to a topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from time import perf_counter
from typing import Any

import click

from aggregator.cli.shared.appending import AppendSummary, append_files
from aggregator.cli.shared.open_catalog import catalog_or_server, durability_option, open_any_writable, topic_argument
from esformat import convert
from esformat.cli.parts import InputCommand, count, input_options, json_option, say, say_json, warn

_EXAMPLES = """\b
Examples:
  aggregator append data clicks clicks.jsonl --space who --timestamp at
  aggregator append data clicks monday.parquet tuesday.csv.gz --space who --timestamp at --partition web
  cat clicks.jsonl | aggregator append data clicks - --input-format jsonl --space who --timestamp at
  aggregator append data clicks clicks.jsonl --space who --timestamp at --producer loader --json
  aggregator append http://127.0.0.1:3030 clicks clicks.jsonl --space who --timestamp at --token-file token
"""


def feeding_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the options for where and how to append events."""
    for option in (
        durability_option,
        click.option(
            "--batch-rows",
            type=click.IntRange(1, 1_000_000),
            default=10_000,
            show_default=True,
            metavar="N",
            help="Number of events to acknowledge together.",
        ),
        click.option(
            "--producer",
            metavar="NAME",
            help="Name of the producer. A second run after an error skips the batches it already stored.",
        ),
        click.option(
            "--receipts", is_flag=True, help="Print a line of JSON for each batch as soon as it is acknowledged."
        ),
        click.option("--partition", default="0", show_default=True, metavar="NAME", help="Partition to append to."),
    ):
        command = option(command)
    return command


@click.command(cls=InputCommand, epilog=_EXAMPLES)
@catalog_or_server
@topic_argument
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", type=click.Path(readable=False))
@feeding_options
@input_options
@json_option
def append(catalog: str, topic: str, inputs: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Append the events of files to TOPIC, which must exist.

    INPUT is CSV, JSON lines, Parquet or Arrow, plain or compressed (.gz, .bz2, .zst, .xz): a file, a directory, a
    pattern, an address in a store, or "-" for standard input, which is appended as it arrives. Columns get their types
    from the topic; new columns are added to it. Events appended before an error stay.
    """
    started = perf_counter()
    sources = convert.inputs_at(inputs, any_name=options["input_format"] is not None, note=warn)
    with open_any_writable(catalog, options["durability"]) as opened:
        summary = append_files(opened.topic(topic), sources, options)
    if not options["receipts"]:
        report(summary, perf_counter() - started, as_json)


def report(summary: AppendSummary, seconds: float, as_json: bool) -> None:
    """Print a summary of what was appended."""
    if as_json:
        say_json({**asdict(summary), "seconds": round(seconds, 6)})
        return
    span = "" if summary.first is None else f", record indexes {summary.first:,} to {summary.last:,}"
    say(f"{summary.topic}: {count(summary.events, 'event')} in {seconds:.1f} s{span} of partition {summary.partition}")
    if summary.duplicates:
        say(f"{summary.duplicates:,} of {summary.batches:,} batches were already stored")
    if summary.bad_rows:
        say(f"{count(summary.bad_rows, 'bad row')} left out")
    for assumption in summary.assumptions:
        say(f"note: {assumption}")
