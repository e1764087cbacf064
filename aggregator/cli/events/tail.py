"""`aggregator tail`: print the newest events, and follow those that arrive later."""

from __future__ import annotations

import sys
from dataclasses import replace
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from aggregator import lql
from aggregator.cli.shared.answers import (
    followed_format,
    format_of,
    shown_errors,
    statement_format_option,
    write_records,
)
from aggregator.cli.shared.open_catalog import AnyCatalog, catalog_or_server, open_any_read_only, topic_argument
from esformat import convert
from esformat.cli.parts import Limit

if TYPE_CHECKING:
    import pyarrow as pa

    from aggregator import Topic
    from aggregator.client import RemoteTopic

_EVERY_S = 0.2
_ROWS_AT_ONCE = 100_000
_EXAMPLES = """\b
Examples:
  aggregator tail data clicks
  aggregator tail data clicks -n 3 --partition 0
  aggregator tail data clicks -f | grep purchase
  aggregator tail data 'SELECT FROM app = web WHERE msg CONTAINS ERROR' -n 3
  aggregator tail data 'SELECT "{ts} {vars:app} {msg}"' -f
  aggregator tail http://127.0.0.1:3030 clicks --token-file token
"""


@click.command(epilog=_EXAMPLES)
@catalog_or_server
@topic_argument
@click.option(
    "-n",
    "--limit",
    type=Limit(),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of newest events to print first.",
)
@click.option("-f", "--follow", is_flag=True, help="Follow new events until interrupted.")
@click.option("--partition", metavar="NAME", help="Only this partition.")
@statement_format_option
def tail(catalog: str, topic: str, limit: int, follow: bool, partition: str | None, format_: str | None) -> None:
    """Print the most recently appended events of TOPIC as JSON lines with their partition and record index.

    Events that are printed together are sorted by time; otherwise the order is that of appending. TOPIC may also be an
    LQL statement that begins with SELECT: this prints its last records and, with -f, new ones, including those of
    streams created later. --format needs a statement.
    """
    with open_any_read_only(catalog) as opened:
        if topic not in opened.topics() and topic.split(None, 1)[:1] and topic.split()[0].upper() == "SELECT":
            if partition is not None:
                raise click.UsageError("--partition goes with a topic")
            with shown_errors():
                _tail_statement(opened, topic, limit, follow, format_)
            return
        if format_ is not None:
            raise click.UsageError("--format goes with a statement")
        followed = _Followed(opened.topic(topic), partition)
        _write(followed.newest(limit))
        while follow:
            fresh = followed.fresh()
            if fresh.num_rows:
                _write(fresh)
            else:
                sleep(_EVERY_S)


def _tail_statement(catalog: AnyCatalog, text: str, limit: int, follow: bool, format_: str | None) -> None:
    """Print the last records that a SELECT chooses, or those from its POSITION on; with `follow`, also later ones."""
    from aggregator.lql.parse.tree import Position, Select

    statement = lql.parse_statement(text)
    if isinstance(statement, Select) and statement.position is None and statement.offset is None:
        statement = replace(statement, position=Position("tail"), offset=-limit)
    text = lql.to_text(statement)
    if follow:
        answer: Any = catalog.tail(text)
    else:
        answer = catalog.query(text)
        if not isinstance(statement, Select) or statement.count:
            raise click.UsageError("only a SELECT without COUNT can be followed; run others with `aggregator query`")
    assert isinstance(statement, Select)  # tail refuses everything else
    chosen = (followed_format if follow else format_of)(statement, format_)
    if not follow:
        reader = answer.to_reader()
        write_records(iter(reader), reader.schema, statement, chosen, sys.stdout.buffer)
        return
    for batch in answer.batches():
        write_records(iter([batch]), batch.schema, statement, chosen, sys.stdout.buffer)
        sys.stdout.flush()


class _Followed:
    """A topic, with the position that has been read in each of its partitions."""

    def __init__(self, topic: Topic | RemoteTopic, partition: str | None) -> None:
        self._topic, self._only = topic, partition
        self._ends: dict[str, int] = {}

    def _known(self) -> dict[str, int]:
        """The current end of each partition: the record index after its last event."""
        facts = self._topic.stats()["partitions"]
        return {name: mine["end_index"] for name, mine in facts.items() if self._only in (None, name)}

    def newest(self, limit: int) -> pa.Table:
        """Return the last events, and remember where they end."""
        self._ends = self._known()
        tables = {
            name: self._topic.read(name, end - 1, limit, reverse=True).to_table()
            for name, end in self._ends.items()
            if end > 0
        }
        found = _in_order(tables)
        return found.slice(max(0, found.num_rows - limit))

    def fresh(self) -> pa.Table:
        """Return the events appended since the last call."""
        import pyarrow.compute as pc  # here: slow to import

        tables = {}
        for name, end in self._known().items():
            begin = self._ends.get(name, 0)
            if end > begin:
                table = self._topic.read(name, begin, _ROWS_AT_ONCE).to_table()
                self._ends[name] = max(begin, pc.max(table["record_index"]).as_py() + 1) if table.num_rows else end
                tables[name] = table
        return _in_order(tables)


def _in_order(tables: dict[str, pa.Table]) -> pa.Table:
    """Return the events of several partitions as one table, sorted by time."""
    import pyarrow as pa  # here: slow to import

    named = [
        table.append_column("partition", pa.repeat(pa.scalar(name), table.num_rows)) for name, table in tables.items()
    ]
    if not named:
        return pa.table({})
    order = [("timestamp", "ascending"), ("partition", "ascending"), ("record_index", "ascending")]
    return pa.concat_tables(named, promote_options="permissive").sort_by(order)


def _write(table: pa.Table) -> None:
    if table.num_rows:
        convert.write_batches(table.combine_chunks().to_batches(), table.schema, "jsonl", sys.stdout.buffer)
        sys.stdout.buffer.flush()
