"""`python -m examples.demo catalog`: the events of the files as a stream, with a crash in the middle."""

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
    help="Where the catalog goes, and where `files` left its own.",
)
@click.option(
    "--input", "inputs", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True, metavar="FILE",
    help=".esdb files to take the events from: the smallest is the stream that crashes, the largest the load.",
)  # fmt: skip
@click.option(
    "--serve/--no-serve", default=None, help="At the end serve the catalog to browsers; the default in a terminal."
)
def catalog(output: Path, inputs: tuple[Path, ...], serve: bool | None) -> None:
    """Take the events that `files` wrote in as a stream, and kill -9 the process that does so midway.

    Everything acknowledged is there afterwards. Then retention, compaction and erasure work on a larger load, and a
    server answers questions about it over HTTP, with the demo's own log shipped into it, and shows it in a browser.
    """
    from examples.demo.crash import run_demo  # here: rich is slow to import

    run_demo(output, inputs, serve=sys.stdout.isatty() if serve is None else serve)
