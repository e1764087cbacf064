"""`open`: open a Go ESDB file of either kind."""

from __future__ import annotations

import os

from esformat.customerio.archive import Archive
from esformat.customerio.stream import Stream
from esformat.customerio.stream_file import MAGIC as STREAM_MAGIC
from esformat.errors import CorruptSegmentError, EsdbError, UsageError
from esformat.io.source import FileSource, Source

SEGMENT_MAGIC = b"\x89ESDB"


def open_file(path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | Source) -> Archive | Stream:
    """Open an archive or a stream of the Go ESDB from a path or any `Source` of bytes.

    A stream is recognised by its first bytes; archives have no magic. Raises OSError (no such file …),
    CorruptSegmentError (neither kind, or damaged), UsageError (a segment of esformat).
    """
    source = FileSource(path) if isinstance(path, str | bytes | os.PathLike) else path
    if not isinstance(source, Source):
        raise UsageError(f"cannot open {path!r}", hint="give a path or a Source of bytes")
    if source.size < len(STREAM_MAGIC):
        raise CorruptSegmentError(
            "an archive or a stream is cut short within its first bytes",
            path=source.name,
            offset=source.size,
            hint="restore it from a copy",
        )
    start = source.read_at(0, len(STREAM_MAGIC))
    if start.startswith(SEGMENT_MAGIC):
        raise UsageError("is a segment of esformat", path=source.name, hint="use esformat.open")
    if start == STREAM_MAGIC:
        return Stream(source)
    try:
        return Archive(source)
    except EsdbError as error:
        error.path = error.path or source.name
        error.hint = error.hint or "the file is damaged or was not written by the Go ESDB: restore it from a copy"
        raise
