"""`create` and `Writer`: write events, added in any order, to one segment that appears complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from esformat.errors import InvalidEventError, UsageError
from esformat.format.codec import Codec, codec_from_name
from esformat.format.layout import LEAST_FRAME_BYTES, MOST_FRAME_BYTES
from esformat.format.metadata import Metadata, Statistics, check_properties, is_unicode
from esformat.format.schema import KEY_COLUMNS, EventSchema, default_schema, make_schema
from esformat.io.location import Options, Target, apply_options, publication_of
from esformat.io.publish import naming
from esformat.write.file_writer import FileWriter
from esformat.write.intake import EventRows, check_table
from esformat.write.known_templates import KnownTemplates
from esformat.write.memory import Budget
from esformat.write.sorter import EventSorter
from esformat.write.table_pieces import pieces_of


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a segment is stored and written."""

    codec: Codec
    level: int | None
    codec_name: str
    properties: dict[str, str]
    frame_bytes: int | None
    templates: bool
    known: KnownTemplates | None
    threads: int
    budget: Budget
    temp_dir: Path | None


def create(
    path: Target,
    *,
    indexes: Sequence[str] = (),
    schema: pa.Schema | None = None,
    keys: str = "text",
    codec: str = "zstd",
    level: int | None = None,
    frame_bytes: int | None = None,
    templates: bool | KnownTemplates | None = None,
    properties: Mapping[str, str] | None = None,
    overwrite: bool = False,
    threads: int | None = None,
    memory: int | str | None = None,
    temp_dir: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None = None,
    storage_options: Options = None,
) -> Writer:
    """Start a segment that will appear at `path` when the writer finishes.

    path: of a file; or a URI (`s3://bucket/key` …), or a pair of a filesystem and a path in it: see `open`.
    indexes: columns that get a secondary index (string, integer or boolean).
    schema: payload and index columns. None takes them from the first table or, if events are added one by one, uses
        `data` (binary) and a nullable string column for each index.
    keys: "text" (space and grouping are `str`) or "binary".
    codec, level: "zstd" (level 1 by default), "lz4" (needs the extra of that name) or "none".
    frame_bytes: approximate number of bytes of text or binary values that are compressed together. The default, 4 KiB,
        suits lookups of single events; 32 KiB or 64 KiB suit searches through all payloads.
    templates: whether JSON objects and log lines may be stored as templates and variables: a third to a half smaller,
        but lookups of a few events take a quarter longer. Allowed only with codec "zstd", where it is the default. Pass
        the same `KnownTemplates` to several writers in turn to reuse the templates of earlier files that fit, because
        the search for templates is much of the work for small files. The bytes then depend on the earlier files.
    properties: text by name, stored in the file.
    overwrite: replace an existing file, atomically; otherwise an existing file is an error.
    threads: number of encoding threads; by default one per processor, at most 8. It does not affect the bytes.
    memory: the writer's memory limit, in bytes or as text such as "256MiB"; 1 GiB by default. Events beyond it go to
        temporary files, unless they are added in order; a single larger event still works. The limit does not affect
        the bytes. The interpreter and its libraries take some 100 MiB in addition, and so do your own tables.
    temp_dir: directory for temporary files; by default next to the file, or the system's for an object. They take less
        space than the events and disappear with the writer, however it ends.
    storage_options: how to connect to the store of a URI, as for `open`.

    Use it as a context manager: leaving the block finishes the file, an exception leaves nothing. Raises UsageError,
    InvalidEventError (a schema that cannot be stored), UnsupportedVersionError (no such codec installed), OSError.
    """
    (path,) = apply_options(storage_options, path)
    if keys not in ("text", "binary"):
        raise UsageError(f'keys must be "text" or "binary", not {keys!r}')
    if isinstance(indexes, str):
        raise UsageError(f"indexes must be a list of column names, not the text {indexes!r}")
    _check_encoding(codec, level, frame_bytes, threads)
    known = templates if isinstance(templates, KnownTemplates) else None
    templates = may_use_templates(codec, True if isinstance(templates, KnownTemplates) else templates)
    if schema is not None and not isinstance(schema, pa.Schema):
        raise UsageError(f"schema must be a pyarrow.Schema, not {type(schema).__name__}")
    indexes = tuple(indexes)
    _check_indexes(indexes)
    workers = min(os.cpu_count() or 1, 8) if threads is None else threads
    budget, place = Budget.of(memory), _directory(temp_dir)
    kept = check_properties(properties)
    options = WriteOptions(
        codec_from_name(codec), level, codec, kept, frame_bytes, templates, known, workers, budget, place
    )
    fields = None if schema is None else make_schema(schema, indexes, binary_keys=keys == "binary")
    return Writer(path, fields, indexes, keys == "binary", options, overwrite=overwrite)


