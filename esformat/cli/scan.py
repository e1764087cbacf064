"""`esdb scan`: the events of a segment that answer a question, in many formats."""

from __future__ import annotations

from typing import Any

import click

import esformat
from esformat.cli.console import warn
from esformat.cli.output import chosen_format
from esformat.cli.question import Answer, give_answer, one_of, question_options, read_conditions
from esformat.cli.where import Filtered, columns_with

_EXAMPLES = """\b
Examples:
  esdb scan activity.esdb --space customer-1
  esdb scan activity.esdb --space customer-1 --index type=purchase --reverse --limit 10
  esdb scan activity.esdb --start 2024-03-01 --end 2024-04-01 --count
  esdb scan activity.esdb --index type=purchase --index country=SE --columns space,timestamp
  esdb scan activity.esdb -o activity.parquet
  esdb scan activity.esdb --where 'country IN (SE, NO)' --where 'timestamp >= 2024-03-08' --limit 5
  esdb scan activity.esdb --start 2024-03-01 -o march.esdb
  esdb scan activity.esdb --format jsonl | head -3
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@question_options
def scan(file: str, format_: str | None, output: str, force: bool, only_count: bool, **question: Any) -> None:
    """Print the events of the segment FILE that answer a question: by space, oldest first within one.

    Times without a zone are UTC. Bytes that are not UTF-8 are {"base64": "…"} in jsonl and csv. Arrow is a stream on
    standard output and a file with -o.
    """
    chosen_format(format_, output)  # refused before the file is opened
    with esformat.open(file) as segment:
        found = _Question(segment, question)
        give_answer(found.scan, question["limit"], format_, output, force=force, only_count=only_count,
                    indexes=segment.indexes, keys=segment.info()["keys"])  # fmt: skip


class _Question:
    """A question to a segment, ready to be asked with one limit or another."""

    def __init__(self, segment: esformat.Segment, question: dict[str, Any]) -> None:
        self._segment = segment
        key = one_of(question, "space")
        self._arguments = {name: question[name] for name in ("start", "end", "reverse")}
        self._where, self._columns = question["where"], question["columns"]
        self._arguments["columns"] = columns_with(self._columns, self._where)
        self._arguments["grouping"] = one_of(question, "grouping")
        self._conditions = read_conditions(question["conditions"], segment.indexes, segment.schema)
        self._space = None if key is None else segment.find(key)
        self._is_absent = key is not None and self._space is None
        if self._is_absent:
            warn(f"{segment.path}: no space {key!r}")

    def scan(self, limit: int | None) -> Answer:
        """The events, at most so many."""
        if self._where:
            return Filtered(self._scan(None), self._where, self._columns, limit)
        return self._scan(limit)

    def _scan(self, limit: int | None) -> esformat.Scan:
        if self._is_absent:
            return self._segment.scan(limit=0, columns=self._arguments["columns"])
        place = self._segment if self._space is None else self._space
        if self._conditions:
            return place.scan_index(self._conditions, limit=limit, **self._arguments)
        return place.scan(limit=limit, **self._arguments)
