"""Tables of any kind as Arrow tables of bounded size, in order; a stream is read only as far as needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from esformat.write.intake import stream_of, to_arrow

GROUP_ROWS = 64 << 10  # small batches are combined, because checking a table costs the same for few rows


def pieces_of(table: Any, piece_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of anything with the Arrow C stream or array interface in pieces of about `piece_bytes`; at least
    one.

    Raises InvalidEventError for anything else, and any error of reading the stream.
    """
    if hasattr(table, "__arrow_c_stream__") and not isinstance(table, pa.Table):
        for group in _groups(stream_of(table), piece_bytes):
            yield from _split(group, piece_bytes)
    else:
        yield from _split(to_arrow(table), piece_bytes)


def _split(table: pa.Table, piece_bytes: int) -> Iterator[pa.Table]:
    """Halve a table until its parts are small enough, unless the halves share their memory, as dictionaries do."""
    size = table.nbytes
    if size > piece_bytes and len(table) > 1:
        left, right = table.slice(0, len(table) // 2), table.slice(len(table) // 2)
        if left.nbytes + right.nbytes < 1.5 * size:
            yield from _split(left, piece_bytes)
            yield from _split(right, piece_bytes)
            return
    yield table


def _groups(reader: pa.RecordBatchReader, piece_bytes: int) -> Iterator[pa.Table]:
    """Combine the small batches of a stream; yields an empty table if it has no batches."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    some = False
    for batch in reader:
        waiting.append(batch)
        rows += len(batch)
        size += batch.nbytes
        if rows >= GROUP_ROWS or size >= piece_bytes:
            yield pa.Table.from_batches(waiting, reader.schema)
            waiting, rows, size, some = [], 0, 0, True
    if waiting or not some:
        yield pa.Table.from_batches(waiting, reader.schema)
