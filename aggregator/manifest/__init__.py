"""The manifest: what exists, in SQLite."""

from aggregator.manifest.database import open_database
from aggregator.manifest.manifest import Contents, Edit, Manifest
from aggregator.manifest.pipe_rows import PipeRows

__all__ = ["Contents", "Edit", "Manifest", "PipeRows", "open_database"]
