"""Segments as inputs of a command: one or many, on disk or in stores, given as files, directories and patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import esformat
from esformat.cli.params import several
from esformat.io.location import Place, names_one_file, segments_at
from esformat.io.publish import STDOUT

Segments: TypeAlias = "esformat.Segment | esformat.Collection"
"""The segments that FILE... names: one, or several that are read as one."""


def files_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument FILE... to a command: segments, directories, patterns, places in stores."""
    return several("files", "FILE...")(command)


def is_one(files: Sequence[str]) -> bool:
    """Whether a single file was named. Directories and patterns count as several even if they contain one file."""
    return len(files) == 1 and names_one_file(files[0])


def places(files: Sequence[str]) -> list[Place]:
    """The named segments, each once. Raises UsageError if a directory or pattern contains none."""
    return cast("list[Place]", list(segments_at(files)))


def open_segments(files: Sequence[str], output: str = STDOUT) -> Segments:
    """Open the named segments. Raises UsageError if `output` is one of them, and the errors of `open_many`."""
    found = places(files)
    if output != STDOUT:
        from esformat.tools.new_segment import check_output  # here: pyarrow is slow to import

        check_output(output, found)
    return esformat.open(found[0]) if len(found) == 1 else esformat.open_many(found)


def shown_files(segments: Segments) -> str:
    """The name of the segments in messages."""
    return segments.path if isinstance(segments, esformat.Segment) else f"{len(segments.paths):,} files"
