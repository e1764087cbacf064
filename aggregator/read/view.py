"""The columns that a scan gives, and rows of any source in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from aggregator.base.common_type import in_common_type
from aggregator.model import PARTITION, RECORD_INDEX
from aggregator.read.query import Question
from aggregator.storage.state.tombstones import Hidden, without_hidden
from esformat.parts import in_form_of


@dataclass(frozen=True, slots=True)
class View:
    """What every source gives: the columns `target`, of events that `hidden` does not name."""

    question: Question
    target: pa.Schema
    hidden: Hidden
    partitions: int = 1
    """Of so many, segments are merged by time: they share the memory of windows."""

    @property
    def by(self) -> str:
        """The column that orders the answer."""
        return RECORD_INDEX if self.question.by_index else "timestamp"

    def needed(self, present: Sequence[str]) -> list[str]:
        """Columns to read of those that a source has."""
        wanted = {*self.target.names, "timestamp", RECORD_INDEX}
        if self.hidden:
            wanted.add("space")
        if self.question.grouping is not None and self.question.by_index:
            wanted.add("grouping")
        return [name for name in present if name in wanted]

    def shape(self, table: pa.Table | pa.RecordBatch, partition: str | pa.Array) -> pa.RecordBatch:
        """A table in the columns that are asked for: what a source lacks is null, older types become the common one.

        partition: the name, or that of each row where nothing is hidden.
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
    """Which rows are wanted, of batches in the columns that are asked for; `columns` are those that `mask` looks at.

    held: by column, lists of texts: a row is wanted only if its value holds one text of each list at least.
    held_is_enough: every such row is.
    """

    columns: frozenset[str]
    mask: Callable[[pa.RecordBatch], pa.BooleanArray]
    held: Mapping[str, Sequence[Sequence[bytes]]] = field(default_factory=dict)
    held_is_enough: bool = False


def _one_array(column: pa.ChunkedArray | pa.Array, field: pa.Field) -> pa.Array:
    """A column of a family in the common type; its neighbours do not matter: fewer rows have the same values."""
    kind = field.type
    if pa.types.is_dictionary(kind) and column.type != kind:
        return in_form_of(_one_array(column, field.with_type(kind.value_type)), kind)
    column = in_form_of(column, kind)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if column.type != kind:
        chunks = [in_common_type(chunk, kind) for chunk in chunks]
    return chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, kind).combine_chunks()