def _directory(temp_dir: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None) -> Path | None:
    path = None if temp_dir is None else Path(os.fsdecode(temp_dir))
    if path is not None and not path.is_dir():
        raise UsageError(f"temp_dir {str(path)!r} is not a directory")
    return path


def may_use_templates(codec: str, requested: bool | None) -> bool:
    """Whether columns may be stored as templates; zstd must compress their strings. Raises UsageError."""
    if requested and codec != "zstd":
        raise UsageError(f'templates need codec "zstd", not {codec!r}')
    return codec == "zstd" if requested is None else requested


def _check_encoding(codec: str, level: int | None, frame_bytes: int | None, threads: int | None) -> None:
    if level is not None and codec != "zstd":
        raise UsageError(f"codec {codec!r} has no levels")
    if level is not None and not (isinstance(level, int) and -100 <= level <= 22):
        raise UsageError(f"zstd level {level!r} is not between -100 and 22")
    if frame_bytes is not None and not (
        isinstance(frame_bytes, int) and LEAST_FRAME_BYTES <= frame_bytes <= MOST_FRAME_BYTES
    ):
        raise UsageError(
            f"frame_bytes must be a whole number from {LEAST_FRAME_BYTES} to {MOST_FRAME_BYTES}, not {frame_bytes!r}"
        )
    if threads is not None and not (isinstance(threads, int) and threads > 0):
        raise UsageError(f"threads must be a whole number from 1, not {threads!r}")


def _check_indexes(indexes: tuple[str, ...]) -> None:
    for name in indexes:
        if not isinstance(name, str) or not name or name in KEY_COLUMNS or not is_unicode(name):
            raise UsageError(f"{name!r} cannot be the name of an index")
        if indexes.count(name) > 1:
            raise UsageError(f"index {name!r} is named twice")


