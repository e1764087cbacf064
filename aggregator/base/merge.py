"""Ordered union: batches of several sources, each in order, as one stream in order. Whole stretches at a time.

What all open sources have up to the key at which the first of them runs out is sorted at once. A source is opened
when the merge comes near its first key, so thousands of them cost little.
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

PLACE = "number of the partition"
"""The last column of batches with events of several partitions: merging reads it and leaves it out."""
_HIGHEST = 2**63 - 1
_FEW_ROWS = 1 << 12
"""So many rows of several sources are given together: one each would cost as much as thousands."""
_SLOTS = 4
"""Record indexes that span so many times as many as they are, or fewer, are put into order without comparing them."""
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Source:
    """Batches in merge order. `bound`: no key is smaller (the key is the time or record index, `~key` in reverse).

    Every batch has the columns `timestamp` and `record_index`. `partition`: None where the column PLACE tells.
    """

    bound: int
    partition: int | None
    batches: Callable[[], Iterator[pa.RecordBatch]]


Taken = tuple[pa.RecordBatch, I64 | int]
"""Rows of a source, and the partition of each, or of all."""


class _Open:
    """A source that is being read: its current batch, keys and partitions, and the batches to come."""

    def __init__(self, source: Source, by: str, reverse: bool, ahead: bool) -> None:
        self._batches = (batch for batch in source.batches() if len(batch))
        self._following = next(self._batches, None) if ahead else None
        self._ahead = ahead
        self._by, self._reverse = by, reverse
        self._partition = source.partition
        self.batch: pa.RecordBatch | None = None
        self.size_bytes = 0  # of the batch, as it came
        self.keys: I64 = np.zeros(0, dtype=np.int64)
        self.partitions: I64 | int = 0
        self.advance()

    def advance(self) -> None:
        """Go to the next batch that is not empty; `batch` is None after the last."""
        self.batch, self._following = self._following, None
        if self._ahead:
            self._following = None if self.batch is None else next(self._batches, None)
        else:
            self.batch = next(self._batches, None)
        if self.batch is not None:
            self.size_bytes = self.batch.nbytes
            keys = numbers(self.batch, self._by)
            self.keys = ~keys if self._reverse else keys  # ~k is -1 - k: turns the order round and never overflows
            self.batch, self.partitions = _placed(self.batch, self._partition)

    @property
    def horizon(self) -> int:
        """Keys up to this one are all at hand."""
        return _HIGHEST if self._ahead and self._following is None else int(self.keys[-1])

    def _take(self, count: int) -> Taken:
        """Remove and give rows of the batch."""
        assert self.batch is not None
        whole, places = self.batch, self.partitions
        self.batch, self.keys = whole.slice(count), self.keys[count:]
        if isinstance(places, int):
            return whole.slice(0, count), places
        self.partitions = places[count:]
        return whole.slice(0, count), places[:count]

    def take_before(self, key: int) -> list[Taken]:
        """Remove and give the rows of the batch whose key is less than `key`, which is not above its last."""
        count = int(np.searchsorted(self.keys, key, side="left"))
        return [self._take(count)] if count else []

    def take_of_batch(self, key: int) -> list[Taken]:
        """The same with rows whose key is `key`. The next batch is not read, though all rows may have gone."""
        count = int(np.searchsorted(self.keys, key, side="right"))
        return [self._take(count)] if count else []

    def take_up_to(self, key: int) -> list[Taken]:
        """Remove and give all rows whose key is at most `key`, over as many batches as hold it."""
        taken = []
        while self.batch is not None and int(self.keys[0]) <= key:
            taken.append(self._take(int(np.searchsorted(self.keys, key, side="right"))))
            if not len(self.keys):
                self.advance()
        return taken


def _placed(batch: pa.RecordBatch, partition: int | None) -> Taken:
    """A source's batch without PLACE, and what that or the source says of partitions."""
    if partition is not None:
        return batch, partition
    return batch.select(batch.schema.names[:-1]), numbers(batch, PLACE)


