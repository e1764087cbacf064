"""`esdb write`: files of events into a segment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import pyarrow as pa

import esformat
from esformat.cli.console import count, moment, progress, say, size
from esformat.cli.params import ColumnType, Names
from esformat.convert import FORMATS, BadRows, Clock, Collect, InputOptions, Load, Plan, Roles, Skip, Stop, Summary

_ON_ERROR = "--on-error"
_EXAMPLES = """\b
Examples:
  esdb write reviews.esdb reviews.csv --space user --timestamp date --index rating
  esdb write activity.esdb events.jsonl.gz --space user --timestamp time --data-json
  esdb write all.esdb january.parquet february.parquet --space user --grouping app
  esdb write log.esdb log.csv --space host --timestamp at --timestamp-format '%d/%b/%Y:%H:%M:%S %z'
  cat events.jsonl | esdb write piped.esdb - --input-format jsonl --space user --timestamp time
  esdb write large.esdb huge.csv.gz --space user --timestamp date --memory 256MiB
  esdb write good.esdb dirty.csv --space user --timestamp date --on-error collect bad.jsonl
"""


class _WriteCommand(click.Command):
    """Reads `--on-error collect FILE` as one option with one value, which click cannot."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options_end = args.index("--") if "--" in args else len(args)
        for place in range(options_end - 2):
            if args[place : place + 2] == [_ON_ERROR, "collect"]:
                args = [*args[:place], f"{_ON_ERROR}=collect={args[place + 2]}", *args[place + 3 :]]
                break
        return super().parse_args(ctx, args)


class _OnError(click.ParamType[Any]):
    """stop, skip or collect with a file."""

    name = "stop|skip|collect FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        what, equals, path = value.partition("=")
        if not (path if what == "collect" else what in ("stop", "skip") and not equals):
            self.fail(f"{value!r} is none of stop, skip, collect FILE", param, ctx)
        return what, path


