"""`aggregator export`: write a topic, a space or a time range to a file."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from aggregator.cli.shared.open_catalog import catalog_or_server, open_any_read_only, topic_argument
from esformat import convert
from esformat.cli.parts import (
    Filtered,
    Hex,
    Moment,
    Where,
    chosen_format,
    count,
    finished_file,
    json_option,
    one_of,
    opened_output,
    progress,
    report_printer,
    say_json,
    shown_name,
    target_format_option,
    warn,
    with_progress,
    write_segment,
)

if TYPE_CHECKING:
    pass

_FORMATS = ("esdb", "parquet", "arrow", "csv", "jsonl", "json")
_NAMES = {f".{name}": name for name in _FORMATS} | {".ndjson": "jsonl", ".feather": "arrow", ".arrows": "arrow"}
_EXAMPLES = """\b
Examples:
  aggregator export data clicks clicks.esdb
  aggregator export data clicks ada.jsonl --space ada
  aggregator export data clicks march.parquet --start 2026-03-01 --end 2026-04-01
  aggregator export http://127.0.0.1:3030 clicks copy.esdb --token-file token
"""


@click.command(epilog=_EXAMPLES)
@catalog_or_server
@topic_argument
@click.argument("file", type=click.Path(dir_okay=False, readable=False))
@click.option("--space", metavar="KEY", help="Only the events of this space.")
@click.option("--space-hex", type=Hex(), metavar="HEX", help="The same, with the bytes of the key in hexadecimal.")
@click.option("--start", type=Moment(), metavar="TIME", help="From this time on: ISO 8601, or Unix time.")
@click.option("--end", type=Moment(), metavar="TIME", help="Before this time.")
@click.option("--partition", metavar="NAME", help="Only the events of this partition.")
@click.option(
    "--where",
    type=Where(),
    multiple=True,
    metavar="CONDITION",
    help="Only events that match: NAME = VALUE, with = != < <= > >=, or NAME IN (A, B). A column of text compares as "
    "text; a missing value matches nothing. Put unusual names in double quotes. Repeatable: all must match.",
)
@target_format_option(*_FORMATS, text="Default: by the name of FILE.")
@json_option
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def export(
    catalog: str, topic: str, file: str, format_: str | None, as_json: bool, force: bool, **question: Any
) -> None:
    """Write the events of TOPIC, or some of them, to FILE: .esdb, Parquet, JSON lines, CSV or Arrow.
    "-" is standard output.

    FILE appears only when it is complete. An .esdb file has the topic's indexes and kind of keys; a column that mixes
    signed and unsigned 64-bit numbers is written as decimals, which cannot be indexed.
    """
    started = perf_counter()
    chosen = format_ or next((_NAMES[end] for end in _NAMES if file.lower().endswith(end)), None)
    chosen_format(chosen or "jsonl", file)  # refused before the catalog is opened, such as x.csv.gz
    if chosen is None:
        raise click.UsageError(f"cannot tell a format from the name {file!r}: give --format {'|'.join(_FORMATS)}")
    with open_any_read_only(catalog) as opened, progress("exporting", things=True) as show:
        exported = opened.topic(topic)
        asked = {name: question[name] for name in ("start", "end", "partition")}
        scan: Any = exported.scan(space=one_of(question, "space"), **asked)
        schema = scan.schema
        total = scan.count() if show is not None else 0
        if question["where"]:
            scan = Filtered(scan, question["where"], None, None)

        batches = with_progress(scan.batches(), show, total)
        if chosen == "esdb":
            with finished_file(file) as made_at:
                events = write_segment(batches, schema, exported.indexes, made_at, force=force)
        else:
            with opened_output(file, force=force) as sink:
                events = convert.write_batches(batches, schema, chosen_format(chosen, file), sink, warn)
    seconds = perf_counter() - started
    if as_json:
        say_json({"path": shown_name(file), "events": events, "seconds": round(seconds, 6)}, report_printer(file))
    else:
        report_printer(file)(f"{shown_name(file)}: {count(events, 'event')} in {seconds:.1f} s")
