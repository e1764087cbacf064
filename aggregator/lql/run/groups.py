"""`Groups`: partial results per group, accumulated by batch, in memory bounded by the number of groups."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

MERGE_ROWS = 200_000
"""Partial results are merged when this many rows were added, or as many as there are groups."""
_MERGED_BY = {"count_all": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max"}
ROWS = "count_all"
"""The result that every group has: its number of rows."""


class Groups:
    """Rows grouped by keys: their number, and the sum, count, minimum and maximum of other columns."""

    def __init__(self, keys: Sequence[str], results: Sequence[tuple[str, str]] = ()) -> None:
        """keys: columns. results: (column, function) pairs; the functions are sum, count, min and max."""
        self.keys = list(keys)
        self._results = [([], "count_all"), *results]
        self._names = [ROWS, *(f"{column}_{how}" for column, how in results)]
        self._merges = [(name, _MERGED_BY[how]) for name, (_, how) in zip(self._names, self._results, strict=True)]
        self._parts: list[pa.Table] = []
        self._merged_rows = 0

    @property
    def nbytes(self) -> int:
        """Memory used."""
        return sum(part.nbytes for part in self._parts)

    def add(self, rows: pa.Table) -> bool:
        """Add rows. True: the partial results were just merged, so `table` costs nothing."""
        return self._keep(rows.group_by(self.keys).aggregate(self._results))

    def add_alike(self, row: pa.Table, count: int) -> bool:
        """Add `count` rows with the keys of this one, if only their number is needed."""
        assert self._results == [([], "count_all")]
        return self._keep(row.append_column(ROWS, pa.array([count], pa.int64())))

    def _keep(self, part: pa.Table) -> bool:
        self._parts.append(part)
        waiting = sum(part.num_rows for part in self._parts) - self._merged_rows
        if waiting <= max(MERGE_ROWS, self._merged_rows):
            return False
        self.table()
        return True

    def table(self) -> pa.Table | None:
        """The keys and results of each group, in any order; None if there are no rows."""
        if len(self._parts) > 1:
            joined = pa.concat_tables(self._parts).group_by(self.keys).aggregate(self._merges)
            self._parts = [joined.rename_columns([*self.keys, *self._names])]
        self._merged_rows = self._parts[0].num_rows if self._parts else 0
        return self._parts[0] if self._parts else None

    def replace(self, rows: pa.Table, counts: str) -> None:
        """Start again with rows that each count as often as the column `counts` says."""
        assert self._results == [([], "count_all")]
        merged = rows.group_by(self.keys).aggregate([(counts, "sum")])
        self._parts = [merged.rename_columns([*self.keys, ROWS])]
        self._merged_rows = merged.num_rows
