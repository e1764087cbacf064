"""The options of commands that read files of events, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from esformat import convert
from esformat.cli.output import input_format_option
from esformat.cli.params import ColumnType, Names
from esformat.io.location import is_same_place, locate

if TYPE_CHECKING:
    import pyarrow as pa
    from click.shell_completion import CompletionItem

ON_ERROR = "--on-error"


class InputCommand(click.Command):
    """Parses `--on-error collect FILE` as one option with one value, which click does not support."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options_end = args.index("--") if "--" in args else len(args)
        for place in range(options_end - 2):
            if args[place : place + 2] == [ON_ERROR, "collect"]:
                args = [*args[:place], f"{ON_ERROR}=collect={args[place + 2]}", *args[place + 3 :]]
                break
        return super().parse_args(ctx, args)


class _OnError(click.ParamType[Any]):
    """The value of --on-error: stop, skip, or collect with a file."""

    name = "stop|skip|collect FILE"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem  # here: seldom needed

        return [CompletionItem(what) for what in ("stop", "skip", "collect") if what.startswith(incomplete)]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        what, equals, path = value.partition("=")
        if path == "-":
            self.fail("bad rows are collected in a file, not on standard output", param, ctx)
        if not (path if what == "collect" else what in ("stop", "skip") and not equals):
            self.fail(f"invalid value {value!r}: expected stop, skip or collect FILE", param, ctx)
        return what, path


_KEYS = (
    click.option(
        "--space", default="space", show_default=True, metavar="COLUMN", help="Column that contains the space."
    ),
    click.option(
        "--timestamp", default="timestamp", show_default=True, metavar="COLUMN", help="Column that contains the time."
    ),
    click.option(
        "--grouping",
        metavar="COLUMN",
        help="Column that contains the grouping (the second key). Default: grouping, if present.",
    ),
)
_COLUMNS = (
    click.option("--data", metavar="COLUMN", help="Use the bytes of this column as payload; drop the others."),
    click.option("--data-json", is_flag=True, help="Use all remaining columns as payload, in a JSON object."),
    click.option(
        "--columns", type=Names(), metavar="A,B,…", help="Keep these as typed columns. Default: all remaining columns."
    ),
    click.option(
        "--type",
        "types",
        type=ColumnType(),
        multiple=True,
        metavar="COLUMN=TYPE",
        help="Type of a column: string, int64, float64, bool, timestamp, date, binary. Repeatable.",
    ),
    click.option(
        "--timestamp-format",
        metavar="FORMAT",
        help="Format of times: s, ms, us or ns (since 1970), iso, or a pattern such as '%d/%m/%Y %H:%M'. Default: ISO "
        "8601, or numbers since 1970 whose unit follows from their size.",
    ),
)
_DIALECT = (
    click.option("--delimiter", metavar="CHAR", help="Separator of CSV fields. Default: a comma."),
    click.option("--header", type=Names(), metavar="A,B,…", help="Column names for CSV without a header line."),
    click.option(
        "--null", "nulls", multiple=True, metavar="TEXT", help="Text that means a missing value in CSV. Repeatable."
    ),
)
_OPTIONS = (
    *_KEYS,
    *_COLUMNS,
    click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="Zone of times without one."),
    input_format_option(*convert.FORMATS),
    *_DIALECT,
    click.option(
        ON_ERROR,
        type=_OnError(),
        default=("stop", ""),
        metavar="stop|skip|collect FILE",
        help="What to do with rows that cannot be read as events. Default: stop.",
    ),
)


def input_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for reading inputs to a command, which must be an InputCommand."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for reading files to a Spark command; `reading_of` collects them."""
    for option in reversed((
        *_COLUMNS,
        *_DIALECT,
        click.option("--timezone", metavar="ZONE", help="Time zone of times without one. Default: the session's, UTC."),
        click.option(ON_ERROR, type=click.Choice(["stop", "skip"]), metavar="stop|skip", default="stop",
                     show_default=True, help="What to do with rows that cannot be read as events."),
        click.option("--schema", type=click.Path(readable=False), metavar="FILE",
                     help="The segment that the CSV or JSON lines were exported from; it supplies the columns."),
        click.option("--hive/--no-hive", default=True, show_default=True,
                     help="Read directories named NAME=VALUE as columns."),
    )):  # fmt: skip
        command = option(command)
    return command


def reading_of(options: dict[str, Any]) -> dict[str, Any]:
    """The values of `reading_options` that differ from the defaults, under the names that the jobs use."""
    names = ("data", "columns", "timestamp_format", "timezone", "delimiter", "header", "nulls", "schema")
    found = {name: options[name] for name in names if options[name]}
    return {
        **found,
        **({"data_json": True} if options["data_json"] else {}),
        **({"types": dict(options["types"])} if options["types"] else {}),
        **({"on_error": options["on_error"]} if options["on_error"] != "stop" else {}),
        **({"hive": False} if not options["hive"] else {}),
    }


def roles_of(options: dict[str, Any], *, indexes: tuple[str, ...] = (), keys: Any = "text") -> convert.Roles:
    """The roles of the columns according to the options. Raises click.UsageError for an invalid time format or zone."""
    try:
        clock = convert.Clock(options["timestamp_format"], options["timezone"])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    types: dict[str, pa.DataType] = dict(options["types"])
    taken = ("space", "timestamp", "grouping", "data", "data_json", "columns")
    return convert.Roles(
        types=types, clock=clock, indexes=indexes, keys=keys, **{name: options[name] for name in taken}
    )


def input_options_of(options: dict[str, Any]) -> convert.InputOptions:
    """The input format according to the options. Raises click.UsageError for an invalid delimiter."""
    delimiter = options["delimiter"]
    if delimiter is not None:
        delimiter = "\t" if delimiter == "\\t" else delimiter
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
            raise click.UsageError(
                f"--delimiter {delimiter!r} is not one ASCII character other than a quote or line break"
            )
    return convert.InputOptions(
        format=options["input_format"], delimiter=delimiter, header=options["header"], nulls=options["nulls"]
    )


def bad_rows_of(options: dict[str, Any], inputs: Sequence[convert.Input]) -> convert.BadRows:
    """The treatment of bad rows according to the options. Raises click.UsageError if the file for them is an input."""
    what, path = options["on_error"]
    if what == "collect":
        if any(is_same_place(locate(path), locate(each)) for each in inputs if each != "-"):
            raise click.UsageError(f"{ON_ERROR} collect {path} is an input, too: choose another name")
        return convert.Collect(path)
    return convert.Skip() if what == "skip" else convert.Stop()