def numbers(batch: pa.RecordBatch | pa.Table, column: str) -> I64:
    """A column of times or record indexes, 64 bits each, as numbers."""
    values = batch.column(column)
    if isinstance(values, pa.ChunkedArray):
        if values.num_chunks != 1:
            return np.asarray(values.cast(pa.int64()).to_numpy())
        values = values.chunk(0)
    if not len(values):
        return np.zeros(0, np.int64)
    # as `values.cast(pa.int64()).to_numpy()`, which takes five times as long and lets go of the interpreter's lock
    return np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values)]


def merge(
    sources: Iterable[Source], *, by: str, reverse: bool, sparing: bool = False, ahead: bool = False
) -> Iterator[pa.RecordBatch]:
    """The union of all sources, ordered by the column `by`, then partition, then record index; `reverse` mirrors it.

    sparing: no batch is read before all rows below the last key of the one before were given; the batches are smaller.
    ahead: the next batch of a source is read with the one before; where most have but one, all are ordered at once.
    Raises what `Allowance.check` does: QueryLimitError where too many sources overlap, too.
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
            if by == RECORD_INDEX:  # which is one row's alone: no batch that is not read yet has it
                take = _Open.take_of_batch
            elif sparing and any(int(source.keys[0]) < horizon for source in active):
                take = _Open.take_before
            if active:
                yield from _in_order([taken for source in active for taken in take(source, horizon)], by, reverse)


def merge_few(sources: Iterable[Source], *, by: str, reverse: bool, most_bytes: int) -> list[pa.RecordBatch] | None:
    """What `merge` gives of sources whose batches may come in any order.

    None, and no more is read, where their rows take more than so many bytes. Raises what `Allowance.check` does.
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
                held.set(2 * size)  # and once more in order
                if size > most_bytes:
                    return None
        return list(_in_order(parts, by, reverse)) if parts else []


def _in_order(parts: list[Taken], by: str, reverse: bool) -> Iterator[pa.RecordBatch]:
    """The rows of all parts in order, in pieces of bounded size."""
    if by == RECORD_INDEX and len(parts) == 1:  # in order by itself; by time, ties of several partitions may not be
        return pieces_of(parts[0][0])
    batches = [batch for batch, _ in parts]
    keys = np.concatenate([numbers(batch, by) for batch in batches])
    indexes = keys if by == RECORD_INDEX else np.concatenate([numbers(batch, RECORD_INDEX) for batch in batches])
    partitions: I64 | None = None
    if not all(isinstance(places, int) and places == parts[0][1] for _, places in parts):
        partitions = np.concatenate([np.broadcast_to(places, len(batch)) for batch, places in parts])
    order = sort_order(keys, partitions, indexes, reverse=reverse)
    if len(batches) > 1 and len(keys) <= _FEW_ROWS:
        batches = [pa.concat_batches(batches)]
    if order is not None:
        return ordered_pieces(batches, order)
    return chain.from_iterable(map(pieces_of, batches))


def sort_order(keys: I64, partitions: I64 | None, indexes: I64, *, reverse: bool) -> I64 | None:
    """Row numbers in order; None where the rows are in order already. By record index, keys and indexes are one."""
    ahead, behind = (slice(1, None), slice(None, -1)) if not reverse else (slice(None, -1), slice(1, None))
    after = indexes[ahead] > indexes[behind]
    if partitions is not None:
        after = (partitions[ahead] > partitions[behind]) | (partitions[ahead] == partitions[behind]) & after
    if bool(((keys[ahead] > keys[behind]) | (keys[ahead] == keys[behind]) & after).all()):
        return None
    if keys is indexes:
        order = np.argsort(keys, kind="stable")  # quick where they are almost in order, as they are
    elif partitions is not None:
        order = np.lexsort((indexes, partitions, keys))
    else:
        order = _by_index(indexes)
        order = order[np.argsort(keys[order], kind="stable")]  # in which the times are almost in order, too
    return order[::-1] if reverse else order


def _by_index(indexes: I64) -> I64:
    """Row numbers by record index. Where those lie close together, each is put into its place."""
    low = int(indexes.min())
    slots = int(indexes.max()) - low + 1
    if slots > _SLOTS * len(indexes):
        return np.argsort(indexes, kind="stable")
    rows = np.full(slots, -1, np.int64)
    rows[indexes - low] = np.arange(len(indexes))
    order: I64 = rows[rows >= 0]
    return order if len(order) == len(indexes) else np.argsort(indexes, kind="stable")
