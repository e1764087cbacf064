"""Build indexes from columns, whose values are collected in row order while a new segment is written.

Memory is bounded: data that does not fit goes to temporary files, as in a writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from esformat.format.order import rank
from esformat.write.index_builder import IndexRows
from esformat.write.index_sorter import IndexSorter

INDEX_BYTES = 32 << 20
"""Maximum bytes of row numbers and values that all indexes together keep in memory."""
STEP_ROWS = 32 << 10
STEP_BYTES = 8 << 20
"""Values are ranked when this many rows, or this many bytes, wait."""


class ColumnIndexes:
    """Collects the values of the columns at `places`."""

    def __init__(self, places: Sequence[int], directory: Path) -> None:
        """directory: for temporary files."""
        share = INDEX_BYTES // max(1, len(places))
        self.places = tuple(places)
        self._sorters = {place: IndexSorter(directory, share) for place in places}
        self._waiting: dict[int, list[pa.Array]] = {place: [] for place in places}
        self._waiting_rows = self._waiting_bytes = 0
        self._rows = 0  # passed to the runs so far

    def add(self, columns: Mapping[int, pa.Array]) -> None:
        """Take the next rows' values, one array for each of the places. Raises OSError."""
        if not self.places:
            return
        for place, waiting in self._waiting.items():
            waiting.append(columns[place])
            self._waiting_bytes += columns[place].nbytes
        self._waiting_rows += len(columns[self.places[0]])
        if self._waiting_rows >= STEP_ROWS or self._waiting_bytes >= STEP_BYTES:
            self._rank()

    def _rank(self) -> None:
        for place, waiting in self._waiting.items():
            if waiting:
                self._sorters[place].add(rank(pa.chunked_array(waiting)), self._rows)
                waiting.clear()
        self._rows += self._waiting_rows
        self._waiting_rows = self._waiting_bytes = 0

    def chunks(self, place: int) -> Iterator[IndexRows]:
        """All rows of a column by value, for `SegmentBuilder.add_index_stream`. Raises OSError."""
        self._rank()
        return self._sorters[place].chunks()

    def close(self) -> None:
        """Free temporary disk space."""
        for runs in self._sorters.values():
            runs.close()
