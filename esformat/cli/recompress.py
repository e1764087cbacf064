"""`esdb recompress`: re-encode every block of segments."""

from __future__ import annotations

import click

import esformat
from esformat.cli.console import count, progress, size
from esformat.cli.new_files import FileReport, files_and_out, write_files
from esformat.cli.output import finished_file, json_option, shown_name, templates_option
from esformat.io.location import Place

_EXAMPLES = """\b
Examples:
  esdb recompress activity.esdb archive.esdb --level 9
  esdb recompress activity.esdb fast.esdb --codec lz4
  esdb recompress parts archive --level 9
"""


@click.command(epilog=_EXAMPLES)
@files_and_out
@click.option("--codec", type=click.Choice(["zstd", "lz4", "none"]), default="zstd", show_default=True)
@click.option("--level", type=int, help="Compression level: higher is smaller and slower.")
@templates_option
@json_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def recompress(
    files: tuple[str, ...], out: str, codec: str, level: int | None, templates: bool | None, as_json: bool, force: bool
) -> int:
    """Write segments with another codec or level and newly trained dictionaries.

    Small blocks, which merging leaves behind, become blocks of full size. FILE is a segment, a directory or pattern of
    segments, or a place in a store, and is not changed. A single file goes to OUT, several go into the directory OUT.
    """
    from esformat.tools import recompress as recompress_segment  # here: slow to import

    def write(file: Place, target: str) -> FileReport:
        shown = shown_name(target)
        with finished_file(target) as made_at, progress("recompressing") as show:
            made = recompress_segment(
                file, made_at, codec=codec, level=level, templates=templates, overwrite=force, progress=show
            )
            with esformat.open(file) as before, esformat.open(made_at) as after:
                sizes = before.size_bytes, after.size_bytes
        events = made.statistics.events
        facts = {"path": shown, "events": events, "size_bytes": sizes[1], "size_bytes_before": sizes[0]}
        return FileReport(facts, [f"{shown}: {count(events, 'event')}, {size(sizes[0])} → {size(sizes[1])}"])

    return write_files(files, out, write, as_json=as_json)
