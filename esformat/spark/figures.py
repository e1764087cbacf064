"""One-row results: counts, minima and maxima, from segment metadata or from events that were read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from esformat.spark.pushdown import Figure, Pushdown
from esformat.spark.scan_plan import Extent


def known_from_metadata(pushdown: Pushdown) -> bool:
    """Whether metadata gives all figures: the number of events and their first and last time, without conditions."""
    return (
        bool(pushdown.figures)
        and not pushdown.conditions
        and all(figure.column in (None, "timestamp") for figure in pushdown.figures)
    )


def figures_of(pushdown: Pushdown, rows: Extent | pa.Table, schema: pa.Schema) -> pa.Table:
    """The result row, in the given schema, from the events of a source, which all satisfy the conditions."""
    values = [_value(figure, rows, dict(pushdown.equal)) for figure in pushdown.figures]
    columns = [pa.repeat(pa.scalar(value, field.type), 1) for value, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _value(figure: Figure, rows: Extent | pa.Table, fixed: dict[str, Any]) -> Any:
    """Compute a figure of rows; columns in `fixed` have one value in all rows and are not among their columns."""
    name = figure.column
    count = rows.events if isinstance(rows, Extent) else len(rows)
    if name is None or name in fixed:
        return count if figure.function == "count" else fixed[name or ""] if count else None
    if isinstance(rows, Extent):
        return {"count": count, "min": rows.first, "max": rows.last}[figure.function]
    column = rows[name]
    return count - column.null_count if figure.function == "count" else pc.min_max(column)[figure.function]
