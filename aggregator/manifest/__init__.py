"""The manifest: what exists, in SQLite."""

from aggregator.manifest.database import REBUILD, RECOVER, open_database
from aggregator.manifest.fact_rows import FactRows
from aggregator.manifest.incarnation_rows import IncarnationRows
from aggregator.manifest.manifest import CLOCK, IDENTITY, UNSYNCED, WRITTEN, Contents, Edit, Manifest
from aggregator.manifest.pipe_rows import PipeRows
from aggregator.manifest.strangers import refuse_strangers

__all__ = [
    "CLOCK",
    "IDENTITY",
    "REBUILD",
    "RECOVER",
    "UNSYNCED",
    "WRITTEN",
    "Contents",
    "Edit",
    "FactRows",
    "IncarnationRows",
    "Manifest",
    "PipeRows",
    "open_database",
    "refuse_strangers",
]
