"""`esdb split`: split segments into smaller ones."""

from __future__ import annotations

from pathlib import PurePath

import click

from esformat.cli.console import count, progress
from esformat.cli.new_files import FileReport, write_files
from esformat.cli.output import json_option
from esformat.cli.params import Folder, Hex, Moment, Size
from esformat.cli.segments import files_argument
from esformat.io.location import Place

_EXAMPLES = """\b
Examples:
  esdb split activity.esdb parts --size 256MiB
  esdb split activity.esdb parts --space customer-1 --space customer-2 --force
  esdb split activity.esdb parts --time 2024-03-08 --time 2024-03-15 --force
  esdb split parts smaller --size 256MiB
"""


@click.command(epilog=_EXAMPLES)
@files_argument
@click.argument("directory", type=Folder())
@click.option(
    "--size", type=Size(), metavar="SIZE", help="Largest size of a part, such as 256MiB; parts end between spaces."
)
@click.option("--space", "spaces", multiple=True, metavar="KEY", help="Start a part at this space. Repeatable.")
@click.option(
    "--space-hex", "hex_spaces", multiple=True, type=Hex(), metavar="HEX", help="The same, with a hexadecimal key."
)
@click.option(
    "--time", "times", multiple=True, type=Moment(), metavar="TIME", help="Start a part at this time. Repeatable."
)
@json_option
@click.option("--force", is_flag=True, help="Replace parts that exist.")
def split(
    files: tuple[str, ...],
    directory: str,
    size: int | None,
    spaces: tuple[str, ...],
    hex_spaces: tuple[bytes, ...],
    times: tuple[int, ...],
    as_json: bool,
    force: bool,
) -> int:
    """Split segments by size, at spaces or at times, into parts in DIRECTORY, which may be a URI.

    FILE is a segment, a directory or pattern of segments, or a place in a store, and is not changed. DIRECTORY is
    created if it does not exist. Parts are named after FILE and numbered from 0; parts without events are left out.
    """
    from esformat.tools import split as split_segment  # here: slow to import

    keys: list[str | bytes] = sorted(
        [*spaces, *hex_spaces], key=lambda key: key.encode() if isinstance(key, str) else key
    )
    if (size is not None) + bool(keys) + bool(times) != 1:
        raise click.UsageError("give one of --size, --space and --time")

    def write(file: Place, target: str) -> FileReport:
        with progress("splitting") as show:
            parts = split_segment(
                file, target, size_bytes=size, spaces=keys or None, times=times or None, overwrite=force, progress=show
            )
        names = [str(part) for part in parts]
        return FileReport({"parts": names}, [*names, count(len(names), "part")])

    return write_files(files, directory, write, as_json=as_json, rename=_directory)


def _directory(name: str) -> str:
    """The subdirectory of OUT for the parts of a file: the file's own directory relative to the named input."""
    above = PurePath(name).parent.as_posix()
    return "" if above == "." else above
