"""`esdb scan`: the events of a segment that answer a question, in many formats."""

from __future__ import annotations

from typing import Any

import click
import pyarrow as pa

import esformat
from esformat.cli.console import say, warn
from esformat.cli.output import chosen_format, format_option, opened_output
from esformat.cli.params import Hex, Limit, Moment, Names, Pair
from esformat.convert.sinks import write_batches

_EXAMPLES = """\b
Examples:
  esdb scan activity.esdb --space customer-1
  esdb scan activity.esdb --space customer-1 --index type=purchase --reverse --limit 10
  esdb scan activity.esdb --start 2024-03-01 --end 2024-04-01 --count
  esdb scan activity.esdb --index type=purchase --index country=SE --columns space,timestamp
  esdb scan activity.esdb --format parquet -o activity.parquet
  esdb scan activity.esdb --format jsonl | head -3
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.option("--space", metavar="KEY", help="Only the events of this space.")
@click.option("--space-hex", type=Hex(), metavar="HEX", help="The same, with the bytes of the key in hexadecimal.")
@click.option("--grouping", metavar="KEY", help="Only this grouping.")
@click.option("--grouping-hex", type=Hex(), metavar="HEX", help="The same, in hexadecimal.")
@click.option(
    "--index", "conditions", type=Pair(), multiple=True, metavar="NAME=VALUE",
    help="Only events with this value of an index. Repeatable: all must hold.",
)  # fmt: skip
@click.option("--start", type=Moment(), metavar="TIME", help="From this time on: ISO 8601, or µs since 1970.")
@click.option("--end", type=Moment(), metavar="TIME", help="Before this time.")
@click.option("--reverse", is_flag=True, help="Last event first.")
@click.option("--limit", type=Limit(), metavar="N", help="At most N events. Default: 50 in a table.")
@click.option("--columns", type=Names(), metavar="A,B,…", help="Only these columns.")
@click.option("--count", "only_count", is_flag=True, help="Print only how many events there are.")
@format_option("jsonl", "csv", "arrow", "parquet")
@click.option("-o", "--output", default="-", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def scan(file: str, format_: str | None, output: str, force: bool, only_count: bool, **question: Any) -> None:
    """Print the events of the segment FILE that answer a question: by space, oldest first within one.

    Times without a zone are UTC. Bytes that are not UTF-8 are {"base64": "…"} in jsonl and csv. Arrow is a stream on
    standard output and a file with -o.
    """
    chosen = chosen_format(format_, output)
    with esformat.open(file) as segment:
        found = _Question(segment, question)
        if only_count:
            say(str(found.scan(question["limit"]).count()))
        elif chosen == "table" and output == "-":
            _print_table(found, question["limit"])
        elif chosen == "table":
            raise click.UsageError("--format table goes to standard output only: choose another format for -o")
        else:
            answer = found.scan(question["limit"])
            with opened_output(output, force=force) as sink:
                write_batches(answer.batches(), answer.schema, chosen, sink)


class _Question:
    """A question to a segment, ready to be asked with one limit or another."""

    def __init__(self, segment: esformat.Segment, question: dict[str, Any]) -> None:
        self._segment = segment
        key = _one_of(question, "space")
        self._arguments = {name: question[name] for name in ("start", "end", "reverse", "columns")}
        self._arguments["grouping"] = _one_of(question, "grouping")
        self._conditions = dict(_condition(segment, *pair) for pair in question["conditions"])
        if len(self._conditions) < len(question["conditions"]):
            raise click.UsageError("--index asks for two values of one index: an event has one only")
        self._space = None if key is None else segment.find(key)
        self._is_absent = key is not None and self._space is None
        if self._is_absent:
            warn(f"{segment.path}: no space {key!r}")

    def scan(self, limit: int | None) -> esformat.Scan:
        if self._is_absent:
            return self._segment.scan(limit=0, columns=self._arguments["columns"])
        place = self._segment if self._space is None else self._space
        if self._conditions:
            return place.scan_index(self._conditions, limit=limit, **self._arguments)
        return place.scan(limit=limit, **self._arguments)


def _one_of(question: dict[str, Any], name: str) -> str | bytes | None:
    """Take a key given as text or in hexadecimal."""
    text, in_hex = question[name], question[f"{name}_hex"]
    if text is not None and in_hex is not None:
        raise click.UsageError(f"--{name} and --{name}-hex both name the {name}: give one")
    key: str | bytes | None = in_hex if text is None else text
    return key


def _condition(segment: esformat.Segment, name: str, text: str) -> tuple[str, Any]:
    """Turn the text of a condition into a value of the index's type; a name may have "=" signs of its own."""
    given = f"{name}={text}"
    name = max((each for each in segment.indexes if given.startswith(f"{each}=")), key=len, default=name)
    text = given[len(name) + 1 :]
    if name not in segment.indexes:
        return name, text  # the scan says what is wrong
    type_ = segment.schema.field(name).type
    if pa.types.is_integer(type_):
        try:
            return name, int(text)
        except ValueError:
            raise click.UsageError(f"--index {given}: the values of {name!r} are integers") from None
    if pa.types.is_boolean(type_):
        if text.lower() not in ("true", "false"):
            raise click.UsageError(f"--index {given}: the values of {name!r} are true and false")
        return name, text.lower() == "true"
    return name, text


def _print_table(found: _Question, limit: int | None) -> None:
    from esformat.cli.table import ROWS_SHOWN, show_table

    answer = found.scan(ROWS_SHOWN if limit is None else limit)
    shown = show_table(answer.batches(), answer.schema)
    more = found.scan(None).count() - shown if limit is None and shown == ROWS_SHOWN else 0
    if more:
        say(f"… and {more:,} more: --limit N shows more, --format jsonl all")
