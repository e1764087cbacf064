"""Times that Parquet files have in 96 bits (INT96), as Spark, Hive and Impala write them.

Arrow reads them as nanoseconds, which are silently wrong outside the years 1677 to 2262, such as 9999-12-31, or as
microseconds, without the digits below. So they are read in both ways.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from esformat.convert.arrays import ints
from esformat.convert.errors import InputError
from esformat.write.plain_array import plain_array


def in_micros(stream: pa.NativeFile, file: pa.parquet.ParquetFile) -> pa.parquet.ParquetFile:
    """Return an open file again, with such times in microseconds; the file itself if it has none."""
    if all(file.schema.column(place).physical_type != "INT96" for place in range(len(file.schema))):
        return file
    return pa.parquet.ParquetFile(stream, metadata=file.metadata, coerce_int96_timestamp_unit="us")


def with_exact_times(batch: pa.RecordBatch, micros: pa.RecordBatch, path: str) -> pa.RecordBatch:
    """Return a batch with exact times. micros: its columns of such times, in microseconds. Raises InputError."""
    for field, column in zip(micros.schema, micros.columns, strict=True):
        place = batch.schema.get_field_index(field.name)
        try:
            batch = batch.set_column(place, field.name, _exact(batch.column(place), column))
        except pa.ArrowInvalid as error:
            raise InputError(
                f"column {field.name!r} has times outside the years 1677 to 2262 in a form that does not fit",
                path=path,
                hint="write its times as TIMESTAMP_MICROS, which Spark calls spark.sql.parquet.outputTimestampType",
            ) from error
    return batch


def _exact(nanos: pa.Array, micros: pa.Array) -> pa.Array:
    """Return the times in microseconds if no digit is below. Raises pa.ArrowInvalid if nanoseconds do not fit."""
    pairs = zip(_leaves(nanos), _leaves(micros), strict=True)
    if not any(_has_digits_below(*each) for each in pairs if each[0].type != each[1].type):
        return micros
    plain_array(micros, nanos.type)
    return nanos


def _has_digits_below(nanos: pa.Array, micros: pa.Array) -> bool:
    fine, coarse = (ints(each.cast(pa.int64()).fill_null(0)) for each in (nanos, micros))
    return bool(np.subtract(fine, 1000 * coarse).any())  # right even if both are wrapped


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    """Yield the values inside lists, maps and structs; those inside nulls are left out or null."""
    if not pa.types.is_nested(column.type):
        yield column
        return
    if pa.types.is_map(column.type):
        start, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
        parts = [part.slice(start, end - start) for part in (column.keys, column.items)]
    else:
        parts = column.flatten() if pa.types.is_struct(column.type) else [column.flatten()]
    for part in parts:
        yield from _leaves(part)
