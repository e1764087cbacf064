"""`Groups`: partial results per group, added up batch by batch, in memory bounded by the number of groups."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

MERGE_ROWS = 200_000
"""So many rows of partial results, or as many as there are groups, are added up before more come."""
_MERGED_BY = {"count_all": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max"}
ROWS = "count_all"
"""The result that every group has: how many rows there are of it."""


class Groups:
    """Rows by keys: how many, and sums, counts of values, least and greatest values of other columns."""

    def __init__(self, keys: Sequence[str], results: Sequence[tuple[str, str]] = ()) -> None:
        """keys: columns. results: columns, and which of sum, count, min and max is wanted of each."""
        self.keys = list(keys)
        self._results = [([], "count_all"), *results]
        self._names = [ROWS, *(f"{column}_{how}" for column, how in results)]
        self._merges = [(name, _MERGED_BY[how]) for name, (_, how) in zip(self._names, self._results, strict=True)]
        self._parts: list[pa.Table] = []
        self._merged_rows = 0

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return sum(part.nbytes for part in self._parts)

    def add(self, rows: pa.Table) -> bool:
        """Take rows in. True: the partial results were added up just now, and `table` costs nothing."""
        return self._keep(rows.group_by(self.keys).aggregate(self._results))

    def add_alike(self, row: pa.Table, count: int) -> bool:
        """The same of so many rows with the keys of this one, where nothing but their number is wanted."""
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
        """The keys and results of each group, in any order; None where there are no rows."""
        if len(self._parts) > 1:
            joined = pa.concat_tables(self._parts).group_by(self.keys).aggregate(self._merges)
            self._parts = [joined.rename_columns([*self.keys, *self._names])]
        self._merged_rows = self._parts[0].num_rows if self._parts else 0
        return self._parts[0] if self._parts else None

    def replace(self, rows: pa.Table, counts: str) -> None:
        """Begin again with rows of which each stands for `counts` many."""
        assert self._results == [([], "count_all")]
        merged = rows.group_by(self.keys).aggregate([(counts, "sum")])
        self._parts = [merged.rename_columns([*self.keys, ROWS])]
        self._merged_rows = merged.num_rows
