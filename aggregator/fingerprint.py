"""What tells the events of a batch from others: the same for the same events, however they lie in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from aggregator.checksum import checksum64


def fingerprint(batch: pa.RecordBatch, message: pa.Buffer) -> int:
    """A number of 64 bits for the events of a batch, which `message` holds as Arrow writes it.

    Columns that it has no values in do not count: the topic may have gained them since it came first. Nor does what
    lies under nulls, in the unused bits of bitmaps, or before and behind texts that were cut out of longer ones.
    """
    given = {field.name: column for field, column in zip(batch.schema, batch.columns, strict=True)}
    columns = {name: _canonical(column) for name, column in given.items() if column.null_count < len(column)}
    as_it_came = len(columns) == len(given) and all(columns[name] is given[name] for name in columns)
    content = message if as_it_came else pa.record_batch(columns, schema=_schema(batch, columns)).serialize()
    return checksum64("\0".join([*columns, str(checksum64(content))]).encode())


def _schema(batch: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.Schema:
    return pa.schema([batch.schema.field(name) for name in columns])


def _canonical(array: pa.Array) -> pa.Array:
    """An array of the same values whose bytes depend on them alone; the same array where that is so already."""
    kind = array.type
    if pt.is_struct(kind) and kind.num_fields:
        children = [_canonical(child) for child in array.flatten()]  # a null is one of every child, too
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if _is_plain(array):
        return array
    copy = array.take(pa.array(np.arange(len(array))))
    if pt.is_map(kind):
        keys, items = _canonical(copy.keys), _canonical(copy.items)
        return pa.MapArray.from_arrays(copy.offsets, keys, items, type=kind, mask=copy.is_null())
    if pt.is_list(kind) or pt.is_large_list(kind):
        return type(copy).from_arrays(copy.offsets, _canonical(copy.values), type=kind, mask=copy.is_null())
    if pt.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_canonical(_valid_or_null(copy)), type=kind, mask=copy.is_null())
    return copy


def _is_plain(array: pa.Array) -> bool:
    """Whether an array without parts has nothing but its values in its bytes."""
    kind = array.type
    if array.null_count or array.offset or pt.is_boolean(kind) or pt.is_nested(kind):
        return False
    if pt.is_string(kind) or pt.is_binary(kind):
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int32, len(array) + 1) if len(array) else np.zeros(1, np.int32)
        return bool(bounds[0] == 0 and bounds[-1] == (data.size if data is not None else 0))
    return True


def _valid_or_null(array: pa.FixedSizeListArray) -> pa.Array:
    """The values of lists of one length, null where their list is."""
    width = array.type.list_size
    valid = np.repeat(np.asarray(array.is_valid()), width)
    values = array.values.slice(array.offset * width, len(array) * width)
    return pc.if_else(pa.array(valid), values, pa.nulls(len(values), values.type))
