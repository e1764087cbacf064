"""Which files are meant by the names of a command: files, directories, patterns, places in stores, standard input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from esformat.convert.formats import format_by_name
from esformat.convert.source import Input
from esformat.io.location import files_at, is_segment, name_of


def inputs_at(names: Sequence[str], *, any_name: bool = False, segments: bool = False) -> list[Input]:
    """The inputs that files, directories, patterns, prefixes of stores and "-" name, in order, each file once.

    Of a directory those whose names tell a format that `Load` reads; any_name: all, whose format is known otherwise;
    segments: `.esdb` files, too. Raises UsageError where a directory or pattern has none.
    """

    def wanted(path: str) -> bool:
        if path.rpartition("/")[2].startswith(("_", ".")):  # marks of Spark, and files that are being written
            return False
        return any_name or format_by_name(path) is not None or (segments and is_segment(path))

    found: dict[str, Any] = {}
    for name in names:
        places: Any = ["-"] if name == "-" else files_at(name, wanted, "file that can be read as events")
        found |= {name_of(place): place for place in places}
    return list(found.values())


def input_name(path: Input) -> str:
    """What messages call an input."""
    return name_of(path)
