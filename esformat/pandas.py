"""pandas over `.esdb` files: a data frame of some columns and events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from esformat.io.location import Options
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
    """Events of files as a data frame, as `pandas.read_parquet` gives rows.

    path: whatever `esformat.open_many` takes. columns: those to read. filters: as for `pandas.read_parquet`: a list of
    `(column, op, value)` that must all hold, a list of such lists of which one must hold, or an expression of pyarrow.
    to_pandas: options of `pyarrow.Table.to_pandas`.
    Raises what `esformat.open_many` does, and pyarrow's errors for columns and filters that do not fit.
    """
    expression = None if filters is None else pq.filters_to_expression(filters)
    with open_many(path, storage_options=storage_options) as opened:
        return opened.dataset().to_table(columns=columns, filter=expression).to_pandas(**to_pandas)
