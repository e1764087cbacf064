"""Lance through pylance.

The sorted table is one fragment of the current stable file version, with scalar indexes: BTREE on space, BITMAP on type
and country. Without them a question about one space scans the column (19 ms). They count as part of writing and of
size. zstd on the payload makes the dataset 49 bytes/event instead of 143, but scans 3 × slower, so `main` keeps Lance's
default. The latest events are first found by row id and then taken, which is faster than reading a large history.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa

from benchmarks.contenders.protocol import (
    MAIN,
    OBJECT_COLUMNS,
    PLAIN_TEXT,
    ROW_COLUMNS,
    SCHEMA,
    ArrowReader,
    Contender,
    in_order,
    newest_first,
)

DATASET = "events.lance"
SCALAR_INDEXES = {"space": "BTREE", "type": "BITMAP", "country": "BITMAP"}
BATCH_ROWS = 8_192
ONE_FILE_ROWS = 1 << 30


class LanceReader(ArrowReader):
    """One dataset."""

    def __init__(self, path: Path) -> None:
        self._dataset = lance.dataset(path)

    def close(self) -> None:
        del self._dataset

    def history(self, space: str) -> pa.Table:
        return self._dataset.to_table(columns=list(ROW_COLUMNS), filter=f"space = '{space}'")

    def latest(self, space: str, limit: int) -> pa.Table:
        ids = self._dataset.to_table(columns=[], filter=f"space = '{space}'", with_row_id=True)
        newest = ids["_rowid"].to_pylist()[-limit:]  # one unchanged fragment, so a row id is a position
        return self._dataset.take(newest[::-1], columns=list(ROW_COLUMNS))

    def indexed(self, space: str, index: str, value: str) -> pa.Table:
        found = f"space = '{space}' AND {index} = '{value}'"
        return newest_first(self._dataset.to_table(columns=list(ROW_COLUMNS), filter=found))

    def matching(self, index: str, value: str) -> pa.Table:
        return self._dataset.to_table(filter=f"{index} = '{value}'")

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._dataset.to_batches(batch_size=BATCH_ROWS)

    def object_batches(self) -> Iterator[pa.RecordBatch]:
        return self._dataset.to_batches(columns=list(OBJECT_COLUMNS), batch_size=BATCH_ROWS)


class Lance(Contender):
    """See the module."""

    def write(self, table: pa.Table, target: Path, layout: str) -> None:
        table = in_order(table)
        if layout == "smallest":
            table = table.cast(
                SCHEMA.set(2, SCHEMA.field("data").with_metadata({"lance-encoding:compression": "zstd"}))
            )
        dataset = lance.write_dataset(table, target / DATASET, max_rows_per_file=ONE_FILE_ROWS)
        for column, kind in SCALAR_INDEXES.items():
            dataset.create_scalar_index(column, kind)

    def open(self, target: Path, layout: str) -> LanceReader:
        return LanceReader(target / DATASET)


CONTENDER = Lance(
    name="lance",
    distribution="pylance",
    layouts={MAIN: "default encoding, scalar indexes", "smallest": "main, with zstd payloads"},
    lacks=PLAIN_TEXT,
)
