"""Segments as inputs of a command: one file or many, on disk or in stores, by names, directories and patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import esformat
from esformat.cli.params import several
from esformat.io.location import Place, names_one_file, segments_at
from esformat.io.publish import STDOUT

if TYPE_CHECKING:
    import pyarrow as pa

Segments: TypeAlias = "esformat.Segment | esformat.Collection"
"""What FILE... of a command names: one segment, or several that are read as one."""


def files_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument FILE...: segments, directories of them, patterns, places in stores."""
    return several("files", "FILE...")(command)


def is_one(files: Sequence[str]) -> bool:
    """Whether a single file was named, rather than several, a directory or a pattern, which may hold one only."""
    return len(files) == 1 and names_one_file(files[0])


def places(files: Sequence[str]) -> list[Place]:
    """The segments that were named, each once. Raises UsageError where a directory or pattern has none."""
    return cast("list[Place]", list(segments_at(files)))


def open_segments(files: Sequence[str], output: str = STDOUT) -> Segments:
    """Open what was named. output: where the answer goes: to none of them. Raises UsageError, what `open_many` does."""
    found = places(files)
    if output != STDOUT:
        from esformat.tools.new_segment import check_output  # here: pyarrow is slow to import

        check_output(output, found)
    return esformat.open(found[0]) if len(found) == 1 else esformat.open_many(found)


def shown_files(segments: Segments) -> str:
    """What messages call them."""
    return segments.path if isinstance(segments, esformat.Segment) else f"{len(segments.paths):,} files"


def kind_of_keys(schema: pa.Schema) -> str:
    """Whether the keys of segments are text or binary."""
    import pyarrow as pa  # here: slow to import

    return "binary" if pa.types.is_binary(schema.field("space").type) else "text"
