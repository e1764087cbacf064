"""Converts tables of events to one message of the topic's schema. Stores nothing."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from aggregator.engine.ingest.fingerprint import bytes_determine_values, column_key_of, fingerprint, fingerprint_of
from aggregator.storage.memtable.batch import times_of
from esformat import InvalidEventError
from esformat.parts import EventSchema, check_table, message_writer, to_arrow

MAX_KEY_BYTES = 65_535
"""Maximum size of a space or grouping, as in the segment format."""


class Message(NamedTuple):
    """A batch in the columns of a schema, copied into an Arrow IPC message."""

    stored: bytes
    rows: int
    min_timestamp: int
    max_timestamp: int
    column_key: tuple[str, ...] | None = None
    """The argument `column_key` for `fingerprint_of`; None if the bytes depend on more than the events' values."""

    def fingerprint(self, schema: EventSchema) -> int:
        """The fingerprint of the events. schema: the one whose columns this message has."""
        if self.column_key is not None:
            return fingerprint_of(self.column_key, self.stored)
        return fingerprint(pa.ipc.read_record_batch(self.stored, schema.arrow), self.stored)


class BatchAdapter:
    """Converts batches with one set of columns to batches of a schema. Created once for each set of columns."""

    def __init__(self, given: pa.Schema, schema: EventSchema) -> None:
        self._schema = schema
        self._column_key = column_key_of(zip(schema.arrow.names, schema.arrow.types, strict=True))
        self._bytes_determine_values = bytes_determine_values(schema.arrow)
        known, places = set(schema.arrow.names), {name: place for place, name in enumerate(given.names)}
        self._without_values = [name for name in given.names if name not in known]  # so the schema lacks them
        self._writer = None  # None: only `apply` can convert
        if len(places) == len(given):
            types = given.types
            found = ((field, places.get(field.name)) for field in schema.arrow)
            if all(self._is_simple(field, None if at is None else types[at]) for field, at in found):
                self._writer = message_writer(given, schema.arrow, places, MAX_KEY_BYTES)
        self._texts = _texts_of(given)

    @staticmethod
    def _is_simple(field: pa.Field, kind: pa.DataType | None) -> bool:
        """Whether a column of that type, or a missing one, becomes the field without a check of its values."""
        if kind is None:
            return bool(field.nullable) or field.name == "grouping"
        return bool(kind == field.type) or (field.name == "timestamp" and kind == pa.int64())

    def apply(self, given: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
        """The events of `given`, checked. Raises InvalidEventError, which names the column and row."""
        return _one_batch(check_table(to_arrow(given).drop_columns(self._without_values), self._schema))

    def _checked_here(self, given: pa.RecordBatch | pa.Table) -> tuple[bytes, int, int, int] | None:
        """Write a message without Arrow's help; None if that is needed."""
        if self._writer is None or self._texts is None:
            return None
        if isinstance(given, pa.RecordBatch):
            return self._writer.write_columns(given.columns, given.num_rows, self._texts)
        if not _one_chunk(given):
            return None
        return self._writer.write_columns([column.chunk(0) for column in given.columns], len(given), self._texts)

    def _of_written(self, written: tuple[bytes, int, int, int], rows: int) -> Message:
        stored, first, last, nulls = written
        return Message(
            stored, rows, first, last, self._column_key if self._bytes_determine_values and not nulls else None
        )

    def message(self, given: pa.RecordBatch | pa.Table) -> Message:
        """A checked copy of the events of `given`, as a message. Raises as `apply`."""
        written = self._checked_here(given)
        if written is not None:
            return self._of_written(written, given.num_rows)
        if self._writer is not None and (isinstance(given, pa.RecordBatch) or _one_chunk(given)):
            batch = given if isinstance(given, pa.RecordBatch) else given.to_batches()[0]
            if is_valid(batch):
                written = self._writer.write(batch.__arrow_c_array__()[1])
                if written is not None:
                    return self._of_written(written, batch.num_rows)
        batch = self.apply(given)
        times = times_of(batch) if len(batch) else [0]
        return Message(batch.serialize().to_pybytes(), len(batch), int(min(times)), int(max(times)))


def _texts_of(given: pa.Schema) -> bytes | None:
    """A byte for each column, 1 if it contains UTF-8 and 0 if not, for the message writer. None if Arrow must check
    more than the bounds of values: nested columns, and types in which not every bit pattern is a value, such as
    decimals and times of day.
    """
    kinds = given.types
    if not all(
        pt.is_string(kind) or pt.is_large_string(kind) or any(plain(kind) for plain in _PLAIN) for kind in kinds
    ):
        return None
    return bytes(bool(pt.is_string(kind) or pt.is_large_string(kind)) for kind in kinds)


_PLAIN = (
    pt.is_integer, pt.is_floating, pt.is_boolean, pt.is_timestamp, pt.is_duration, pt.is_date32, pt.is_binary,
    pt.is_large_binary, pt.is_fixed_size_binary,
)  # fmt: skip


def is_valid(batch: pa.RecordBatch | pa.Table) -> bool:
    """Whether a batch passes Arrow's full validation. If not, `apply` reports what is wrong."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _one_chunk(table: pa.Table) -> bool:
    return len(table) > 0 and all(column.num_chunks == 1 for column in table.columns)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InvalidEventError("the batch is larger than 2 GiB", hint="append smaller batches")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
