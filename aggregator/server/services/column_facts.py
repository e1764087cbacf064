"""What the columns of a segment hold: nulls, least and greatest values, lengths, different values. Reads all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import esformat
from esformat.parts import as_text

_MOST_LETTERS = 120  # of a value that is told


@dataclass(slots=True)
class _Seen:
    """What was seen of a column so far."""

    type: pa.DataType
    nulls: int = 0
    bytes: int | None = None
    least: Any = None
    greatest: Any = None

    def add(self, column: pa.Array) -> None:
        self.nulls += column.null_count
        if pa.types.is_string(self.type) or pa.types.is_binary(self.type):
            self.bytes = (self.bytes or 0) + (pc.sum(pc.binary_length(column)).as_py() or 0)
        elif pa.types.is_nested(self.type) or pa.types.is_null(self.type):
            return
        found = pc.min_max(column)
        for name, end, better in (("least", found["min"], pc.less), ("greatest", found["max"], pc.greater)):
            known = getattr(self, name)
            if end.is_valid and (known is None or better(end, known).as_py()):
                setattr(self, name, end)

    def told(self, name: str, events: int) -> dict[str, Any]:
        return {
            "name": name,
            "type": str(self.type),
            "nulls": self.nulls,
            "least": _text(self.least),
            "greatest": _text(self.greatest),
            "mean_bytes": None if self.bytes is None else round(self.bytes / max(1, events - self.nulls), 1),
        }


def column_facts(segment: esformat.Segment, check: Callable[[], None]) -> list[dict[str, Any]]:
    """Of each column what it holds, values as text. check: called now and then; what it raises ends this."""
    scan = segment.scan()
    seen = {field.name: _Seen(field.type) for field in scan.schema}
    for batch in scan.batches():
        check()
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            seen[name].add(column)
    different = {name: len(segment.index_values(name)) for name in segment.indexes} | {"space": segment.num_spaces}
    return [{**each.told(name, segment.num_events), "different": different.get(name)} for name, each in seen.items()]


def _text(value: pa.Scalar | None) -> str | None:
    if value is None:
        return None
    if pa.types.is_binary(value.type):
        return bytes(value.as_py()).decode("utf-8", "replace")[:_MOST_LETTERS]
    told: str = as_text(pa.array([value.as_py()], value.type))[0].as_py()
    return told[:_MOST_LETTERS]
