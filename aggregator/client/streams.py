"""Preparation of stream appends on the client: tags as text, records as tables."""

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
    """Return the canonical text of tags. Raises LqlError, which is an InvalidRequestError."""
    return str(TagSet.of(tags))


def records_table(records: Any) -> pa.Table:
    """Return records as a table of `ts`, `msg`, typed columns, and `fields` for other members of mappings.

    Records without a time get one here, because a retried batch must be identical. Raises InvalidRequestError,
    esformat.InvalidEventError.
    """
    events = events_of(_NO_TAGS, records, NO_COLUMNS, time.time_ns() // 1000)
    table = events.drop_columns(["space"])
    return table.rename_columns([_NAMES.get(name, name) for name in table.column_names])
