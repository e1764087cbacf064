"""Parquet through pyarrow, with the file layout that suits each work best.

Every layout is sorted by space and time, with zstd at pyarrow's default level 1 (level 3 is slower *and* larger on
these events), timestamps delta-packed, key columns dictionary-coded. `main` has 128 k rows per row group: the fastest
scan, and the smallest of the plain layouts. Questions about one space prune row groups by their statistics, which are
read once and bisected. They use a file with 1,024 rows per row group (1.1 × the bytes): with 4,096 rows they take twice
as long. Opening has to read all that metadata, so it is measured on a file with 4,096 rows per group, where it is
fastest. Memory mapping without pre-buffering is the fastest way to read single row groups, the dataset scanner the
fastest way to read whole files. pyarrow writes page indexes but does not use them for reading.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.contenders.protocol import (
    MAIN,
    OBJECT_COLUMNS,
    ROW_COLUMNS,
    ArrowReader,
    Contender,
    in_order,
    newest_first,
)

FILE = "events.parquet"
KEYS = ["space", "type", "country"]
ROW_GROUP_ROWS = {MAIN: 131_072, "points": 1_024, "open": 4_096, "smallest": 131_072}


class ParquetReader(ArrowReader):
    """One file. Its metadata and the bounds of its row groups are read when first needed, and cached."""

    def __init__(self, path: Path, stored: pa.NativeFile | None = None) -> None:
        """stored: the file if it is in an object store; its columns are then fetched together, not one by one."""
        if stored is None:
            self._file = pq.ParquetFile(path, memory_map=True, pre_buffer=False)
        else:
            self._file = pq.ParquetFile(stored, pre_buffer=True)
        self._path = path
        self._bounds: tuple[list[str], list[str]] | None = None

    def close(self) -> None:
        self._file.close()

    def groups_of(self, space: str) -> range:
        """The row groups that may contain the space, according to their statistics."""
        if self._bounds is None:
            metadata = self._file.metadata
            stats = [metadata.row_group(group).column(0).statistics for group in range(metadata.num_row_groups)]
            self._bounds = [stat.min for stat in stats], [stat.max for stat in stats]
        lows, highs = self._bounds
        return range(bisect_left(highs, space), bisect_right(lows, space))

    def _read(self, groups: Sequence[int], space: str) -> pa.Table:
        table = self._file.read_row_groups(list(groups), use_threads=False)
        return table.filter(pc.equal(table["space"], space)).select(ROW_COLUMNS)

    def history(self, space: str) -> pa.Table:
        return self._read(self.groups_of(space), space)

    def latest(self, space: str, limit: int) -> pa.Table:
        """Read row groups backwards from the last one until `limit` events are found."""
        found: list[pa.Table] = []
        for group in reversed(self.groups_of(space)):
            found.insert(0, self._read([group], space))
            if sum(table.num_rows for table in found) >= limit:
                break
        table = pa.concat_tables(found)
        return newest_first(table.slice(max(0, len(table) - limit)))

    def indexed(self, space: str, index: str, value: str) -> pa.Table:
        table = self.history(space)
        return newest_first(table.filter(pc.equal(table[index], value)))

    def _dataset(self, dictionary_columns: Sequence[str] = ()) -> ds.Dataset:
        return ds.dataset(self._path, format=ds.ParquetFileFormat(dictionary_columns=dictionary_columns))

    def matching(self, index: str, value: str) -> pa.Table:
        return self._dataset(KEYS).to_table(filter=ds.field(index) == value)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._dataset().to_batches()

    def coded_batches(self) -> Iterator[pa.RecordBatch]:
        return self._dataset(KEYS).to_batches()

    def object_batches(self) -> Iterator[pa.RecordBatch]:
        return self._dataset().to_batches(columns=list(OBJECT_COLUMNS), batch_size=65_536)


class Parquet(Contender):
    """See the module."""

    def write(self, table: pa.Table, target: Path, layout: str) -> None:
        encodings = {"timestamp": "DELTA_BINARY_PACKED"}
        if layout == "smallest":
            encodings["data"] = "DELTA_LENGTH_BYTE_ARRAY"
        pq.write_table(
            in_order(table),
            target / FILE,
            row_group_size=ROW_GROUP_ROWS[layout],
            compression="zstd",
            use_dictionary=KEYS,
            column_encoding=encodings,
        )

    def open(self, target: Path, layout: str) -> ParquetReader:
        return ParquetReader(target / FILE)

    def open_stored(self, filesystem: Any, path: str) -> ParquetReader:
        """Open a file in an object store, and read the bounds of its row groups, which costs no request."""
        reader = ParquetReader(Path(path), filesystem.open_input_file(path))
        reader.groups_of("")
        return reader


CONTENDER = Parquet(
    name="parquet",
    distribution="pyarrow",
    layouts={
        MAIN: "128 k rows a row group",
        "points": "1,024 rows a row group",
        "open": "4,096 rows a row group",
        "smallest": "main, with payloads DELTA_LENGTH_BYTE_ARRAY",
    },
    best={
        "R2": "points",
        "R3": "points",
        "R3w": "points",
        "R4": "points",
        "open": "open",
        "S2": "points",
        "S2-near": "points",
        "S2-cold": "open",
    },
)
