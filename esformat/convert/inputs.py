"""Resolution of a command's input names: files, directories, patterns, places in stores, standard input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from esformat.convert.formats import SEGMENT_HINT, format_by_name
from esformat.convert.source import Input
from esformat.io.location import files_at, is_segment, name_of

_SHOWN_NAMES = 3


def inputs_at(
    names: Sequence[str],
    *,
    any_name: bool = False,
    segments: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> list[Input]:
    """List the inputs named by files, directories, patterns, store prefixes and "-", in order, each file once.

    A directory or pattern contributes the files whose names tell a format that `Load` reads. any_name: all files,
    because the format is known. segments: `.esdb` files too. note: called with a sentence on files that are skipped.
    Raises UsageError if a directory or pattern contributes none.
    """
    skipped: set[str] = set()
    skipped_segments: set[str] = set()

    def wanted(path: str) -> bool:
        if path.rpartition("/")[2].startswith(("_", ".")):  # markers of Spark, and unfinished files
            return False
        if any_name or format_by_name(path) is not None or (segments and is_segment(path)):
            return True
        (skipped_segments if is_segment(path) else skipped).add(path.rpartition("/")[2])
        return False

    found: dict[str, Any] = {}
    try:
        for name in names:
            places: Any = ["-"] if name == "-" else files_at(name, wanted, "file that can be read as events")
            found |= {name_of(place): place for place in places}
    finally:
        if skipped:
            note(
                f"skipped {_shown(skipped)}: the name tells no format that can be read; --input-format reads all files"
            )
        if skipped_segments:
            note(f"skipped {_shown(skipped_segments)}: a segment is not an input; {SEGMENT_HINT}")
    return list(found.values())


def _shown(names: set[str]) -> str:
    return ", ".join(sorted(names)[:_SHOWN_NAMES]) + ", …" * (len(names) > _SHOWN_NAMES)


def input_name(path: Input) -> str:
    """The name of an input in messages."""
    return name_of(path)