@click.command(cls=_WriteCommand, epilog=_EXAMPLES)
@click.argument("out", type=click.Path(dir_okay=False))
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--space", default="space", show_default=True, metavar="COLUMN", help="Whose event a row is.")
@click.option("--timestamp", default="timestamp", show_default=True, metavar="COLUMN", help="When it happened.")
@click.option("--grouping", metavar="COLUMN", help="Second key, within the space.")
@click.option("--index", "indexes", multiple=True, metavar="COLUMN", help="Index this column. Repeatable.")
@click.option("--data", metavar="COLUMN", help="The bytes of this column are the payload; others are not kept.")
@click.option("--data-json", is_flag=True, help="The columns without another use are the payload, as a JSON object.")
@click.option("--columns", type=Names(), metavar="A,B,…", help="Keep these as typed columns. Default: all left over.")
@click.option(
    "--type", "types", type=ColumnType(), multiple=True, metavar="COLUMN=TYPE",
    help="Type of a column: string, int64, float64, bool, timestamp, date, binary. Repeatable.",
)  # fmt: skip
@click.option(
    "--timestamp-format", metavar="FORMAT",
    help="How times are written: s, ms, us, ns since 1970, iso, or as '%d/%m/%Y %H:%M'. Default: ISO 8601.",
)  # fmt: skip
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="Zone of times that name none.")
@click.option("--input-format", type=click.Choice(FORMATS), help="Default: by the file's name.")
@click.option("--delimiter", metavar="CHAR", help="Between the fields of CSV. Default: a comma.")
@click.option("--header", type=Names(), metavar="A,B,…", help="Column names of CSV whose first line has none.")
@click.option("--null", "nulls", multiple=True, metavar="TEXT", help="In CSV, this means no value. Repeatable.")
@click.option("--keys", type=click.Choice(["text", "binary"]), default="text", show_default=True, help="Kind of keys.")
@click.option("--codec", type=click.Choice(["zstd", "lz4", "none"]), default="zstd", show_default=True)
@click.option("--level", type=int, help="Of the codec: higher is smaller and slower.")
@click.option(
    _ON_ERROR, type=_OnError(), default=("stop", ""), metavar="stop|skip|collect FILE",
    help="What to do with rows that are no events. Default: stop.",
)  # fmt: skip
@click.option(
    "--memory", metavar="SIZE", default="1GiB", show_default=True, help="Most that events may take in memory."
)
@click.option("--temp-dir", metavar="DIR", help="Where events wait that are more than that. Default: beside OUT.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def write(out: str, inputs: tuple[str, ...], **options: Any) -> None:
    """Write the events of files to a segment OUT.

    INPUT is CSV, JSON lines, Parquet or Arrow, plain or compressed (.gz, .bz2, .zst), or "-" for standard input. OUT
    appears when it is complete. Keys, indexes and payloads of CSV stay the text they are; the other columns become
    numbers where that loses nothing.
    """
    started = perf_counter()
    roles, written = _roles(options), _input_options(options)
    _check_files(out, inputs, options)

    def create(_: Plan) -> esformat.Writer:
        return esformat.create(
            out, indexes=roles.indexes, keys=roles.keys, codec=options["codec"], level=options["level"],
            properties=_origin(roles), overwrite=options["force"], memory=options["memory"],
            temp_dir=options["temp_dir"],
        )  # fmt: skip

    with progress("reading") as show, Load(inputs, roles, written, bad_rows=_bad_rows(options), progress=show) as load:
        summary = load.write(create)
    _report(out, summary, options["on_error"][1], perf_counter() - started)


def _roles(options: dict[str, Any]) -> Roles:
    try:
        clock = Clock(options["timestamp_format"], options["timezone"])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    types: dict[str, pa.DataType] = dict(options["types"])
    taken = ("space", "timestamp", "grouping", "indexes", "data", "data_json", "columns", "keys")
    return Roles(types=types, clock=clock, **{name: options[name] for name in taken})


def _input_options(options: dict[str, Any]) -> InputOptions:
    delimiter = options["delimiter"]
    if delimiter is not None:
        delimiter = "\t" if delimiter == "\\t" else delimiter
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
            raise click.UsageError(
                f"--delimiter {delimiter!r} is not one ASCII character that can stand between fields"
            )
    return InputOptions(
        format=options["input_format"], delimiter=delimiter, header=options["header"], nulls=options["nulls"]
    )


def _check_files(out: str, inputs: Sequence[str], options: dict[str, Any]) -> None:
    """Refuse what would end badly only after all the work."""
    written = [("OUT", out)]
    if options["on_error"][1]:
        written.append((f"{_ON_ERROR} collect", options["on_error"][1]))
    for what, path in written:
        if "://" in path:
            continue  # the store knows
        if not Path(path).parent.is_dir():
            raise click.UsageError(f"{what} {path}: there is no directory {Path(path).parent}")
        if any(each != "-" and _is_same(path, each) for each in inputs):
            raise click.UsageError(f"{what} {path} is an input, too: choose another name")
        if Path(path).exists() and not options["force"]:
            raise click.UsageError(f"{what} {path} exists: choose another name, or replace it with --force")


def _is_same(one: str, other: str) -> bool:
    return Path(one).exists() and Path(other).exists() and Path(one).samefile(other)


def _bad_rows(options: dict[str, Any]) -> BadRows:
    what, path = options["on_error"]
    if what == "collect":
        return Collect(Path(path))
    return Skip() if what == "skip" else Stop()


def _origin(roles: Roles) -> dict[str, str]:
    """Say in the segment's properties which columns its keys and times came from."""
    columns = {"space": roles.space, "grouping": roles.grouping, "timestamp": roles.timestamp}
    return {f"source.{role}": column for role, column in columns.items() if column is not None}


def _report(out: str, summary: Summary, collected: str, seconds: float) -> None:
    with esformat.open(out) as segment:
        each = f" ({segment.size_bytes / segment.num_events:.1f} bytes per event)" if segment.num_events else ""
        span = f", {moment(segment.min_timestamp)} to {moment(segment.max_timestamp)}" if segment.num_events else ""
        events, spaces = count(segment.num_events, "event"), count(segment.num_spaces, "space")
        say(f"{out}: {events} of {spaces}{span}")
        say(f"{size(segment.size_bytes)}{each} from {size(summary.input_bytes)} in {seconds:.1f} s")
    if summary.bad_row_count:
        say(f"{count(summary.bad_row_count, 'bad row')} left out" + (f", see {collected}" if collected else ""))
    for note in summary.notes:
        say(f"note: {note}")
