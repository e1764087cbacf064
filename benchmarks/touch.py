"""Proof that a scan over columns really produced them: totals that every column has a part in."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

VIEW_WORDS = 4  # a view is four 32-bit words, the first of which is the value's length

Totals = dict[str, int]
"""Per column: the bytes of its values, for timestamps their XOR; and the number of rows."""


def value_bytes(array: pa.Array) -> int:
    """The bytes of all values of a text or binary array, from its offsets, views or codes."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(array.dictionary).to_numpy(zero_copy_only=False)
        return int(np.bincount(array.indices.to_numpy(), minlength=len(lengths)) @ lengths)
    if kind in (pa.string_view(), pa.binary_view()):
        words = np.frombuffer(array.buffers()[1], np.int32)
        return int(words[array.offset * VIEW_WORDS :: VIEW_WORDS][: len(array)].sum(dtype=np.int64))
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    offsets = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)
    return int(offsets[array.offset + len(array)]) - int(offsets[array.offset])


def touch(batches: Iterable[pa.RecordBatch], columns: Iterable[str]) -> Totals:
    """Consume the batches, touching each of the columns."""
    totals = dict.fromkeys(("rows", *columns), 0)
    for batch in batches:
        if not batch.num_rows:
            continue
        totals["rows"] += batch.num_rows
        for name in columns:
            array = batch.column(name)
            if pa.types.is_timestamp(array.type):
                totals[name] ^= int(np.bitwise_xor.reduce(array.cast(pa.int64()).to_numpy()))
            else:
                totals[name] += value_bytes(array)
    return totals
