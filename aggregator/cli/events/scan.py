"""`aggregator scan`: print the events of a topic that match, in many formats."""

from __future__ import annotations

from typing import Any

import click

from aggregator.cli.shared.open_catalog import catalog_or_server, is_address, open_any_read_only, topic_argument
from esformat.cli.parts import (
    Filtered,
    chosen_format,
    columns_with,
    give_answer,
    is_path,
    one_of,
    question_options,
    read_conditions,
)

_EXAMPLES = """\b
Examples:
  aggregator scan data clicks --space ada --reverse --limit 10
  aggregator scan data clicks --index type=purchase --start 2026-03-01 --count
  aggregator scan data clicks --partition 0 --columns record_index,space,timestamp
  aggregator scan data clicks -o clicks.parquet
  aggregator scan data clicks --format jsonl | head -3
  aggregator scan http://127.0.0.1:3030 clicks --space ada --token-file token
"""


@click.command(epilog=_EXAMPLES)
@catalog_or_server
@topic_argument
@click.option("--partition", metavar="NAME", help="Only the events of this partition.")
@question_options
def scan(
    catalog: str, topic: str, format_: str | None, output: str, force: bool, only_count: bool, **question: Any
) -> None:
    """Print the events of TOPIC that match the options: by time, oldest first, over all partitions.

    Every acknowledged event is visible, sealed or not, even while another process appends. --columns can also name
    record_index and partition. Times without a zone are UTC.
    """
    chosen_format(format_, output)  # refused before the catalog is opened
    with open_any_read_only(catalog) as opened:
        asked: Any = opened.topic(topic)
        names = ("start", "end", "reverse", "columns", "partition")
        arguments = {name: question[name] for name in names}
        where, columns = question["where"], question["columns"]
        schema = asked.scan().schema
        arguments["columns"] = columns_with(columns, where, schema.names)
        shaped = where or any(is_path(name, schema.names) for name in columns or ())
        arguments |= {name: one_of(question, name) for name in ("space", "grouping")}
        conditions = read_conditions(question["conditions"], asked.indexes, schema)

        if is_address(catalog) and len(conditions) > 1:
            raise click.UsageError("a server looks up one --index at a time: give one, or use `aggregator query`")

        def ask(limit: int | None) -> Any:
            return Filtered(scanned(None), where, columns, limit) if shaped else scanned(limit)

        def scanned(limit: int | None) -> Any:
            narrowed = arguments | {"limit": limit}
            return asked.scan_index(conditions, **narrowed) if conditions else asked.scan(**narrowed)

        give_answer(ask, question["limit"], format_, output, force=force, only_count=only_count,
                    indexes=asked.indexes)  # fmt: skip
