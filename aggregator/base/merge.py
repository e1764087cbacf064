"""Ordered union: merge batches of several sources, each in order, into one ordered stream, many rows at a time.

The horizon is the smallest of the keys at which the open sources' batches end. All rows up to it are sorted together. A
source is opened only when the merge approaches its first key, so thousands of sources cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.base.allowance import Holding, check
from aggregator.model import RECORD_INDEX
from esformat.parts import ordered_pieces, pieces_of

PARTITION_COLUMN = "number of the partition"
"""The last column of batches with events of several partitions: merging reads it and removes it."""
_HIGHEST = 2**63 - 1
_FEW_ROWS = 1 << 12
"""Up to this many rows of several sources form one batch: a batch of one row costs as much as one of thousands."""
_SLOTS = 4
"""Record indexes that span at most this many times their number are ordered without comparing them."""
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Source:
    """Batches in merge order. `bound`: no key is smaller (the key is the time or record index, `~key` in reverse).

    Every batch has the columns `timestamp` and `record_index`. `partition`: None if PARTITION_COLUMN contains it.
    """

    bound: int
    partition: int | None
    batches: Callable[[], Iterator[pa.RecordBatch]]


Taken = tuple[pa.RecordBatch, I64 | int]
"""Rows of a source, and the partition of each row, or of all."""


class _Open:
    """A source being read: its current batch, keys and partitions, and the remaining batches."""

    def __init__(self, source: Source, by: str, reverse: bool, ahead: bool) -> None:
        self._batches = (batch for batch in source.batches() if len(batch))
        self._following = next(self._batches, None) if ahead else None
        self._ahead = ahead
        self._by, self._reverse = by, reverse
        self._partition = source.partition
        self.batch: pa.RecordBatch | None = None
        self.size_bytes = 0  # of the whole batch, as read
        self.keys: I64 = np.zeros(0, dtype=np.int64)
        self.partitions: I64 | int = 0
        self.advance()

    def advance(self) -> None:
        """Move to the next nonempty batch; `batch` is None after the last."""
        self.batch, self._following = self._following, None
        if self._ahead:
            self._following = None if self.batch is None else next(self._batches, None)
        else:
            self.batch = next(self._batches, None)
        if self.batch is not None:
            self.size_bytes = self.batch.nbytes
            keys = numbers(self.batch, self._by)
            self.keys = ~keys if self._reverse else keys  # ~k is -1 - k: reverses the order and never overflows
            self.batch, self.partitions = _placed(self.batch, self._partition)

    @property
    def horizon(self) -> int:
        """All keys up to this one are in memory."""
        return _HIGHEST if self._ahead and self._following is None else int(self.keys[-1])

    def _take(self, count: int) -> Taken:
        """Remove and return the first `count` rows of the batch."""
        assert self.batch is not None
        whole, partitions = self.batch, self.partitions
        self.batch, self.keys = whole.slice(count), self.keys[count:]
        if isinstance(partitions, int):
            return whole.slice(0, count), partitions
        self.partitions = partitions[count:]
        return whole.slice(0, count), partitions[:count]

    def take_before(self, key: int) -> list[Taken]:
        """Remove and return the batch's rows with a key less than `key`, which must not exceed the batch's last key."""
        count = int(np.searchsorted(self.keys, key, side="left"))
        return [self._take(count)] if count else []

    def take_of_batch(self, key: int) -> list[Taken]:
        """Remove and return the batch's rows whose key is at most `key`. Never reads the next batch."""
        count = int(np.searchsorted(self.keys, key, side="right"))
        return [self._take(count)] if count else []

    def take_up_to(self, key: int) -> list[Taken]:
        """Remove and return all rows whose key is at most `key`, over as many batches as contain it."""
        taken = []
        while self.batch is not None and int(self.keys[0]) <= key:
            taken.append(self._take(int(np.searchsorted(self.keys, key, side="right"))))
            if not len(self.keys):
                self.advance()
        return taken


def _placed(batch: pa.RecordBatch, partition: int | None) -> Taken:
    """A batch without PARTITION_COLUMN, and the partitions from that column or from the source."""
    if partition is not None:
        return batch, partition
    return batch.select(batch.schema.names[:-1]), numbers(batch, PARTITION_COLUMN)


def numbers(batch: pa.RecordBatch | pa.Table, column: str) -> I64:
    """A 64-bit column of times or record indexes, as numbers."""
    values = batch.column(column)
    if isinstance(values, pa.ChunkedArray):
        if values.num_chunks != 1:
            return np.asarray(values.cast(pa.int64()).to_numpy())
        values = values.chunk(0)
    if not len(values):
        return np.zeros(0, np.int64)
    # like `values.cast(pa.int64()).to_numpy()`, which takes five times as long and releases the GIL
    return np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values)]


