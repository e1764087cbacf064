"""`esdb split`: one segment into several."""

from __future__ import annotations

import re
from typing import Any

import click

from esformat.cli.console import count, progress, say
from esformat.cli.output import json_option, say_json
from esformat.cli.params import Folder, Hex, Moment

_UNITS = {"": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_EXAMPLES = """\b
Examples:
  esdb split activity.esdb parts --size 256MiB
  esdb split activity.esdb parts --space customer-1 --space customer-2 --force
  esdb split activity.esdb parts --time 2024-03-08 --time 2024-03-15 --force
"""


class _Size(click.ParamType[int]):
    """A number of bytes, with a unit or without."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+) ?([a-z]*)", value.lower(), re.ASCII)
        if match is None or match[2] not in _UNITS or not int(match[1]):
            self.fail(f"{value!r} is not a number of bytes, as 1000000, 64MB or 256MiB", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path())
@click.argument("directory", type=Folder())
@click.option(
    "--size", type=_Size(), metavar="SIZE", help="End a part before the space that would make it larger, as 256MiB."
)
@click.option("--space", "spaces", multiple=True, metavar="KEY", help="Begin a part at this space. Repeatable.")
@click.option("--space-hex", "hex_spaces", multiple=True, type=Hex(), metavar="HEX", help="The same, in hexadecimal.")
@click.option("--time", "times", multiple=True, type=Moment(), metavar="TIME", help="Begin a part then. Repeatable.")
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