class Writer(FileWriter):
    """Takes events in any order and, when finished, publishes them as one segment. Created by `create`.

    Not thread-safe. Events are held in memory as far as the budget allows, then in temporary files, until `finish`;
    events that are added in order are written immediately.
    """

    _shown = "esformat.Writer"

    def __init__(
        self,
        path: Target,
        schema: EventSchema | None,
        indexes: tuple[str, ...],
        binary_keys: bool,
        options: WriteOptions,
        *,
        overwrite: bool,
    ) -> None:
        super().__init__(publication_of(path, overwrite=overwrite))
        self._schema = schema
        self._indexes = indexes
        self._binary_keys = binary_keys
        self._options = options
        self._temp_dir = options.temp_dir or self._publication.spill_directory
        self._sorter: EventSorter | None = None
        self._rows: EventRows | None = None
        self.statistics: Statistics | None = None

    def add(
        self,
        space: str | bytes,
        data: bytes | str | None = None,
        *,
        timestamp: Any,
        grouping: str | bytes | None = None,
        indexes: Mapping[str, Any] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one event. Raises InvalidEventError, and then keeps nothing of the event; ClosedError after `finish` or
        `abort`.

        timestamp: int µs since the epoch or an aware datetime.
        columns: payload other than `data`.
        """
        self._check_open()
        if self._rows is None:
            if self._schema is None:
                self._schema = default_schema(self._indexes, binary_keys=self._binary_keys)
            self._rows = EventRows(self._schema, self._options.budget.piece)
        self._rows.add(space, data, timestamp, "" if grouping is None else grouping, indexes, columns)
        self._events += 1
        if self._rows.full:
            self._take_rows()

    def add_table(self, table: Any) -> None:
        """Add the events of a table: a pyarrow table or batch, or anything with `__arrow_c_stream__`.

        Columns: space, timestamp (int64 µs or a timestamp with a zone), optional grouping, and those of the schema. A
        stream is read batch by batch. Adds all events or none: raises InvalidEventError for a table that does not fit;
        ClosedError after `finish` or `abort`; OSError, which also aborts the writer, if temporary files cannot be
        written.
        """
        self._check_open()
        before = self._schema, self._sorter
        try:
            with naming(self._name):
                self._events += self._take_pieces(pieces_of(table, self._options.budget.piece))
        except BaseException:
            self._schema, sorter = before
            if self._state == "open" and self._sorter is not sorter:  # it has the schema of the refused table
                self._close_sorter()
            raise

    def _take_pieces(self, pieces: Iterator[pa.Table]) -> int:
        """Add all of a table or nothing. Return the number of its events."""
        count = 0
        waiting = self._check(next(pieces), 0)
        self._take_rows()  # so that events keep their order of arrival
        sorter = None
        try:
            for piece in pieces:
                checked = self._check(piece, count + len(waiting))
                if sorter is None:
                    sorter = self._make_sorter()
                    sorter.mark()
                count += len(waiting)
                self._take(waiting)
                waiting = checked
            self._take(waiting)
        except BaseException:
            if sorter is not None and self._state == "open":
                sorter.undo()
            raise
        if sorter is not None:
            sorter.keep()
        return count + len(waiting)

    def _take(self, checked: pa.Table) -> None:
        """Pass events to the sorter. If that fails, some may be lost, so the writer is aborted."""
        try:
            self._make_sorter().add(checked)
        except BaseException:
            self.abort()
            raise

    def _take_rows(self) -> None:
        if self._rows is not None and len(self._rows):
            self._take(self._rows.take())

    def _make_sorter(self) -> EventSorter:
        if self._sorter is None:
            assert self._schema is not None
            options = self._options
            metadata = Metadata(
                self._schema,
                options.codec_name,
                options.level,
                options.properties,
                frame_bytes=options.frame_bytes,
                templates=options.templates,
            )
            self._sorter = EventSorter(
                self._publication.file,
                metadata,
                options.codec,
                options.budget,
                options.threads,
                self._temp_dir,
                options.known,
            )
        return self._sorter

    def _close_sorter(self) -> None:
        if self._sorter is not None:
            self._sorter.close()
            self._sorter = None

    def _check(self, piece: pa.Table, first: int) -> pa.Table:
        """Convert a piece of a table, beginning at its row `first`, to the schema. Sets the schema if there is none."""
        schema = self._schema
        if schema is None:
            schema = make_schema(piece.schema, self._indexes, binary_keys=self._binary_keys)
        try:
            checked = check_table(piece, schema)
        except InvalidEventError as error:
            if first:
                message = f"{error.message} (counted from row {first} of the table)"
                raise InvalidEventError(message, hint=error.hint) from None
            raise
        self._schema = schema
        return checked

    def _write(self) -> None:
        if self._schema is None:
            self._schema = default_schema(self._indexes, binary_keys=self._binary_keys)
        self._take_rows()
        self.statistics = self._make_sorter().finish()
        self._close_sorter()

    def _drop(self) -> None:
        self._rows = None
        self._close_sorter()


__all__ = ["InvalidEventError", "Writer", "create"]
