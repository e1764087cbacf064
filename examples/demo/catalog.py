"""`python -m examples.demo catalog`: ingest the events of the files as a stream, with a crash in the middle."""

from __future__ import annotations

import sys
from pathlib import Path

import click

_EXAMPLES = """\b
Examples:
  python -m examples.demo files && python -m examples.demo catalog
  python -m examples.demo catalog --input activity.esdb --input clicks.esdb --output pictures
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default="demo-output",
    show_default=True,
    metavar="FOLDER",
    help="Folder for the catalog, and with the files that `files` wrote.",
)
@click.option(
    "--input", "inputs", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True, metavar="FILE",
    help=".esdb files with the events: the smallest is the stream that crashes, the largest the load.",
)  # fmt: skip
@click.option(
    "--serve/--no-serve", default=None, help="Serve the catalog to browsers at the end. Default: only in a terminal."
)
def catalog(output: Path, inputs: tuple[Path, ...], serve: bool | None) -> None:
    """Ingest the events that `files` wrote as a stream, and kill -9 the ingesting process midway.

    Every acknowledged event is there afterwards. Then retention, compaction and erasure work on a larger load. Finally
    a server answers questions about it over HTTP, collects the demo's own log, and shows the events in a browser.
    """
    from examples.demo.crash import run_demo  # here: rich is slow to import

    run_demo(output, inputs, serve=sys.stdout.isatty() if serve is None else serve)
