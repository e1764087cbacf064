"""`esdb recompress`: every block of a segment re-encoded."""

from __future__ import annotations

import click

import esformat
from esformat.cli.console import count, progress, size
from esformat.cli.output import finished_file, json_option, say_json, shown_name, teller

_EXAMPLES = """\b
Examples:
  esdb recompress activity.esdb archive.esdb --level 9
  esdb recompress activity.esdb fast.esdb --codec lz4
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.argument("out", type=click.Path(dir_okay=False))
@click.option("--codec", type=click.Choice(["zstd", "lz4", "none"]), default="zstd", show_default=True)
@click.option("--level", type=int, help="Compression level: higher is smaller and slower.")
@json_option
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def recompress(file: str, out: str, codec: str, level: int | None, as_json: bool, force: bool) -> None:
    """Write the segment FILE to OUT with another codec or level, and dictionaries trained anew.

    Many small blocks, as merging leaves them, become blocks of full size. FILE stays as it is.
    """
    from esformat.tools import recompress as recompress_segment  # here: slow to import

    tell, shown = teller(out), shown_name(out)
    with finished_file(out) as made_at, progress("recompressing") as show:
        made = recompress_segment(file, made_at, codec=codec, level=level, overwrite=force, progress=show)
        with esformat.open(file) as before, esformat.open(made_at) as after:
            sizes = before.size_bytes, after.size_bytes
    if as_json:
        facts = {"path": shown, "events": made.statistics.events, "size_bytes": sizes[1], "size_bytes_before": sizes[0]}
        say_json(facts, tell)
        return
    tell(f"{shown}: {count(made.statistics.events, 'event')}, {size(sizes[0])} → {size(sizes[1])}")
