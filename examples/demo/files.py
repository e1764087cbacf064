"""`python -m examples.demo files`: a tour of real events, or of the user's own, that ends with a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from esformat import convert
from esformat.cli.output import input_format_option

if TYPE_CHECKING:  # needs the extra `demo`, which may be missing
    from examples.demo.event_set import EventSet

_NEEDED = ("duckdb", "matplotlib", "pandas")
_ROLES = ("space", "timestamp", "grouping", "indexes", "timestamp_format", "timezone", "input_format")
_EXAMPLES = """\b
Examples:
  python -m examples.demo files
  python -m examples.demo files --output pictures --events 200000
  python -m examples.demo files --input orders.parquet --space customer --timestamp placed_at
  python -m examples.demo files --input access.csv.gz --space client --timestamp at --index status --index method
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default="demo-output",
    show_default=True,
    metavar="FOLDER",
    help="Folder for the files and the picture.",
)
@click.option(
    "--events",
    type=click.IntRange(min=1),
    default=300_000,
    show_default=True,
    metavar="COUNT",
    help="Number of events to generate.",
)
@click.option(
    "--input",
    "own",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Your own events instead: CSV, JSON lines, Parquet or Arrow, plain or compressed.",
)
@click.option("--space", default="space", show_default=True, metavar="COLUMN", help="Of FILE: column with the space.")
@click.option(
    "--timestamp", default="timestamp", show_default=True, metavar="COLUMN", help="Of FILE: column with the time."
)
@click.option("--grouping", metavar="COLUMN", help="Of FILE: column with the grouping.")
@click.option("--index", "indexes", multiple=True, metavar="COLUMN", help="Of FILE: index this column. Repeatable.")
@click.option("--timestamp-format", metavar="FORMAT", help="As for `esdb write`.")
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="Zone of times that name none.")
@input_format_option(*convert.FORMATS)
@click.pass_context
def files(context: click.Context, /, output: Path, events: int, own: Path | None, **options: Any) -> None:
    """Demonstrate an .esdb file with real events of this machine or with your own.

    Writes a file, verifies it, asks it questions, and compares it with Parquet, DuckDB and JSON lines. The real events
    are the git history of the current directory or, if there is none, the files of this Python; the figures come from
    generated events. Ends with a picture.
    """
    _check_use(context, own)
    try:
        import examples.demo.picture  # noqa: F401 - needed at the end; fail early if missing
        from examples.demo.errors import DemoError
        from examples.demo.run import run_demo
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _NEEDED:
            raise
        raise click.ClickException(f'the demo needs {error.name}: pip install "esformat[demo]"') from error
    from rich.console import Console

    console = Console()
    try:
        with console.status("Reading your events …"):
            chosen = None if own is None else _read(own, options)
        run_demo(output, console, chosen, events)
    except DemoError as error:
        raise click.ClickException(str(error)) from error


def _check_use(context: click.Context, own: Path | None) -> None:
    """Refuse options that would have no effect."""
    given = [
        parameter
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    for parameter in given:
        if own is None and parameter.name in _ROLES:
            raise click.UsageError(f"{parameter.opts[0]} is about a file: give that with --input")
        if own is not None and parameter.name == "events":
            raise click.UsageError("--events is about generated events: there are none with --input")


def _read(own: Path, options: dict[str, Any]) -> EventSet:
    from examples.demo.own_events import read_own_events

    try:
        clock = convert.Clock(options["timestamp_format"], options["timezone"])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    roles = convert.Roles(
        clock=clock, **{name: options[name] for name in ("space", "timestamp", "grouping", "indexes")}
    )
    return read_own_events(own, roles, convert.InputOptions(format=options["input_format"]))
