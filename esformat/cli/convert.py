"""`esdb convert`: a file of events in one format into a file in another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import click

import esformat
from esformat import convert as files
from esformat.cli.console import count, progress
from esformat.cli.output import (
    chosen_format,
    input_format_option,
    json_option,
    say_json,
    shown_name,
    target_format_option,
    teller,
)

_OPTION = re.compile(r"--[a-z-]+")
_EXAMPLES = """\b
Examples:
  esdb convert activity.esdb activity.parquet
  esdb convert activity.parquet again.esdb
  esdb convert activity.esdb activity.csv
  esdb convert activity.csv same.esdb --schema activity.esdb
  esdb convert events.jsonl events.esdb --space user --timestamp time --index type
  esdb convert again.esdb again.feather
"""


@click.command(epilog=_EXAMPLES)
@click.argument("source", metavar="FROM", type=click.Path())
@click.argument("target", metavar="TO", type=click.Path(dir_okay=False))
@input_format_option(*files.CONVERSION_FORMATS, text="Default: by FROM itself.")
@target_format_option(*files.CONVERSION_FORMATS, text="Default: by the name of TO.")
@click.option(
    "--schema",
    type=click.Path(),
    metavar="FILE",
    help="The segment that CSV or JSON lines came from: they are read with its columns, indexes and keys.",
)
@click.option("--space", default="space", show_default=True, metavar="COLUMN", help="Column that holds the space.")
@click.option(
    "--timestamp", default="timestamp", show_default=True, metavar="COLUMN", help="Column that holds the time."
)
@click.option("--grouping", metavar="COLUMN", help="Second key, within the space. Default: a column of that name.")
@click.option("--index", "indexes", multiple=True, metavar="COLUMN", help="Index this column. Repeatable.")
@click.option("--allow-loss", is_flag=True, help="Write CSV and JSON lines even if some values cannot be restored.")
@json_option
@click.option("--force", is_flag=True, help="Replace TO if it exists.")
def convert(
    source: str,
    target: str,
    input_format: str | None,
    format_: str | None,
    schema: str | None,
    space: str,
    timestamp: str,
    grouping: str | None,
    indexes: tuple[str, ...],
    allow_loss: bool,
    as_json: bool,
    force: bool,
) -> None:
    """Convert the events of FROM to TO: segments, Parquet, Arrow or Feather, CSV, JSON lines, files of the Go ESDB.
    "-" is standard input or output.

    What is converted comes back without a difference: Parquet and Arrow carry types, indexes and properties; CSV and
    JSON lines are read with those of --schema. A file that no conversion wrote becomes a segment as `esdb write` has
    it, by --space, --timestamp, --grouping and --index. go-esdb is an archive, go-stream a stream of the Go ESDB.
    """
    started = perf_counter()
    how = files.Conversion(
        source_format=input_format,
        target_format=format_,
        schema=schema,
        roles=files.Roles(space=space, timestamp=timestamp, grouping=grouping, indexes=indexes),
        allow_loss=allow_loss,
        overwrite=force,
    )
    notes: list[str] = []
    if format_ is not None:
        chosen_format(format_, target)  # refused before anything is read
    with _hints_of_write(), progress("converting") as show:
        events = files.convert_file(source, target, how, progress=show, note=notes.append)
    tell = teller(target)
    seconds = perf_counter() - started
    if as_json:
        say_json({"path": shown_name(target), "events": events, "seconds": round(seconds, 6), "notes": notes}, tell)
        return
    tell(f"{shown_name(target)}: {count(events, 'event')} in {seconds:.1f} s")
    for note in notes:
        tell(f"note: {note}")


@contextmanager
def _hints_of_write() -> Iterator[None]:
    """Say of options that an error speaks of, and this verb does not have, whose they are."""
    try:
        yield
    except esformat.EsdbError as error:
        known = {option for parameter in convert.params for option in parameter.opts}
        if set(_OPTION.findall(str(error))) - known:
            error.hint = f"{error.hint} (with `esdb write`)" if error.hint else "`esdb write` has these options"
        raise
