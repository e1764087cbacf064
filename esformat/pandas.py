"""Read `.esdb` files, or some of their columns and events, into a pandas data frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from esformat.errors import UsageError
from esformat.io.location import Options
from esformat.read.ask.arrow_filter import take_apart
from esformat.read.ask.bounds import columns_of
from esformat.read.collection.collection import open_many

__all__ = ["read_esdb"]


def read_esdb(
    path: Any,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    *,
    storage_options: Options = None,
    **to_pandas: Any,
) -> pd.DataFrame:
    """Read the events of files into a data frame, like `pandas.read_parquet`.

    path: whatever `esformat.open_many` takes. columns: those to read. filters: as for `pandas.read_parquet`: a list of
    `(column, op, value)` that must all hold, a list of such lists of which one must hold, or a pyarrow expression.
    to_pandas: options of `pyarrow.Table.to_pandas`.
    Raises what `esformat.open_many` raises, and UsageError for columns and filters that do not fit the schema.
    """
    try:
        expression = None if filters is None else pq.filters_to_expression(filters)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"filters that cannot be read: {error}", hint='give a list such as [("type", "=", "buy")]'
        ) from None
    with open_many(path, storage_options=storage_options) as opened:
        dataset = opened.dataset()
        try:
            scanner = dataset.scanner(columns=columns, filter=expression)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise _misfit(dataset.schema, columns, expression, error) from None
        return scanner.to_table().to_pandas(**to_pandas)


def _misfit(schema: pa.Schema, columns: Any, filter: pc.Expression | None, error: Exception) -> UsageError:
    """The error for columns or a filter that pyarrow rejected."""
    if columns is not None and not isinstance(columns, list | tuple):
        return UsageError(f"columns must be a list of names, not {columns!r}")
    named = [] if filter is None else sorted(columns_of(take_apart(filter) or ()))
    for name in (*(columns or ()), *named):
        if name not in schema.names:
            return UsageError(f"no column {name!r}", hint=f"the columns are {', '.join(schema.names)}")
    types = ", ".join(f"{name} ({schema.field(name).type})" for name in named)
    return UsageError(str(error).partition("\n")[0], hint=f"the filter is about {types}" if types else None)
