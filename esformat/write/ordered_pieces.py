"""Return the rows of several batches in a chosen order, one bounded piece at a time, without copying whole batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.format.arrays import slices_mislead

PIECE_ROWS = 1 << 16
PIECE_BYTES = 8 << 20
"""Most rows and bytes of a piece, except for a single larger row."""

I64 = npt.NDArray[np.int64]


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
        one = len(parts) == 1 and not slices_mislead(parts[0].schema)
        yield (parts[0] if one else pa.concat_batches(parts)).take(pa.array(places))


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
