"""Streams as a client names and fills them: tags as text, records as tables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from aggregator.lql import TagSet
from aggregator.storage.segments.records import NO_COLUMNS, events_of

_NAMES = {"timestamp": "ts", "data": "msg"}
_NO_TAGS = TagSet(())


def tags_text(tags: Mapping[str, str]) -> str:
    """The canonical text of tags. Raises LqlError, which is an InvalidRequestError."""
    return str(TagSet.of(tags))


def records_table(records: Any) -> pa.Table:
    """Records as a table of `ts`, `msg`, typed columns, and `fields` for what mappings have besides.

    Each gets its time here, where it has none: a batch that is sent again must be the same. Raises InvalidRequestError,
    esformat.InvalidEventError.
    """
    events = events_of(_NO_TAGS, records, NO_COLUMNS, time.time_ns() // 1000)
    table = events.drop_columns(["space"])
    return table.rename_columns([_NAMES.get(name, name) for name in table.column_names])
