"""Vortex through vortex-data.

The sorted table is written with the default options, which balance size and speed; `compact` is as small as Parquet but
2-6 × slower to read (its size is reported, too). It is read memory-mapped, which the library supports for local files
and which is a quarter faster for single answers. Scans return text and payload columns as Arrow views, Vortex's native
form; requesting plain columns instead costs a third of the rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import vortex
import vortex.expr as ve
from vortex.io import VortexWriteOptions

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

FILE = "events.vortex"
ROW_SCHEMA = pa.schema([field for field in SCHEMA if field.name in ROW_COLUMNS])
OPTIONS = {MAIN: VortexWriteOptions.default, "smallest": VortexWriteOptions.compact}


class VortexReader(ArrowReader):
    """One file."""

    def __init__(self, path: Path) -> None:
        self._file = vortex.open(str(path), memory_map=True)

    def close(self) -> None:
        del self._file

    def _rows(self, condition: ve.Expr) -> pa.Table:
        """Rows in plain columns, because Arrow cannot reverse views."""
        return self._file.to_arrow(list(ROW_COLUMNS), expr=condition, schema=ROW_SCHEMA).read_all()

    def history(self, space: str) -> pa.Table:
        return self._rows(ve.column("space") == space)

    def latest(self, space: str, limit: int) -> pa.Table:
        table = self.history(space)
        return newest_first(table.slice(max(0, len(table) - limit)))

    def indexed(self, space: str, index: str, value: str) -> pa.Table:
        return newest_first(self._rows(ve.and_(ve.column("space") == space, ve.column(index) == value)))

    def matching(self, index: str, value: str) -> pa.Table:
        return self._file.to_arrow(expr=ve.column(index) == value).read_all()

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._file.to_arrow())

    def object_batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._file.to_arrow(list(OBJECT_COLUMNS)))


class Vortex(Contender):
    """See the module."""

    def write(self, table: pa.Table, target: Path, layout: str) -> None:
        OPTIONS[layout]().write(in_order(table), str(target / FILE))

    def open(self, target: Path, layout: str) -> VortexReader:
        return VortexReader(target / FILE)


CONTENDER = Vortex(
    name="vortex",
    distribution="vortex-data",
    layouts={MAIN: "default options", "smallest": "compact options"},
    lacks=PLAIN_TEXT,
)
