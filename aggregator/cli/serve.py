"""`aggregator serve`: a catalog over HTTP."""

from __future__ import annotations

from dataclasses import replace

import click

from esformat.cli.parts import say

_EXAMPLES = """\b
Examples:
  aggregator serve data
  aggregator serve data --bind 127.0.0.1:8080
"""


@click.command(epilog=_EXAMPLES)
@click.argument("directory", type=click.Path())
@click.option("--bind", metavar="HOST:PORT", help="Where to listen; 127.0.0.1:3030 if not given.")
def serve(directory: str, bind: str | None) -> None:
    """Serve the catalog in DIRECTORY over HTTP until it is told to stop; made where it is absent."""
    from aggregator.server import Settings  # needs the extra `server`
    from aggregator.server import serve as run

    settings = Settings()
    if bind is not None:
        settings = replace(settings, http=replace(settings.http, bind=bind))
    say(f"serving {directory} on http://{settings.http.bind}")
    run(directory, settings)
