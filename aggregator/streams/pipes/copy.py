"""Copies of records for a pipe's stream: the same events, with their tags as fields.

Works on whole batches. A field of a record is not replaced by a tag of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.base.common_type import magnitudes_of
from aggregator.lql import TagSet
from aggregator.lql.parse.columns import as_text
from aggregator.model import RESERVED_COLUMNS
from aggregator.storage.segments.records import FIELD_MAP, FIELDS
from aggregator.storage.state.schema import choose_schema
from aggregator.storage.state.state import Topic
from esformat import InvalidEventError, UsageError

I64 = npt.NDArray[np.int64]
_KEYS = ("space", "grouping", "timestamp", "data")


def copied_events(batch: pa.RecordBatch, space: str) -> pa.Table:
    """The records of a batch as events of the stream `space`. Columns without a value are omitted."""
    columns: dict[str, pa.Array] = {
        "space": pa.repeat(pa.scalar(space), len(batch)),
        "grouping": batch.column("grouping"),
        "timestamp": batch.column("timestamp"),
        "data": _as_bytes(batch.column("data")),
    }
    own = batch.column(FIELDS) if FIELDS in batch.schema.names else pa.nulls(len(batch), FIELD_MAP)
    if own.type != FIELD_MAP:  # a column of the topic that happens to have this name
        own = _fields([(FIELDS, as_text(own))])
    columns[FIELDS] = _joined(own, _tags(batch.column("space")))
    for name in batch.schema.names:
        if name not in (*_KEYS, FIELDS, *RESERVED_COLUMNS) and batch.column(name).null_count < len(batch):
            columns[name] = batch.column(name)
    return pa.table(columns)


def refused_columns(events: pa.Table, target: Topic) -> list[str]:
    """The columns that a topic cannot accept, because no type holds both their values and the topic's, or they cannot
    be indexed. If it accepts each of them but not all together: the columns that it does not have yet. Raises
    InvalidEventError.
    """
    schemas, indexes = list(target.schemas.values()), target.info.indexes

    def is_refused(name: str) -> bool:
        one = events.select([*_KEYS, name])
        try:
            choose_schema(schemas, one.schema, indexes, binary_keys=False, magnitudes=magnitudes_of(one))
        except (InvalidEventError, UsageError):
            return True
        return False

    known = {*indexes, *(name for info in schemas for name in info.schema.positions)}
    columns = [name for name in events.column_names if name not in (*_KEYS, FIELDS)]
    refused = [name for name in columns if name in known and is_refused(name)]
    return refused or [name for name in columns if name not in known]


def with_fields(events: pa.Table, names: Sequence[str]) -> pa.Table:
    """Move these columns as text into the map of fields, which holds the values that no column can hold."""
    if not names:
        return events
    texts = [(name, as_text(events.column(name).combine_chunks())) for name in reversed(names)]
    fields = _joined(_fields(texts), events.column(FIELDS).combine_chunks())
    kept = events.drop_columns(list(names))
    return kept.set_column(kept.schema.get_field_index(FIELDS), FIELDS, fields)


def _as_bytes(messages: pa.Array) -> pa.Array:
    return messages if messages.type == pa.binary() else as_text(messages).cast(pa.binary())


def _fields(columns: Sequence[tuple[str, pa.Array]]) -> pa.Array:
    """A map for each row with the non-null values of all columns.

    Built in one step, because adding columns one by one takes quadratic time.
    """
    there = [np.asarray(pc.is_valid(texts).to_numpy(zero_copy_only=False)) for _, texts in columns]
    rows = np.concatenate([np.flatnonzero(each) for each in there])
    places = np.repeat(np.arange(len(columns)), [np.count_nonzero(each) for each in there])
    order = np.argsort(rows, kind="stable")
    names = pa.array([name for name, _ in columns], pa.string())
    values = pa.concat_arrays([texts.drop_null().cast(pa.string()) for _, texts in columns])
    lengths = np.bincount(rows, minlength=len(there[0]))
    return _maps(names.take(pa.array(places[order])), values.take(pa.array(order)), lengths)


def _tags(spaces: pa.Array) -> pa.Array:
    """The tags of each row's stream as a map."""
    encoded = spaces.dictionary_encode() if not pa.types.is_dictionary(spaces.type) else spaces
    maps = pa.array([list(TagSet.parse(name).items) for name in encoded.dictionary.to_pylist()], FIELD_MAP)
    return maps.take(encoded.indices)


def _joined(own: pa.Array, tags: pa.Array) -> pa.Array:
    """The entries of both maps in each row, without tags whose name is already a field of the row."""
    first, second = _Entries.of(own), _Entries.of(tags)
    names = pa.concat_arrays([first.keys, second.keys]).dictionary_encode()
    codes = np.asarray(names.indices.to_numpy())
    width = len(names.dictionary) + 1
    mine = first.rows * width + codes[: len(first.rows)]
    theirs = second.rows * width + codes[len(first.rows) :]
    kept = ~np.isin(theirs, mine)
    rows = np.concatenate([first.rows, second.rows[kept]])
    order = np.argsort(rows, kind="stable")
    places = pa.array(order)
    keys = pa.concat_arrays([first.keys, second.keys.filter(pa.array(kept))]).take(places)
    items = pa.concat_arrays([first.items, second.items.filter(pa.array(kept))]).take(places)
    return _maps(keys, items, np.bincount(rows, minlength=len(own)))


class _Entries:
    """The entries of a map column: keys, values, and the row of each."""

    def __init__(self, keys: pa.Array, items: pa.Array, rows: I64) -> None:
        self.keys, self.items, self.rows = keys, items, rows

    @classmethod
    def of(cls, maps: pa.Array) -> _Entries:
        offsets = np.asarray(maps.offsets.to_numpy()).astype(np.int64)
        lengths = np.diff(offsets)
        lengths[np.asarray(pc.is_null(maps).to_numpy(zero_copy_only=False))] = 0
        rows = np.repeat(np.arange(len(maps)), lengths)
        starts = np.repeat(offsets[:-1] - (np.cumsum(lengths) - lengths), lengths)
        places = pa.array(starts + np.arange(len(rows)))
        return cls(maps.keys.take(places), maps.items.take(places), rows)


def _maps(keys: pa.Array, items: pa.Array, lengths: I64) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items).cast(FIELD_MAP)


def slices(batch: pa.RecordBatch, max_rows: int, max_bytes: int) -> Sequence[pa.RecordBatch]:
    """Split a batch into parts of at most `max_rows` and about `max_bytes`, with at least one row each."""
    rows = max(1, min(max_rows, len(batch) * max_bytes // max(1, batch.nbytes)))
    return [batch.slice(first, rows) for first in range(0, len(batch), rows)]
