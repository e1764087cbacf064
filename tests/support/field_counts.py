"""The fields of documents, from reading each one."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from esformat.format.json_fields import FieldCounts, PayloadFields


def count_fields(columns: Iterable[pa.Array]) -> PayloadFields:
    """The fields in all documents of some columns."""
    counts = FieldCounts()
    for column in columns:
        counts.add(column)
    return counts.found()
