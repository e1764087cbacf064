"""The options of commands that scan events, and the output of the result as a table, a count or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import click

import esformat
from esformat import convert
from esformat.cli.console import progress, say, warn
from esformat.cli.output import ROWS, TABLES, chosen_format, finished_file, format_option, opened_output, output_options
from esformat.cli.params import Hex, Limit, Moment, Names, Pair
from esformat.cli.where import Where

if TYPE_CHECKING:
    import pyarrow as pa

_OPTIONS = (
    click.option("--space", metavar="KEY", help="Only the events of this space."),
    click.option("--space-hex", type=Hex(), metavar="HEX", help="The same, with a hexadecimal key."),
    click.option("--grouping", metavar="KEY", help="Only the events of this grouping."),
    click.option("--grouping-hex", type=Hex(), metavar="HEX", help="The same, with a hexadecimal key."),
    click.option(
        "--index", "conditions", type=Pair(once=False), multiple=True, metavar="NAME=VALUE",
        help="Only events with this value of an index. Repeatable: all must match.",
    ),
    click.option(
        "--where", type=Where(), multiple=True, metavar="CONDITION",
        help="Only events that match: NAME = VALUE, with = != < <= > >=, or NAME IN (A, B). A column of text compares "
        "as text; a missing value matches nothing. Put unusual names in double quotes. Repeatable: all must match.",
    ),
    click.option("--start", type=Moment(), metavar="TIME", help="Events from this time on: ISO 8601 or Unix time."),
    click.option("--end", type=Moment(), metavar="TIME", help="Events before this time."),
    click.option("--reverse", is_flag=True, help="Reverse the order: last event first."),
    click.option("--limit", type=Limit(), metavar="N", help="At most N events. Default: 50 in a table."),
    click.option("--columns", type=Names(empty=False), metavar="A,B,…", help="Only these columns."),
    click.option("--count", "only_count", is_flag=True, help="Print only the number of events."),
    format_option(*ROWS, "esdb"),
    output_options,
)  # fmt: skip


class Answer(Protocol):
    """The result of a scan."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events, in batches."""

    def count(self) -> int:
        """The number of events."""


def question_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a scan to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def one_of(question: dict[str, Any], name: str) -> str | bytes | None:
    """Return a key that was given as text or in hexadecimal. Raises click.UsageError if both were given."""
    text, in_hex = question[name], question[f"{name}_hex"]
    if text is not None and in_hex is not None:
        raise click.UsageError(f"give only one of --{name} and --{name}-hex")
    key: str | bytes | None = in_hex if text is None else text
    return key


def read_conditions(pairs: Sequence[tuple[str, str]], indexes: Iterable[str], schema: pa.Schema) -> dict[str, Any]:
    """Convert the values of --index to the types of the indexes. Raises click.UsageError for an invalid value."""
    conditions = dict(_condition(*pair, list(indexes), schema) for pair in pairs)
    if len(conditions) < len(pairs):
        raise click.UsageError("--index gives two values for one index, but an event has only one")
    return conditions


def _condition(name: str, text: str, indexes: list[str], schema: pa.Schema) -> tuple[str, Any]:
    """Convert the text of a condition to a value of the index's type. Names of indexes may contain "="."""
    import pyarrow as pa  # here: slow to import

    given = f"{name}={text}"
    name = max((each for each in indexes if given.startswith(f"{each}=")), key=len, default=name)
    text = given[len(name) + 1 :]
    if name not in indexes:
        return name, text  # the scan raises the error
    type_ = schema.field(name).type
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):  # indexes with integers of several types
        try:
            return name, int(text)
        except ValueError:
            raise click.UsageError(f"--index {given}: the values of {name!r} are integers") from None
    if pa.types.is_boolean(type_):
        if text.lower() not in ("true", "false"):
            raise click.UsageError(f"--index {given}: the values of {name!r} are true and false")
        return name, text.lower() == "true"
    return name, text


def give_answer(
    ask: Callable[[int | None], Answer], limit: int | None, format_: str | None, output: str,
    *, force: bool, only_count: bool, indexes: Iterable[str],
) -> None:  # fmt: skip
    """Call `ask` with a limit and print or write the result. indexes: for a new segment."""
    chosen = chosen_format(format_, output)
    if only_count:
        say(str(ask(limit).count()))
    elif chosen in TABLES and output == "-":
        _print_table(ask, limit, chosen)
    elif chosen in TABLES:
        raise click.UsageError(f"--format {chosen} goes to standard output only: choose another format for -o")
    else:
        answer = ask(limit)
        shown = nullcontext() if output == "-" else progress("writing", things=True)
        if chosen == "esdb":
            with finished_file(output) as made_at, shown as show:
                write_segment(with_progress(answer.batches(), show), answer.schema, indexes, made_at, force=force)
            return
        with opened_output(output, force=force) as sink, shown as show:
            convert.write_batches(with_progress(answer.batches(), show), answer.schema, chosen, sink, warn)


def write_segment(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, indexes: Iterable[str], file: str, *, force: bool
) -> int:
    """Write events to a segment with those `indexes` that its columns allow. Returns the number of events."""
    import pyarrow as pa  # here: slow to import

    from esformat.format.schema import without_keys

    if missing := [name for name in ("space", "timestamp") if name not in schema.names]:
        raise click.UsageError(f"events need {' and '.join(missing)}: select such columns, or choose another format")
    kinds = dict(zip(schema.names, schema.types, strict=True))  # the writer refuses two columns of one name
    if pa.types.is_timestamp(kinds["timestamp"]) and kinds["timestamp"].tz is None:
        raise click.UsageError("timestamp has no time zone: select timestamp AT TIME ZONE 'UTC' AS timestamp")
    columns = without_keys(schema)
    possible = {field.name for field in columns if not pa.types.is_decimal(field.type)}
    chosen = [name for name in indexes if name in possible]
    keys = "binary" if pa.types.is_binary(kinds["space"]) else "text"
    with esformat.create(file, schema=columns, indexes=chosen, keys=keys, overwrite=force) as writer:
        for batch in batches:
            writer.add_table(batch)
    return writer.num_events


def with_progress(
    batches: Iterator[pa.RecordBatch], show: Callable[[int, int], None] | None, total: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and report the number of rows so far to a progress bar."""
    done = 0
    for batch in batches:
        yield batch
        done += batch.num_rows
        if show is not None:
            show(done, total)


def _print_table(ask: Callable[[int | None], Answer], limit: int | None, layout: str) -> None:
    from esformat.cli.table import ROWS_SHOWN, show_table  # here: rich is slow to import

    answer = ask(ROWS_SHOWN if limit is None else limit)
    shown = show_table(answer.batches(), answer.schema, layout)
    more = ask(None).count() - shown if limit is None and shown == ROWS_SHOWN else 0
    if more:
        say(f"… and {more:,} more: --limit N shows more, --format jsonl all")
