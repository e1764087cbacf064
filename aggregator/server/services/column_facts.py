"""Statistics of a segment's columns: nulls, least and greatest values, lengths, distinct values. Reads all of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import esformat
from esformat.parts import as_text

_MOST_LETTERS = 120  # limit for a value in the result


@dataclass(slots=True)
class _Seen:
    """Statistics of a column so far."""

    type: pa.DataType
    nulls: int = 0
    bytes: int | None = None
    ends: pa.Array | None = None  # the least and the greatest value, of a type that Arrow compares

    def add(self, column: pa.Array) -> None:
        self.nulls += column.null_count
        if pa.types.is_string(self.type) or pa.types.is_binary(self.type):
            self.bytes = (self.bytes or 0) + (pc.sum(pc.binary_length(column)).as_py() or 0)
        elif pa.types.is_nested(self.type) or pa.types.is_null(self.type):
            return
        with contextlib.suppress(pa.ArrowNotImplementedError):  # for example intervals, which have no total order
            ends = _ends(_comparable(column))
            self.ends = ends if self.ends is None else _ends(pa.concat_arrays([self.ends, ends]))

    def summary(self, name: str, events: int) -> dict[str, Any]:
        least, greatest = (None, None) if self.ends is None else _texts(self.ends.cast(self.type))
        return {
            "name": name,
            "type": str(self.type),
            "nulls": self.nulls,
            "least": least,
            "greatest": greatest,
            "mean_bytes": None if self.bytes is None else round(self.bytes / max(1, events - self.nulls), 1),
        }


def column_facts(segment: esformat.Segment, check: Callable[[], None]) -> list[dict[str, Any]]:
    """Return statistics for each column, with values as text.

    check: called for each batch; may raise to stop the scan.
    """
    scan = segment.scan()
    seen = {field.name: _Seen(field.type) for field in scan.schema}
    for batch in scan.batches():
        check()
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            seen[name].add(column)
    different = {name: len(segment.index_values(name)) for name in segment.indexes} | {"space": segment.num_spaces}
    return [{**each.summary(name, segment.num_events), "different": different.get(name)} for name, each in seen.items()]


def _comparable(column: pa.Array) -> pa.Array:
    """Cast the values to a type that Arrow can compare, if it cannot compare theirs."""
    kind = column.type
    if pa.types.is_duration(kind):
        return column.cast(pa.int64())
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    return column


def _ends(column: pa.Array) -> pa.Array:
    found = pc.min_max(column)
    return pa.concat_arrays([pa.repeat(found["min"], 1), pa.repeat(found["max"], 1)])


def _texts(ends: pa.Array) -> list[str | None]:
    """Return the values as text, even if Python cannot represent them, such as times outside its range of years."""
    if pa.types.is_binary(ends.type):
        texts = [None if value is None else value.decode("utf-8", "replace") for value in ends.to_pylist()]
    else:
        texts = as_text(ends).to_pylist()
    return [None if text is None else text[:_MOST_LETTERS] for text in texts]
