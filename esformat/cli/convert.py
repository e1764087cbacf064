"""`esdb convert`: convert files of events from one format to another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import click

import esformat
from esformat import convert as files
from esformat.cli.console import count, progress, warn
from esformat.cli.new_files import FileReport, write_files
from esformat.cli.output import chosen_format, input_format_option, json_option, shown_name, target_format_option
from esformat.cli.params import several
from esformat.convert.formats import without_extension
from esformat.io.location import Place

_EXTENSIONS = {"go-esdb": ".esdb", "go-stream": ".esdbstream"}
_OPTION = re.compile(r"--[a-z-]+")
_EXAMPLES = """\b
Examples:
  esdb convert activity.esdb activity.parquet
  esdb convert activity.parquet again.esdb
  esdb convert activity.esdb activity.csv
  esdb convert activity.csv same.esdb --schema activity.esdb
  esdb convert events.jsonl events.esdb --space user --timestamp time --index type
  esdb convert again.esdb again.feather
  esdb convert parts tables --format parquet
"""


@click.command(epilog=_EXAMPLES)
@several("sources", "FROM...")
@click.argument("out", metavar="TO", type=click.Path(readable=False))
@input_format_option(*files.CONVERSION_FORMATS, text="Default: detected from FROM.")
@target_format_option(*files.CONVERSION_FORMATS, text="Default: by the name of TO.")
@click.option(
    "--schema",
    type=click.Path(readable=False),
    metavar="FILE",
    help="The segment that the CSV or JSON lines came from; it supplies columns, indexes and keys.",
)
@click.option("--space", default="space", show_default=True, metavar="COLUMN", help="Column that contains the space.")
@click.option(
    "--timestamp", default="timestamp", show_default=True, metavar="COLUMN", help="Column that contains the time."
)
@click.option(
    "--grouping",
    metavar="COLUMN",
    help="Column that contains the grouping (the second key). Default: grouping, if present.",
)
@click.option("--index", "indexes", multiple=True, metavar="COLUMN", help="Index this column. Repeatable.")
@click.option("--allow-loss", is_flag=True, help="Write CSV and JSON lines even if some values cannot be restored.")
@json_option
@click.option("--force", is_flag=True, help="Replace TO if it exists.")
def convert(
    sources: tuple[str, ...],
    out: str,
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
) -> int:
    """Convert events between segments, Parquet, Arrow (Feather), CSV, JSON lines and files of the Go ESDB.

    FROM is a file, a directory, a pattern or a place in a store; "-" is standard input or output. If FROM names several
    files, TO is a directory, and each file becomes one file of --format in it.

    Converting back restores the events exactly: Parquet and Arrow carry types, indexes and properties; CSV and JSON
    lines take them from --schema. A file that no conversion wrote is read as by `esdb write`: --space, --timestamp,
    --grouping and --index name its columns. go-esdb is an archive of the Go ESDB, go-stream a stream.
    """
    how = files.Conversion(
        source_format=input_format,
        target_format=format_,
        schema=schema,
        roles=files.Roles(space=space, timestamp=timestamp, grouping=grouping, indexes=indexes),
        allow_loss=allow_loss,
        overwrite=force,
    )

    def write(source: Place, target: str) -> FileReport:
        started = perf_counter()
        notes: list[str] = []
        if format_ is not None:
            chosen_format(format_, target)  # fails before anything is read
        with _hints_of_write(), progress("converting") as show:
            events = files.convert_file(source, target, how, progress=show, note=notes.append)
        notes = [f"{note} (with `esdb write`)" if _speaks_of_write(note) else note for note in notes]
        shown, seconds = shown_name(target), perf_counter() - started
        facts = {"path": shown, "events": events, "seconds": round(seconds, 6), "notes": notes}
        return FileReport(
            facts, [f"{shown}: {count(events, 'event')} in {seconds:.1f} s", *(f"note: {note}" for note in notes)]
        )

    def find(names: Sequence[str]) -> Sequence[Place]:
        return files.inputs_at(names, any_name=input_format is not None, segments=True, note=warn)

    def rename(name: str) -> str:
        if format_ is None:
            raise click.UsageError(f"{out} is a directory: choose the format with --format")
        return without_extension(name) + _EXTENSIONS.get(format_, f".{format_}")

    return write_files(sources, out, write, as_json=as_json, find=find, rename=rename)


@contextmanager
def _hints_of_write() -> Iterator[None]:
    """If an error mentions options that only `esdb write` has, add a hint that says so."""
    try:
        yield
    except esformat.EsdbError as error:
        if _speaks_of_write(str(error)):
            error.hint = f"{error.hint} (with `esdb write`)" if error.hint else "`esdb write` has these options"
        raise


def _speaks_of_write(text: str) -> bool:
    """Whether a text mentions options that this verb lacks."""
    known = {option for parameter in convert.params for option in parameter.opts}
    return bool(set(_OPTION.findall(text)) - known)
