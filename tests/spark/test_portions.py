"""Cutting batches into portions of one segment each. No Spark."""

from __future__ import annotations

import pyarrow as pa

from esformat.spark.portions import portions


def batches(*sizes, width=0):
    """Batches of these sizes with numbered rows and a text of `width` bytes in each row."""
    first = 0
    for size in sizes:
        yield pa.record_batch({"n": pa.array(range(first, first + size), pa.int64()), "text": ["x" * width] * size})
        first += size


def test_portions():
    """A portion ends when it has enough events or bytes; it has at least one batch."""
    cut = portions(batches(30, 30, 30, 100, 5), most_bytes=1 << 30, most_events=60)
    assert [[len(batch) for batch in held] for held in cut] == [[30, 30], [30], [100], [5]]
    small = portions(batches(10, 10, width=1000), most_bytes=15_000, most_events=1000)
    assert [len(held) for held in small] == [1, 1]
