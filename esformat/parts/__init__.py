"""Pieces for programs that are built on segments, as the aggregator is: schemas, checked intake, events of batches."""

from esformat.event import to_microseconds
from esformat.event_rows import rows_of_batch
from esformat.intake import EventRows, check_table, to_arrow
from esformat.schema import KEY_COLUMNS, TIMESTAMP_TYPE, EventSchema, Field, default_schema, make_schema

__all__ = [
    "KEY_COLUMNS",
    "TIMESTAMP_TYPE",
    "EventRows",
    "EventSchema",
    "Field",
    "check_table",
    "default_schema",
    "make_schema",
    "rows_of_batch",
    "to_arrow",
    "to_microseconds",
]
