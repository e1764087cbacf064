"""Ordered union: batches of several sources, each in order, as one stream in order. Whole stretches at a time.

What all open sources have up to the key at which the first of them runs out is sorted at once. A source is opened
when the merge comes near its first key, so thousands of them cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.model import RECORD_INDEX

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Source:
    """Batches in merge order. `bound`: no key is smaller (the key is the time or record index, `~key` in reverse).

    Every batch has the columns `timestamp` and `record_index`.
    """

    bound: int
    partition: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


class _Open:
    """A source that is being read: its current batch and keys, and the batches to come."""

    def __init__(self, source: Source, by: str, reverse: bool) -> None:
        self._batches = source.batches()
        self._by, self._reverse = by, reverse
        self.partition = source.partition
        self.batch: pa.RecordBatch | None = None
        self.keys: I64 = np.zeros(0, dtype=np.int64)
        self.advance()

    def advance(self) -> None:
        """Go to the next batch that is not empty; `batch` is None after the last."""
        self.batch = next((batch for batch in self._batches if len(batch)), None)
        if self.batch is not None:
            keys = numbers(self.batch, self._by)
            self.keys = ~keys if self._reverse else keys  # ~k is -1 - k: turns the order round and never overflows

    def take_before(self, key: int) -> list[pa.RecordBatch]:
        """Remove and give the rows of the batch whose key is less than `key`, which is not above its last."""
        count = int(np.searchsorted(self.keys, key, side="left"))
        assert self.batch is not None
        taken = [self.batch.slice(0, count)] if count else []
        self.batch, self.keys = self.batch.slice(count), self.keys[count:]
        return taken

    def take_up_to(self, key: int) -> list[pa.RecordBatch]:
        """Remove and give all rows whose key is at most `key`, over as many batches as hold it."""
        taken = []
        while self.batch is not None and int(self.keys[0]) <= key:
            count = int(np.searchsorted(self.keys, key, side="right"))
            taken.append(self.batch.slice(0, count))
            if count == len(self.keys):
                self.advance()
            else:
                self.batch, self.keys = self.batch.slice(count), self.keys[count:]
        return taken


def numbers(batch: pa.RecordBatch | pa.Table, column: str) -> I64:
    """A column of times or record indexes as numbers."""
    return np.asarray(batch.column(column).cast(pa.int64()).to_numpy())


def merge(sources: Iterable[Source], *, by: str, reverse: bool, sparing: bool = False) -> Iterator[pa.RecordBatch]:
    """The union of all sources, ordered by the column `by`, then partition, then record index; `reverse` mirrors it.

    sparing: no batch is read before all rows below the last key of the one before were given; the batches are smaller.
    """
    waiting = sorted(sources, key=lambda source: source.bound, reverse=True)
    active: list[_Open] = []
    while waiting or active:
        while waiting and (not active or waiting[-1].bound <= min(int(s.keys[-1]) for s in active)):
            opened = _Open(waiting.pop(), by, reverse)
            if opened.batch is not None:
                active.append(opened)
        if not active:
            continue
        horizon = min(int(source.keys[-1]) for source in active)
        # Rows at the horizon itself may go on in a batch that is not read yet.
        before = sparing and any(int(source.keys[0]) < horizon for source in active)
        take = _Open.take_before if before else _Open.take_up_to
        parts = [(source.partition, take(source, horizon)) for source in active]
        yield _in_order(parts, by, reverse)
        active = [source for source in active if source.batch is not None]


def _in_order(parts: list[tuple[int, list[pa.RecordBatch]]], by: str, reverse: bool) -> pa.RecordBatch:
    batches = [batch for _, group in parts for batch in group]
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    keys, indexes = numbers(batch, by), numbers(batch, RECORD_INDEX)
    partitions: I64 | None = None
    if len({partition for partition, group in parts if group}) > 1:
        counts = [sum(map(len, group)) for _, group in parts]
        partitions = np.repeat([partition for partition, _ in parts], counts)
    order = sort_order(keys, partitions, indexes, reverse=reverse)
    return batch if order is None else batch.take(pa.array(order))


def sort_order(keys: I64, partitions: I64 | None, indexes: I64, *, reverse: bool) -> I64 | None:
    """Row numbers in order; None where the rows are in order already."""
    ahead, behind = (slice(1, None), slice(None, -1)) if not reverse else (slice(None, -1), slice(1, None))
    later = keys[ahead] > keys[behind]
    tied = keys[ahead] == keys[behind]
    if partitions is None:
        if bool((later | tied & (indexes[ahead] > indexes[behind])).all()):
            return None
        order = np.lexsort((indexes, keys))
    else:
        order = np.lexsort((indexes, partitions, keys))
    return order[::-1] if reverse else order
