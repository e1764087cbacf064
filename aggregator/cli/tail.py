"""`aggregator tail`: the newest events, and what comes after them."""

from __future__ import annotations

import sys
from time import sleep

import click
import pyarrow as pa
import pyarrow.compute as pc

from aggregator import Topic
from aggregator.cli.opened import catalog_argument, reading, topic_argument
from esformat.cli.parts import Limit
from esformat.convert import write_batches

_EVERY_S = 0.2
_ROWS_AT_ONCE = 100_000
_EXAMPLES = """\b
Examples:
  aggregator tail data clicks
  aggregator tail data clicks -n 3 --partition 0
  aggregator tail data clicks -f | grep purchase
"""


@click.command(epilog=_EXAMPLES)
@catalog_argument
@topic_argument
@click.option("-n", "--limit", type=Limit(), default=10, show_default=True, metavar="N", help="How many to begin with.")
@click.option("-f", "--follow", is_flag=True, help="Go on with events as they are appended, until interrupted.")
@click.option("--partition", metavar="NAME", help="Only this partition.")
def tail(catalog: str, topic: str, limit: int, follow: bool, partition: str | None) -> None:
    """Print the events of TOPIC that were appended last, as JSON lines with their partition and record index.

    They are in the order of their timestamps among those that are printed together, else as they were appended.
    """
    with reading(catalog) as opened:
        followed = _Followed(opened.topic(topic), partition)
        _write(followed.newest(limit))
        while follow:
            fresh = followed.fresh()
            if fresh.num_rows:
                _write(fresh)
            else:
                sleep(_EVERY_S)


class _Followed:
    """A topic, and how far each of its partitions was read."""

    def __init__(self, topic: Topic, partition: str | None) -> None:
        self._topic, self._only = topic, partition
        self._ends: dict[str, int] = {}

    def _known(self) -> dict[str, int]:
        """The record index behind the last event of each partition, as it is now."""
        facts = self._topic.stats()["partitions"]
        return {name: mine["end_index"] for name, mine in facts.items() if self._only in (None, name)}

    def newest(self, limit: int) -> pa.Table:
        """The last events, and remember where they end."""
        self._ends = self._known()
        tables = {
            name: self._topic.read(name, end - 1, limit, reverse=True).to_table()
            for name, end in self._ends.items()
            if end > 0
        }
        found = _in_order(tables)
        return found.slice(max(0, found.num_rows - limit))

    def fresh(self) -> pa.Table:
        """What came since."""
        tables = {}
        for name, end in self._known().items():
            begin = self._ends.get(name, 0)
            if end > begin:
                table = self._topic.read(name, begin, _ROWS_AT_ONCE).to_table()
                self._ends[name] = max(begin, pc.max(table["record_index"]).as_py() + 1) if table.num_rows else end
                tables[name] = table
        return _in_order(tables)


def _in_order(tables: dict[str, pa.Table]) -> pa.Table:
    """Events of several partitions as one table, by time."""
    named = [
        table.append_column("partition", pa.repeat(pa.scalar(name), table.num_rows)) for name, table in tables.items()
    ]
    if not named:
        return pa.table({})
    order = [("timestamp", "ascending"), ("partition", "ascending"), ("record_index", "ascending")]
    return pa.concat_tables(named, promote_options="permissive").sort_by(order)


def _write(table: pa.Table) -> None:
    if table.num_rows:
        write_batches(table.combine_chunks().to_batches(), table.schema, "jsonl", sys.stdout.buffer)
        sys.stdout.buffer.flush()
