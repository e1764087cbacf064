"""Answers of one row: counts and extremes, of what segments say of themselves or of events that were read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from esformat.spark.handed import Figure, Handed
from esformat.spark.scan_plan import Extent


def told_by_files(handed: Handed) -> bool:
    """Whether segments say all figures of all their events: how many there are, and the first and last time."""
    return (
        bool(handed.figures)
        and not handed.conditions
        and all(figure.column in (None, "timestamp") for figure in handed.figures)
    )


def figures_of(handed: Handed, rows: Extent | pa.Table, schema: pa.Schema) -> pa.Table:
    """The answer, with the columns of a schema, of the events that a source gives: all that meet the conditions."""
    values = [_value(figure, rows, dict(handed.equal)) for figure in handed.figures]
    columns = [pa.repeat(pa.scalar(value, field.type), 1) for value, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _value(figure: Figure, rows: Extent | pa.Table, fixed: dict[str, Any]) -> Any:
    """A figure of rows, where columns that have one value in all of them are not among theirs."""
    name = figure.column
    count = rows.events if isinstance(rows, Extent) else len(rows)
    if name is None or name in fixed:
        return count if figure.function == "count" else fixed[name or ""] if count else None
    if isinstance(rows, Extent):
        return {"count": count, "min": rows.first, "max": rows.last}[figure.function]
    column = rows[name]
    return count - column.null_count if figure.function == "count" else pc.min_max(column)[figure.function]
