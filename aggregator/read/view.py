"""The columns that a scan returns, and the conversion of rows from any source to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from aggregator.base.common_type import in_common_type
from aggregator.model import PARTITION, RECORD_INDEX
from aggregator.read.query import Query
from aggregator.storage.state.tombstones import Hidden, without_hidden
from esformat.parts import in_form_of


@dataclass(frozen=True, slots=True)
class View:
    """What every source returns: the columns `target`, of events that are not `hidden`."""

    query: Query
    target: pa.Schema
    hidden: Hidden
    partitions: int = 1
    """Number of partitions whose segments are merged by time: they share the memory of windows."""

    @property
    def by(self) -> str:
        """The column that orders the result."""
        return RECORD_INDEX if self.query.by_index else "timestamp"

    def needed(self, present: Sequence[str]) -> list[str]:
        """The columns to read, of those that a source has."""
        wanted = {*self.target.names, "timestamp", RECORD_INDEX}
        if self.hidden:
            wanted.add("space")
        if self.query.grouping is not None and self.query.by_index:
            wanted.add("grouping")
        return [name for name in present if name in wanted]

    def shape(self, table: pa.Table | pa.RecordBatch, partition: str | pa.Array) -> pa.RecordBatch:
        """Convert a table to the target columns: missing ones are null, older types become the common one.

        partition: the name, or that of each row if nothing is hidden.
        """
        table = without_hidden(table, self.hidden)
        if isinstance(table, pa.RecordBatch) and table.schema == self.target:
            return table
        present = set(table.schema.names)
        arrays = []
        for column in self.target:
            if column.name == PARTITION:
                named = isinstance(partition, str)
                arrays.append(pa.repeat(pa.scalar(partition, pa.string()), len(table)) if named else partition)
            elif column.name not in present:
                arrays.append(pa.nulls(len(table), column.type))
            else:
                arrays.append(_one_array(table.column(column.name), column))
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)


@dataclass(frozen=True, slots=True)
class Keep:
    """Selects rows of batches that have the requested columns. `columns`: those that `mask` reads.

    required_texts: by column, lists of texts: a row is selected only if its value contains at least one text of each
        list.
    required_texts_suffice: every such row is selected.
    """

    columns: frozenset[str]
    mask: Callable[[pa.RecordBatch], pa.BooleanArray]
    required_texts: Mapping[str, Sequence[Sequence[bytes]]] = field(default_factory=dict)
    required_texts_suffice: bool = False


def _one_array(column: pa.ChunkedArray | pa.Array, field: pa.Field) -> pa.Array:
    """Convert a column of a family to the common type. Each value is converted independently of the other rows."""
    kind = field.type
    if pa.types.is_dictionary(kind) and column.type != kind:
        return in_form_of(_one_array(column, field.with_type(kind.value_type)), kind)
    column = in_form_of(column, kind)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if column.type != kind:
        chunks = [in_common_type(chunk, kind) for chunk in chunks]
    return chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, kind).combine_chunks()
