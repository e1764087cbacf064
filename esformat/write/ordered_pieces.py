"""Return the rows of several batches in a chosen order, one bounded piece at a time, without copying whole batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from esformat.core.values import take_values
from esformat.format.arrays import bitmap, slices_mislead

PIECE_ROWS = 1 << 16
PIECE_BYTES = 8 << 20
"""Most rows and bytes of a piece, except for a single larger row."""

I64 = npt.NDArray[np.int64]
_NO_EDGES = np.zeros(1, np.int32)


def pieces_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces without copying it."""
    if len(batch) <= PIECE_ROWS and batch.nbytes <= PIECE_BYTES:
        yield batch
        return
    rows = _piece_rows(len(batch), batch.nbytes)
    for at in range(0, len(batch), rows):
        part = batch.slice(at, rows)
        if len(part) > 1 and part.nbytes > 2 * PIECE_BYTES:  # its rows are larger than average
            yield from pieces_of(part)
        else:
            yield part


def ordered_pieces(batches: Sequence[pa.RecordBatch], order: I64) -> Iterator[pa.RecordBatch]:
    """The rows of batches, numbered across all of them, in a chosen order. It should nearly keep the order of rows
    within each batch, as a union of sorted batches does.

    For each batch, a piece copies the span from the first to the last of its rows there.
    """
    rows, size = sum(map(len, batches)), sum(batch.nbytes for batch in batches)
    starts = np.cumsum([0, *map(len, batches)])
    step = _piece_rows(rows, size)
    waiting = [order[at : at + step] for at in range(0, len(order), step)][::-1]
    while waiting:
        wanted = waiting.pop()
        parts, places = _spans(batches, starts, wanted)
        if len(wanted) > 1 and sum(part.nbytes for part in parts) > 2 * PIECE_BYTES:
            waiting += [wanted[len(wanted) // 2 :], wanted[: len(wanted) // 2]]
            continue
        yield rows_of(parts, places)


def rows_of(batches: Sequence[pa.RecordBatch], order: I64) -> pa.RecordBatch:
    """The rows with these numbers, counted across all batches, in this order. Texts are copied once, not twice as by
    concatenating the batches and Arrow's `take`.
    """
    order = np.ascontiguousarray(order)  # a reversed one is not
    places = pa.array(order)
    columns: list[pa.Array] = []
    for field in batches[0].schema:
        chunks = [batch.column(len(columns)) for batch in batches]
        if pt.is_string(field.type) or pt.is_binary(field.type):
            columns.append(_texts_of(chunks, order))
        else:
            one = len(chunks) == 1 and not slices_mislead(pa.schema([field]))
            columns.append((chunks[0] if one else pa.concat_arrays(chunks)).take(places))
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def _texts_of(chunks: Sequence[pa.Array], order: I64) -> pa.Array:
    """The texts, or bytes, with these numbers, counted across all chunks."""
    parts = []
    for chunk in chunks:
        _, edges, data = chunk.buffers()
        edges = np.frombuffer(edges, np.int32, len(chunk) + 1, 4 * chunk.offset) if len(chunk) else _NO_EDGES
        parts.append((edges, np.frombuffer(data or b"", np.uint8)))
    valid = None
    if any(chunk.null_count for chunk in chunks):
        valid = np.concatenate([chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks])[order]
    buffers = take_values(order, parts, pa.allocate_buffer)
    return pa.Array.from_buffers(chunks[0].type, len(order), [bitmap(valid), *buffers])


def _piece_rows(rows: int, size: int) -> int:
    """The number of average rows in a piece."""
    return max(1, min(PIECE_ROWS, rows * PIECE_BYTES // max(1, size)))


def _spans(batches: Sequence[pa.RecordBatch], starts: I64, wanted: I64) -> tuple[list[pa.RecordBatch], I64]:
    """The part of each batch that contains wanted rows, and the positions of these rows in the concatenated parts."""
    ascending = np.sort(wanted)
    edges = np.searchsorted(ascending, starts)
    held = np.flatnonzero(np.diff(edges))
    firsts, lasts = ascending[edges[held]], ascending[edges[held + 1] - 1]
    parts = [
        batches[number].slice(first - start, last + 1 - first)
        for number, start, first, last in zip(
            held.tolist(), starts[held].tolist(), firsts.tolist(), lasts.tolist(), strict=True
        )
    ]
    moved = firsts - np.concatenate([[0], np.cumsum(lasts + 1 - firsts)[:-1]])
    return parts, wanted - moved[np.searchsorted(firsts, wanted, side="right") - 1]
