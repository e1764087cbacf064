"""`Backend`: what stands behind an open catalog, whether it may write or only reads."""

from __future__ import annotations

from aggregator.engine.follower import ReaderEngine
from aggregator.engine.writer import WriterEngine
from aggregator.errors import ReadOnlyError

Backend = WriterEngine | ReaderEngine
"""What stands behind an open catalog."""


def writer_of(backend: Backend) -> WriterEngine:
    """The backend where it may write. Raises ReadOnlyError."""
    backend.owner.check()
    if isinstance(backend, WriterEngine):
        return backend
    raise ReadOnlyError(
        "the catalog was opened for reading only", path=str(backend.layout.root), hint="open it for writing"
    )
