"""Refuse directories of other programs, such as plateau, whose SQLite file has the same name as the manifest.

They must be distinguished from a damaged catalog before anything in them is opened: SQLite creates files next to one
that it opens, and a rebuilt manifest would overwrite theirs.
"""

from __future__ import annotations

import struct

from aggregator.errors import CatalogNotFoundError
from aggregator.storage.files.layout import Layout
from aggregator.storage.manifest.database import APPLICATION_ID

_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID = struct.Struct(">68xI")  # in SQLite's header
_FIRST_PAGE = struct.Struct(">100xBxxH")  # after the header: its kind, and its number of schema entries
_LEAF = 13


def refuse_foreign_directory(layout: Layout) -> None:
    """Raises CatalogNotFoundError if another program stores its data in the directory."""
    if layout.log.is_dir() or layout.segments.is_dir() or not layout.manifest.is_file():
        return
    whose = ""
    if (layout.root / "topics").is_dir():
        whose = "plateau"
    elif _has_other_tables(layout):
        whose = "another program"
    if whose:
        raise CatalogNotFoundError(
            f"the directory contains the data of {whose}, not a catalog",
            path=str(layout.root),
            hint="use a separate directory for the catalog; nothing was changed",
        )


def _has_other_tables(layout: Layout) -> bool:
    with layout.manifest.open("rb") as file:
        head = file.read(_FIRST_PAGE.size)
    if len(head) < _FIRST_PAGE.size or not head.startswith(_MAGIC):
        return False
    (owner,) = _APPLICATION_ID.unpack_from(head)
    kind, entries = _FIRST_PAGE.unpack(head)
    return bool(owner != APPLICATION_ID and (kind != _LEAF or entries > 0))
