"""`esdb write`: write the events of files to a segment."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click

import esformat
from esformat import convert
from esformat.cli.console import count, moment, progress, size, warn
from esformat.cli.inputs import ON_ERROR, InputCommand, bad_rows_of, input_options, input_options_of, roles_of
from esformat.cli.output import finished_file, json_option, report_printer, say_json, shown_name, templates_option
from esformat.cli.params import Folder
from esformat.convert.formats import format_by_name, without_extension
from esformat.io.location import SUFFIX, exists, is_same_place, is_segment, locate, name_of, names_one_file
from esformat.io.publish import STDOUT

_EXAMPLES = """\b
Examples:
  esdb write reviews.esdb reviews.csv --space user --timestamp date --index rating
  esdb write activity.esdb events.jsonl.gz --space user --timestamp time --data-json
  esdb write all.esdb january.parquet february.parquet --space user --grouping app
  esdb write year.esdb 'months/*.parquet' --space user --grouping app
  esdb write log.esdb log.csv --space host --timestamp at --timestamp-format '%d/%b/%Y:%H:%M:%S %z'
  cat events.jsonl | esdb write piped.esdb - --input-format jsonl --space user --timestamp time
  esdb write large.esdb huge.csv.gz --space user --timestamp date --memory 256MiB
  esdb write good.esdb dirty.csv --space user --timestamp date --on-error collect bad.jsonl
"""


@click.command(cls=InputCommand, epilog=_EXAMPLES)
@click.argument("out", type=click.Path(dir_okay=False, readable=False))
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", type=click.Path(readable=False))
@input_options
@click.option("--index", "indexes", multiple=True, metavar="COLUMN", help="Index this column. Repeatable.")
@click.option("--keys", type=click.Choice(["text", "binary"]), default="text", show_default=True, help="Key type.")
@click.option("--codec", type=click.Choice(["zstd", "lz4", "none"]), default="zstd", show_default=True)
@click.option("--level", type=int, help="Compression level: higher is smaller and slower.")
@templates_option
@click.option("--memory", metavar="SIZE", default="1GiB", show_default=True, help="Memory limit for buffered events.")
@click.option(
    "--temp-dir", type=Folder(), metavar="DIR", help="Directory for events beyond that limit. Default: that of OUT."
)
@json_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def write(out: str, inputs: tuple[str, ...], **options: Any) -> None:
    """Write the events of files to a segment OUT, or "-" for standard output.

    INPUT is CSV, JSON lines, Parquet or Arrow, plain or compressed (.gz, .bz2, .zst, .xz): a file, a directory, a
    pattern, a place in a store, or "-" for standard input. OUT appears only when it is complete. In CSV, keys, indexed
    columns and payloads stay text, and so do columns with values such as 007 or +5. Columns in which every value is a
    number become numbers: 1.10 becomes 1.1, unless --type COLUMN=string keeps it as text.
    """
    started = perf_counter()
    _check_order(out, inputs, force=options["force"])
    roles = roles_of(options, indexes=options["indexes"], keys=options["keys"])
    written = input_options_of(options)
    sources = convert.inputs_at(inputs, any_name=written.format is not None, note=warn)
    _check_files(out, sources, options)

    def create(_: convert.Plan) -> esformat.Writer:
        return esformat.create(
            made_at, indexes=roles.indexes, keys=roles.keys, codec=options["codec"], level=options["level"],
            templates=options["templates"], properties=_origin(roles), overwrite=options["force"],
            memory=options["memory"], temp_dir=options["temp_dir"],
        )  # fmt: skip

    with (
        finished_file(out) as made_at,
        progress("reading") as show,
        convert.Load(sources, roles, written, bad_rows=bad_rows_of(options, sources), progress=show) as load,
    ):
        summary = load.write(create)
        seconds = perf_counter() - started
        if options["as_json"]:
            say_json(_facts(out, made_at, summary, seconds), report_printer(out))
        else:
            _report(out, made_at, summary, options["on_error"][1], seconds)


def _check_order(out: str, inputs: Sequence[str], *, force: bool) -> None:
    """Raise UsageError if OUT looks like an input: the user probably named OUT last, as for `esdb convert`."""
    if out in (STDOUT, *inputs) or out.endswith(SUFFIX) or "://" in out:
        return
    is_there = Path(out).is_file()
    meant = next((each for each in inputs if is_segment(each) and names_one_file(each)), None)
    if meant is None and is_there and not force and format_by_name(out) is not None:
        meant = without_extension(out) + SUFFIX
    elif meant is not None and not is_there and exists(locate(meant)):
        return  # the segment really is an input: reading it reports how to get its events out
    if meant is not None:
        others = [each for each in inputs if each != meant]
        raise click.UsageError(f"OUT comes first: {shlex.join(['esdb', 'write', meant, out, *others])}")


def _check_files(out: str, inputs: Sequence[convert.Input], options: dict[str, Any]) -> None:
    """Raise UsageError for output paths that would fail only after all the work is done."""
    written = [("OUT", out)]
    if options["on_error"][1]:
        written.append((f"{ON_ERROR} collect", options["on_error"][1]))
    for what, path in written:
        if path == STDOUT:
            continue
        place = locate(path)
        if isinstance(place, str) and not Path(place).parent.is_dir():
            raise click.UsageError(f"{what} {path}: no directory {Path(place).parent}")
        if any(is_same_place(place, locate(each)) for each in inputs if each != "-"):
            raise click.UsageError(f"{what} {path} is an input, too: choose another name")
        in_store = not isinstance(place, str)  # for OUT, the store reports an existing object itself
        if not options["force"] and not (in_store and what == "OUT") and exists(place):
            raise click.UsageError(f"{what} {path} exists: choose another name, or replace it with --force")
    if len(written) == 2 and out != STDOUT and name_of(locate(out)) == name_of(locate(written[1][1])):
        raise click.UsageError(f"{ON_ERROR} collect {out} is OUT, too: choose another name")


def _origin(roles: convert.Roles) -> dict[str, str]:
    """The segment's properties that record which columns its keys and times came from."""
    columns = {"space": roles.space, "grouping": roles.grouping, "timestamp": roles.timestamp}
    return {f"source.{role}": column for role, column in columns.items() if column is not None}


def _facts(out: str, made_at: str, summary: convert.Summary, seconds: float) -> dict[str, Any]:
    with esformat.open(made_at) as segment:
        names = ("events", "spaces", "min_timestamp", "max_timestamp", "size_bytes")
        facts = {name: segment.info()[name] for name in names}
    bad = {"input_bytes": summary.input_bytes, "bad_rows": summary.bad_row_count, "notes": list(summary.notes)}
    return {"path": shown_name(out), **facts, **bad, "seconds": round(seconds, 6)}


def _report(out: str, made_at: str, summary: convert.Summary, collected: str, seconds: float) -> None:
    say = report_printer(out)
    with esformat.open(made_at) as segment:
        each = f" ({segment.size_bytes / segment.num_events:.1f} bytes per event)" if segment.num_events else ""
        span = f", {moment(segment.min_timestamp)} to {moment(segment.max_timestamp)}" if segment.num_events else ""
        events, spaces = count(segment.num_events, "event"), count(segment.num_spaces, "space")
        say(f"{shown_name(out)}: {events} of {spaces}{span}")
        say(f"{size(segment.size_bytes)}{each} from {size(summary.input_bytes)} in {seconds:.1f} s")
    if summary.bad_row_count:
        say(f"{count(summary.bad_row_count, 'bad row')} left out" + (f", see {collected}" if collected else ""))
    for note in summary.notes:
        say(f"note: {note}")
