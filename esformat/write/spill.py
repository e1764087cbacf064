"""Sorted runs in temporary files: events in the order of a segment, cut into chunks that are read one at a time.

A chunk's keys and timestamps are read separately from its columns, so that a merge decides what comes next before it
reads any payload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from esformat.io.temp_file import SpillFile
from esformat.write.block_encoder import BLOCK_ROWS, TASK_BLOCKS, TASK_BYTES, SortedRows
from esformat.write.rows import OrderedRows
from esformat.write.tasks import InFlight

_KEYS, _TIMESTAMPS, _COLUMNS = range(3)
_SMALL_ROW_BYTES = TASK_BYTES // (TASK_BLOCKS * BLOCK_ROWS)
_LZ4 = "lz4" if pa.Codec.is_available("lz4") else None  # 2.8 times smaller: half the time on a disk of 400 MB/s


class SortedRun(Protocol):
    """Sorted events in chunks. Chunks are never empty."""

    def __len__(self) -> int:
        """Number of chunks."""
        ...

    def head(self, chunk: int) -> SortedRows:
        """Keys and timestamps of a chunk, without columns."""
        ...

    def columns(self, chunk: int) -> Sequence[pa.Array]:
        """The columns of a chunk."""
        ...

    def chunk_bytes(self, chunk: int) -> int:
        """Approximate memory of a chunk, in bytes."""
        ...

    def close(self) -> None:
        """Free its space."""
        ...


class SpilledSortedRun:
    """A sorted run in a temporary file: rows are added first, then read."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError."""
        self._file = SpillFile(directory)
        self._sizes: list[int] = []

    def add(self, ordered: OrderedRows, chunk_bytes: int, pool: Executor, threads: int) -> None:
        """Append rows that follow those added before. Raises OSError."""
        flight: InFlight[tuple[int, list[Any]]] = InFlight(pool, 2 * threads, 1 << 62)
        for first, last in _cut(ordered, chunk_bytes):
            for done in flight.submit(partial(_encode, ordered, first, last), 0):
                self._append(*done)
        for done in flight.drain():
            self._append(*done)

    def _append(self, size: int, parts: list[Any]) -> None:
        self._file.append(*parts)
        self._sizes.append(size)

    def __len__(self) -> int:
        return len(self._file)

    def chunk_bytes(self, chunk: int) -> int:
        """Approximate memory of a chunk, in bytes."""
        return self._sizes[chunk]

    def head(self, chunk: int) -> SortedRows:
        """Keys and timestamps of a chunk, without columns. Raises OSError."""
        keys = _batch(self._file.read(chunk, _KEYS))
        timestamps = np.frombuffer(self._file.read(chunk, _TIMESTAMPS), np.int64)
        starts = np.asarray(keys.column("start"))
        return SortedRows(timestamps, starts, keys.column("space"), keys.column("grouping"), (), continues=False)

    def columns(self, chunk: int) -> Sequence[pa.Array]:
        """The columns of a chunk. Raises OSError."""
        stored = self._file.read(chunk, _COLUMNS)
        return _batch(stored).columns if len(stored) else ()

    def close(self) -> None:
        """Free the temporary file."""
        self._file.close()


def _cut(ordered: OrderedRows, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """The rows [first, last) of each chunk: about `chunk_bytes` bytes, at least one row."""
    sizes = ordered.row_bytes()
    if sizes is None:
        step = max(1, chunk_bytes // _SMALL_ROW_BYTES)
        yield from ((first, min(first + step, ordered.count)) for first in range(0, ordered.count, step))
        return
    ends = np.cumsum(sizes)
    first = before = 0
    while first < ordered.count:
        last = max(first + 1, int(np.searchsorted(ends, before + chunk_bytes, side="right")))
        yield first, last
        first, before = last, int(ends[last - 1])


def _encode(ordered: OrderedRows, first: int, last: int) -> tuple[int, list[Any]]:
    """The parts of a chunk, and the approximate memory that it takes when it is read."""
    rows = ordered.rows(first, last, plain=True)
    keys = pa.record_batch([rows.spaces, rows.groupings, pa.array(rows.run_starts)], ["space", "grouping", "start"])
    parts: list[Any] = [_stream(keys), rows.timestamps.tobytes(), b""]
    size = keys.nbytes + 8 * len(rows.timestamps)
    if rows.columns:
        fields = ordered.schema.fields  # only all rows together needed 64-bit offsets
        arrays = [a if a.type == f.type else a.cast(f.type) for a, f in zip(rows.columns, fields, strict=True)]
        columns = pa.record_batch(arrays, [str(place) for place in range(len(arrays))])
        parts[_COLUMNS] = _stream(columns)
        size += columns.nbytes
    return size, parts


def _stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=_LZ4, use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def _batch(stored: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.open_stream(stored, options=pa.ipc.IpcReadOptions(use_threads=False)).read_next_batch()
