"""`create`, `write` and `Writer`: write events to a file of the Go ESDB, which appears complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.customerio.archive_writer import ArchiveBuilder
from esformat.customerio.intake import EventList, check_archive, check_events, check_stream
from esformat.customerio.stream_writer import StreamBuilder
from esformat.errors import UsageError
from esformat.format.order import rank
from esformat.io.publish import Publication
from esformat.write.file_writer import FileWriter
from esformat.write.intake import to_arrow

GROUP_BYTES = 32 << 20
"""Spaces are written to an archive in groups of at least this many payload bytes."""


def create(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    kind: str = "archive",
    closed: bool = True,
    index_names: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> Writer:
    """Start a file of the Go ESDB that appears at `path` when the writer finishes.

    kind: "archive" or "stream".
    closed: whether to finish a stream with a footer; a stream without one can be appended to.
    index_names: maps index columns to names in the file that differ, as in `Layout`.
    overwrite: replace an existing file atomically; otherwise an existing file is an error.

    Use the writer as a context manager: leaving the block finishes the file, an exception discards it.
    Raises UsageError, OSError.
    """
    if kind not in ("archive", "stream"):
        raise UsageError(f'kind must be "archive" or "stream", not {kind!r}')
    if not closed and kind != "stream":
        raise UsageError("only a stream can be left open")
    return Writer(
        Path(os.fsdecode(path)), kind, closed=closed, index_names=dict(index_names or {}), overwrite=overwrite
    )


def write(path: str | bytes | os.PathLike[str] | os.PathLike[bytes], events: Any, **options: Any) -> int:
    """Write events (anything that `Writer.add_batches` takes) to a new file, and return their number.

    `options` are those of `create`; errors are those of `create` and `Writer.add_batches`.
    """
    with create(path, **options) as writer:
        writer.add_batches(events)
    return writer.num_events


class Writer(FileWriter):
    """Collects events and publishes them as one file when finished. Create it with `create`.

    Events of an archive may be added in any order and stay in memory until `finish`; those of a stream are written as
    they are added. Not thread-safe.
    """

    _shown = "esformat.customerio.Writer"

    def __init__(self, path: Path, kind: str, *, closed: bool, index_names: dict[str, str], overwrite: bool) -> None:
        publication = Publication(path, overwrite=overwrite)
        super().__init__(publication)
        self._stream = StreamBuilder(publication.file) if kind == "stream" else None
        self._leave_open = not closed
        self._names = index_names
        self._tables: list[pa.Table] = []
        self._rows = EventList()

    def add(
        self,
        space: str | bytes = b"",
        data: bytes | str = b"",
        *,
        timestamp: Any = 0,
        grouping: str | bytes = b"",
        indexes: Mapping[str, str | bytes | None] | None = None,
    ) -> None:
        """Add one event. `timestamp`: int µs since the epoch or an aware datetime; whole seconds only.

        An archive has spaces, groupings and times; a stream has none of them. Raises InvalidEventError for values that
        the file cannot store, in some cases only when the event is written; ClosedError after `finish` or `abort`.
        """
        self._check_open()
        self._rows.add(space, data, timestamp, grouping, indexes)
        self._events += 1
        if len(self._rows) >= EventList.FLUSH_EVENTS:
            self._flush()

    def add_table(self, table: Any) -> None:
        """Add the events of a table: a pyarrow table or batch, or anything with `__arrow_c_stream__`.

        Columns: space, timestamp (int64 µs or a timestamp with a zone), grouping, data; all others are indexes of text
        or bytes, null if an event has no value. Adds all events or none: raises InvalidEventError if the table contains
        a value that the file cannot store; ClosedError after `finish` or `abort`.
        """
        self._check_open()
        events = check_events(to_arrow(table), self._names)
        self._flush()
        self._keep(events)
        self._events += len(events)

    def add_batches(self, events: Any) -> None:
        """Add the events of a table or of a stream of batches, such as a scan; calls `add_table` for each batch."""
        self._check_open()
        if not hasattr(events, "__arrow_c_stream__"):
            self.add_table(events)
            return
        for batch in pa.RecordBatchReader.from_stream(events):
            self.add_table(batch)

    def _write(self) -> None:
        self._flush()
        if self._stream is not None:
            self._stream.finish(closed=not self._leave_open)
            return
        builder = ArchiveBuilder(self._publication.file)
        for events in _space_groups(self._tables):
            builder.add(events, check_archive(events))
        builder.finish()

    def _drop(self) -> None:
        self._tables = []

    def _flush(self) -> None:
        if len(self._rows):
            self._keep(self._rows.take())

    def _keep(self, events: pa.Table) -> None:
        if self._stream is not None:
            check_stream(events)
            self._stream.add(events)
        else:
            check_archive(events)
            self._tables.append(events)


def _space_groups(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield the events of all tables in groups of whole spaces, sorted by space, then in insertion order."""
    if not any(map(len, tables)):
        return
    table = pa.concat_tables(tables, promote_options="permissive")
    spaces = rank(table["space"])
    order = np.argsort(spaces.ranks, kind="stable")
    sorted_spaces = spaces.ranks[order]
    sizes = np.cumsum(np.asarray(pc.binary_length(table["data"]).to_numpy())[order].astype(np.int64))
    starts = np.flatnonzero(np.append(True, sorted_spaces[1:] != sorted_spaces[:-1]))
    edges = np.append(starts, len(order))
    first = 0
    for place in range(1, len(edges)):
        size = sizes[edges[place] - 1] - (sizes[edges[first] - 1] if first else 0)
        if size >= GROUP_BYTES or place == len(edges) - 1:
            yield table.take(pa.array(order[edges[first] : edges[place]]))
            first = place
