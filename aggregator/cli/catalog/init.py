"""`aggregator init`: create an empty catalog."""

from __future__ import annotations

from pathlib import Path

import click

import aggregator
from aggregator.cli.shared.open_catalog import catalog_argument
from aggregator.storage.files.layout import OTHER_FILES, has_other_files
from aggregator.storage.files.modes import parse_mode
from esformat.cli.parts import count, json_option, say, say_json, warn

_EXAMPLES = """\b
Examples:
  aggregator init data
  aggregator init data --file-mode 0640
  aggregator init data && aggregator topics data --create clicks --index type
"""


@click.command(epilog=_EXAMPLES)
@catalog_argument
@click.option("--file-mode", metavar="OCTAL", help="Mode of the catalog's files, such as 0640. Default: 0600.")
@json_option
def init(catalog: str, file_mode: str | None, as_json: bool) -> None:
    """Create the directory CATALOG with an empty catalog. If the catalog exists, change only its file mode."""
    if has_other_files(Path(catalog)):
        warn(f"{catalog} {OTHER_FILES}")
    with aggregator.open(catalog, file_mode=None if file_mode is None else parse_mode(file_mode)) as opened:
        topics = opened.topics()
    if as_json:
        say_json({"path": catalog, "topics": list(topics)})
    else:
        say(f"{catalog}: {count(len(topics), 'topic')}")