def merge(
    sources: Iterable[Source], *, by: str, reverse: bool, sparing: bool = False, ahead: bool = False
) -> Iterator[pa.RecordBatch]:
    """The union of all sources, ordered by the column `by`, then partition, then record index; `reverse` mirrors it.

    sparing: read no batch before all rows below the last key of the previous one were returned; the batches are
    smaller. ahead: read a source's next batch together with the current one; if most sources have only one batch, all
    are sorted together. Raises the errors of `Allowance.check`, and QueryLimitError if too many sources overlap.
    """
    waiting = sorted(sources, key=lambda source: source.bound, reverse=True)
    active: list[_Open] = []
    with Holding() as held:
        while waiting or active:
            check()
            for source in active:
                if not len(source.keys):
                    source.advance()
            active = [source for source in active if source.batch is not None]
            horizon = min((source.horizon for source in active), default=_HIGHEST)
            while waiting and (not active or waiting[-1].bound <= horizon):
                opened = _Open(waiting.pop(), by, reverse, ahead)
                if opened.batch is not None:
                    active.append(opened)
                    horizon = min(horizon, opened.horizon)
            held.set(sum(source.size_bytes for source in active))
            take = _Open.take_up_to
            if by == RECORD_INDEX:  # unique: no unread batch contains it
                take = _Open.take_of_batch
            elif sparing and any(int(source.keys[0]) < horizon for source in active):
                take = _Open.take_before
            if active:
                yield from _in_order([taken for source in active for taken in take(source, horizon)], by, reverse)


def merge_few(sources: Iterable[Source], *, by: str, reverse: bool, most_bytes: int) -> list[pa.RecordBatch] | None:
    """The result of `merge` for sources whose batches may be in any order.

    Returns None, and stops reading, if their rows take more than `most_bytes`. Raises the errors of `Allowance.check`.
    """
    parts: list[Taken] = []
    size = 0
    with Holding() as held:
        for source in sources:
            check()
            for batch in source.batches():
                if not len(batch):
                    continue
                parts.append(_placed(batch, source.partition))
                size += batch.get_total_buffer_size()
                held.set(2 * size)  # and a sorted copy
                if size > most_bytes:
                    return None
        return list(_in_order(parts, by, reverse)) if parts else []


def _in_order(parts: list[Taken], by: str, reverse: bool) -> Iterator[pa.RecordBatch]:
    """The rows of all parts in order, in batches of bounded size."""
    if by == RECORD_INDEX and len(parts) == 1:  # already ordered; by time, ties of several partitions may not be
        return pieces_of(parts[0][0])
    batches = [batch for batch, _ in parts]
    keys = np.concatenate([numbers(batch, by) for batch in batches])
    indexes = keys if by == RECORD_INDEX else np.concatenate([numbers(batch, RECORD_INDEX) for batch in batches])
    partitions: I64 | None = None
    if not all(isinstance(each, int) and each == parts[0][1] for _, each in parts):
        partitions = np.concatenate([np.broadcast_to(each, len(batch)) for batch, each in parts])
    order = sort_order(keys, partitions, indexes, reverse=reverse)
    if len(batches) > 1 and len(keys) <= _FEW_ROWS:
        batches = [pa.concat_batches(batches)]
    if order is not None:
        return ordered_pieces(batches, order)
    return chain.from_iterable(map(pieces_of, batches))


def sort_order(keys: I64, partitions: I64 | None, indexes: I64, *, reverse: bool) -> I64 | None:
    """Row numbers in order; None if the rows are already in order. By record index: `keys` is `indexes`."""
    ahead, behind = (slice(1, None), slice(None, -1)) if not reverse else (slice(None, -1), slice(1, None))
    after = indexes[ahead] > indexes[behind]
    if partitions is not None:
        after = (partitions[ahead] > partitions[behind]) | (partitions[ahead] == partitions[behind]) & after
    if bool(((keys[ahead] > keys[behind]) | (keys[ahead] == keys[behind]) & after).all()):
        return None
    if keys is indexes:
        order = np.argsort(keys, kind="stable")  # fast for nearly sorted keys, as these are
    elif partitions is not None:
        order = np.lexsort((indexes, partitions, keys))
    else:
        order = _by_index(indexes)
        order = order[np.argsort(keys[order], kind="stable")]  # in this order the times are nearly sorted, too
    return order[::-1] if reverse else order


def _by_index(indexes: I64) -> I64:
    """Row numbers by record index. If the indexes are dense, each row is placed directly without sorting."""
    low = int(indexes.min())
    slots = int(indexes.max()) - low + 1
    if slots > _SLOTS * len(indexes):
        return np.argsort(indexes, kind="stable")
    rows = np.full(slots, -1, np.int64)
    rows[indexes - low] = np.arange(len(indexes))
    order: I64 = rows[rows >= 0]
    return order if len(order) == len(indexes) else np.argsort(indexes, kind="stable")
