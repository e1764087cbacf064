"""Ordered union: batches of several sources, each in time order, as one stream in time order.

Whole stretches at a time: what all open sources have up to the time at which the first of them runs out is sorted at
once. A source is opened when the merge comes near its first time, so thousands of them cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.write.ordered_pieces import ordered_pieces

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Source:
    """Batches in merge order. `bound`: no key (the time, `~time` in reverse) is smaller; `tie`: breaks ties."""

    bound: int
    tie: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


class _Open:
    """A source that is being read: its current batch and keys, and the batches to come."""

    def __init__(self, source: Source, reverse: bool) -> None:
        self._batches = source.batches()
        self._reverse = reverse
        self.tie = source.tie
        self.batch: pa.RecordBatch | None = None
        self.keys: I64 = np.zeros(0, dtype=np.int64)
        self.advance()

    def advance(self) -> None:
        """Go to the next batch; `batch` is None after the last."""
        self.batch = next(self._batches, None)
        if self.batch is not None:
            times = np.asarray(self.batch.column("timestamp").cast(pa.int64()).to_numpy())
            self.keys = ~times if self._reverse else times  # ~t is -1 - t: turns the order round and never overflows

    def take_up_to(self, key: int) -> tuple[pa.RecordBatch, I64]:
        """Remove and give the rows whose key is at most `key`."""
        assert self.batch is not None
        count = int(np.searchsorted(self.keys, key, side="right"))
        taken, keys = self.batch.slice(0, count), self.keys[:count]
        if count == len(self.keys):
            self.advance()
        else:
            self.batch, self.keys = self.batch.slice(count), self.keys[count:]
        return taken, keys


def merge_by_time(sources: Iterable[Source], columns: list[str], *, reverse: bool = False) -> Iterator[pa.RecordBatch]:
    """The union of all sources in time order, ties by source, then by order within it; `columns` of it."""
    waiting = sorted(sources, key=lambda source: (source.bound, source.tie))
    waiting.reverse()
    active: list[_Open] = []
    while waiting or active:
        while waiting and (not active or waiting[-1].bound <= min(int(s.keys[-1]) for s in active)):
            opened = _Open(waiting.pop(), reverse)
            if opened.batch is not None:
                active.append(opened)
        if not active:
            continue
        horizon = min(int(source.keys[-1]) for source in active)
        yield from _sorted_union([(source.tie, *_drain(source, horizon)) for source in active], columns)
        active = [source for source in active if source.batch is not None]


def _drain(source: _Open, horizon: int) -> tuple[list[pa.RecordBatch], I64]:
    """All rows of a source up to the horizon, over as many batches as hold the horizon's own time."""
    batches, keys = [], []
    while source.batch is not None and int(source.keys[0]) <= horizon:
        batch, taken = source.take_up_to(horizon)
        batches.append(batch)
        keys.append(taken)
    return batches, np.concatenate(keys) if keys else np.zeros(0, dtype=np.int64)


def _sorted_union(parts: list[tuple[int, list[pa.RecordBatch], I64]], columns: list[str]) -> Iterator[pa.RecordBatch]:
    parts.sort(key=lambda part: part[0])
    batches = [batch.select(columns) for _, group, _ in parts for batch in group if len(batch)]
    return ordered_pieces(batches, np.argsort(np.concatenate([keys for _, _, keys in parts]), kind="stable"))
