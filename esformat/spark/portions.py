"""Division of a task's rows into one portion per segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def portions(batches: Iterable[pa.RecordBatch], *, most_bytes: int, most_events: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches of each segment, buffered up to the given bytes and events, with at least one batch each."""
    held: list[pa.RecordBatch] = []
    size = events = 0
    for batch in batches:
        if held and (size + batch.nbytes > most_bytes or events + len(batch) > most_events):
            yield held
            held, size, events = [], 0, 0
        held.append(batch)
        size += batch.nbytes
        events += len(batch)
    if events:
        yield held
