"""Filter a source's rows by record index, key, stream and condition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.base.merge import numbers
from aggregator.lql import Filter
from aggregator.model import RECORD_INDEX
from aggregator.read.view import Keep
from aggregator.streams.reading.event_tags import EventTags, Streams
from aggregator.streams.reading.position import Key, Position

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Round:
    """Record indexes [begin, end) by partition; of those, the records after one key, or up to one."""

    begin: dict[int, int]
    end: dict[int, int]
    after: Key | None = None
    up_to: Key | None = None

    @property
    def standing(self) -> Position:
        """The position where the round begins."""
        return Position(self.begin) if self.after is None else Position(self.begin, self.end, self.after)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Keeps the rows of a source's batches that belong to the round and the streams, and match."""

    partition: int
    around: Round
    where: Filter
    chosen: Streams | None
    first: int
    end: int
    others: EventTags | None = None
    """Which events that belong to no stream are kept; `name` is the partition's."""
    name: str = ""
    tags: Callable[[pa.RecordBatch], pa.Array] | None = None
    """Returns the text of each record's tags, if the condition needs it and it is not the space."""

    def keep(self, inside: bool) -> Keep | None:
        """The filter that a source applies while it reads; None to keep everything. inside: as in a call."""
        columns = set(self.where.columns)
        enough = self.where.required_texts_suffice and inside and self.chosen is None and self.others is None
        if self.chosen is not None:
            columns.add("space")
        if self.others is not None or self.tags is not None:
            columns |= {"space", "grouping"}
        if not inside:
            columns.add(RECORD_INDEX)
        if self.around.after is not None or self.around.up_to is not None:
            columns |= {"timestamp", RECORD_INDEX}
            enough = False
        if not columns:
            return None
        return Keep(frozenset(columns), lambda batch: self.mask(batch, inside), self.where.required_texts, enough)

    def mask(self, batch: pa.RecordBatch, inside: bool) -> pa.BooleanArray:
        """True for rows to keep; the condition is evaluated only for rows that the other filters keep."""
        masks: list[Bools] = []
        if not inside:
            indexes = numbers(batch, RECORD_INDEX)
            masks += [indexes >= self.first, indexes < self.end]
        if self.around.after is not None:
            masks.append(self._beyond(batch, self.around.after))
        if self.around.up_to is not None:
            masks.append(~self._beyond(batch, self.around.up_to))
        if self.chosen is not None:
            masks.append(self.chosen.mask(batch.column("space")))
        if self.others is not None:
            masks.append(self.others.mask(self.name, batch))
        mask = np.logical_and.reduce(masks) if masks else np.ones(len(batch), np.bool_)
        if mask.all():
            return self._matching(batch)
        rows = np.flatnonzero(mask)
        mask[rows] = np.asarray(self._matching(batch.take(pa.array(rows))))
        return pa.array(mask)

    def _matching(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        if self.tags is not None:
            batch = batch.set_column(batch.schema.get_field_index("space"), "space", self.tags(batch))
        return self.where.mask(batch)

    def __call__(self, batch: pa.RecordBatch, inside: bool) -> pa.RecordBatch:
        """inside: all of the batch is between the record indexes of the round."""
        mask = self.mask(batch, inside)
        matching = mask.true_count
        return batch if matching == len(batch) else batch.slice(0, 0) if matching == 0 else batch.filter(mask)

    def _beyond(self, batch: pa.RecordBatch, key: Key) -> Bools:
        """Which records come after a key."""
        time, partition, index = key
        times: npt.NDArray[np.int64] = numbers(batch, "timestamp")
        if self.partition != partition:
            return times >= time if self.partition > partition else times > time
        beyond: Bools = (times > time) | ((times == time) & (numbers(batch, RECORD_INDEX) > index))
        return beyond
