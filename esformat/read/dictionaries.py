"""Text as Arrow dictionaries, for engines that process each value of a dictionary once, not the value of each row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt

from esformat.format.arrays import in_form_of

if TYPE_CHECKING:
    from esformat.read.blocks.reader import Reader

_TEXT = pa.dictionary(pa.int32(), pa.string())


def coded_columns(reader: Reader) -> list[str]:
    """The column space, if it is text, and the indexed text columns whose values the file's first dictionary lists.

    Raises CorruptSegmentError.
    """
    listed = reader.coded_places()
    return ["space"] * (not reader.schema.binary_keys) + [
        field.name
        for place, field in enumerate(reader.fields)
        if place in listed and field.indexed and pt.is_string(field.type)
    ]


def in_dictionaries(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """The schema with some of its columns of text as dictionaries."""
    return pa.schema(
        [field.with_type(_TEXT) if field.name in names and pt.is_string(field.type) else field for field in schema]
    )


def in_forms_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows, with each column converted to its form in the schema."""
    for batch in batches:
        given = batch.schema
        fields = [schema.field(name) for name in given.names]
        if list(given) == fields:
            yield batch
        else:
            columns = [in_form_of(column, field.type) for column, field in zip(batch.columns, fields, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
