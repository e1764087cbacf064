"""`esdb scan`: print or write the events of segments that match conditions."""

from __future__ import annotations

from typing import Any, cast

import click

from esformat.cli.console import warn
from esformat.cli.output import chosen_format
from esformat.cli.question import Answer, give_answer, one_of, question_options, read_conditions
from esformat.cli.segments import Segments, files_argument, open_segments, shown_files
from esformat.cli.where import Filtered, columns_with, is_path

_EXAMPLES = """\b
Examples:
  esdb scan activity.esdb --space customer-1
  esdb scan activity.esdb --space customer-1 --index type=purchase --reverse --limit 10
  esdb scan activity.esdb --start 2024-03-01 --end 2024-04-01 --count
  esdb scan activity.esdb --index type=purchase --index country=SE --columns space,timestamp
  esdb scan activity.esdb -o activity.parquet
  esdb scan activity.esdb --where 'country IN (SE, NO)' --where 'timestamp >= 2024-03-08' --limit 5
  esdb scan activity.esdb --columns 'space,timestamp,$.amount' --limit 5
  esdb scan activity.esdb --start 2024-03-01 -o march.esdb
  esdb scan activity.esdb --format jsonl | head -3
  esdb scan parts --index type=purchase --count
  esdb scan 'parts/*.esdb' activity.esdb --limit 5
"""


@click.command(epilog=_EXAMPLES)
@files_argument
@question_options
def scan(
    files: tuple[str, ...], format_: str | None, output: str, force: bool, only_count: bool, **question: Any
) -> None:
    """Print the events that match the options, ordered by space, then oldest first.

    FILE is a segment, a directory or pattern of segments, or a place in a store; several are read as one.
    Times without a zone are UTC. Bytes that are not UTF-8 are written as {"base64": "…"} in jsonl and csv. Arrow is
    written as a stream to standard output, and as a file with -o.
    """
    chosen_format(format_, output)  # fails before the file is opened
    with open_segments(files, output) as segments:
        found = _Question(segments, question)
        give_answer(found.scan, question["limit"], format_, output, force=force, only_count=only_count,
                    indexes=segments.indexes)  # fmt: skip


class _Question:
    """A scan of segments that can be run with different limits."""

    def __init__(self, segments: Segments, question: dict[str, Any]) -> None:
        self._segments = segments
        key = one_of(question, "space")
        self._arguments = {name: question[name] for name in ("start", "end", "reverse")}
        self._where, self._columns = question["where"], question["columns"]
        self._arguments["columns"] = columns_with(self._columns, self._where, segments.schema.names)
        self._arguments["grouping"] = one_of(question, "grouping")
        self._conditions = read_conditions(question["conditions"], segments.indexes, segments.schema)
        self._space = None if key is None else segments.find(key)
        self._is_absent = key is not None and self._space is None
        if self._is_absent:
            warn(f"{shown_files(segments)}: no space {key!r}")

    def scan(self, limit: int | None) -> Answer:
        """Scan for at most `limit` events."""
        if self._where or any(is_path(name, self._segments.schema.names) for name in self._columns or ()):
            return Filtered(self._scan(None), self._where, self._columns, limit)
        return self._scan(limit)

    def _scan(self, limit: int | None) -> Answer:
        if self._is_absent:
            return self._segments.scan(limit=0, columns=self._arguments["columns"])
        place: Any = self._segments if self._space is None else self._space
        if self._conditions:
            return cast("Answer", place.scan_index(self._conditions, limit=limit, **self._arguments))
        return cast("Answer", place.scan(limit=limit, **self._arguments))
