"""The manifest: an SQLite database that lists what exists in a catalog."""

from aggregator.storage.manifest.database import REBUILD, RECOVER, open_database
from aggregator.storage.manifest.fact_rows import FactRows, Lines
from aggregator.storage.manifest.foreign_directory import refuse_foreign_directory
from aggregator.storage.manifest.incarnation_rows import IncarnationRows
from aggregator.storage.manifest.manifest import (
    CLOCK,
    IDENTITY,
    LOST,
    STORE,
    UNSYNCED,
    WRITTEN,
    Contents,
    Copy,
    Edit,
    Manifest,
)
from aggregator.storage.manifest.pipe_rows import PipeRows
from aggregator.storage.manifest.stored_rows import StoredRows

__all__ = [
    "CLOCK",
    "IDENTITY",
    "LOST",
    "REBUILD",
    "RECOVER",
    "STORE",
    "UNSYNCED",
    "WRITTEN",
    "Contents",
    "Copy",
    "Edit",
    "FactRows",
    "IncarnationRows",
    "Lines",
    "Manifest",
    "PipeRows",
    "StoredRows",
    "open_database",
    "refuse_foreign_directory",
]
