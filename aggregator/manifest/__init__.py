"""The manifest: what exists, in SQLite."""

from aggregator.manifest.database import open_database
from aggregator.manifest.manifest import Contents, Edit, Manifest

__all__ = ["Contents", "Edit", "Manifest", "open_database"]
