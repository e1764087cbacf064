"""Resolution of a command's input names: files, directories, patterns, places in stores, standard input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from esformat.convert.formats import format_by_name
from esformat.convert.source import Input
from esformat.io.location import files_at, is_segment, name_of


def inputs_at(names: Sequence[str], *, any_name: bool = False, segments: bool = False) -> list[Input]:
    """List the inputs named by files, directories, patterns, store prefixes and "-", in order, each file once.

    A directory or pattern contributes the files whose names tell a format that `Load` reads. any_name: all files,
    because the format is known. segments: `.esdb` files too. Raises UsageError if a directory or pattern contributes
    none.
    """

    def wanted(path: str) -> bool:
        if path.rpartition("/")[2].startswith(("_", ".")):  # markers of Spark, and unfinished files
            return False
        return any_name or format_by_name(path) is not None or (segments and is_segment(path))

    found: dict[str, Any] = {}
    for name in names:
        places: Any = ["-"] if name == "-" else files_at(name, wanted, "file that can be read as events")
        found |= {name_of(place): place for place in places}
    return list(found.values())


def input_name(path: Input) -> str:
    """The name of an input in messages."""
    return name_of(path)
