"""`esdb split`: one segment into several."""

from __future__ import annotations

import click

from esformat.cli.console import count, progress, say
from esformat.cli.output import json_option, say_json
from esformat.cli.params import Folder, Hex, Moment, Size

_EXAMPLES = """\b
Examples:
  esdb split activity.esdb parts --size 256MiB
  esdb split activity.esdb parts --space customer-1 --space customer-2 --force
  esdb split activity.esdb parts --time 2024-03-08 --time 2024-03-15 --force
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.argument("directory", type=Folder())
@click.option(
    "--size", type=Size(), metavar="SIZE", help="Largest size of a part, such as 256MiB; parts end between spaces."
)
@click.option("--space", "spaces", multiple=True, metavar="KEY", help="Start a part at this space. Repeatable.")
@click.option(
    "--space-hex", "hex_spaces", multiple=True, type=Hex(), metavar="HEX", help="The same, with the key in hexadecimal."
)
@click.option(
    "--time", "times", multiple=True, type=Moment(), metavar="TIME", help="Start a part at this time. Repeatable."
)
@json_option
@click.option("--force", is_flag=True, help="Replace parts that exist.")
def split(
    file: str,
    directory: str,
    size: int | None,
    spaces: tuple[str, ...],
    hex_spaces: tuple[bytes, ...],
    times: tuple[int, ...],
    as_json: bool,
    force: bool,
) -> None:
    """Split the segment FILE into parts in DIRECTORY, or below a URI: by size, at spaces, or at times.

    DIRECTORY is made where it is absent. Parts are named after FILE and numbered from 0; one without events is left
    out. FILE stays as it is.
    """
    from esformat.tools import split as split_segment  # here: slow to import

    keys: list[str | bytes] = sorted(
        [*spaces, *hex_spaces], key=lambda key: key.encode() if isinstance(key, str) else key
    )
    if (size is not None) + bool(keys) + bool(times) != 1:
        raise click.UsageError("give one of --size, --space and --time")
    with progress("splitting") as show:
        parts = split_segment(
            file, directory, size_bytes=size, spaces=keys or None, times=times or None, overwrite=force, progress=show
        )
    if as_json:
        say_json({"parts": [str(part) for part in parts]})
        return
    for part in parts:
        say(str(part))
    say(f"{count(len(parts), 'part')}")
