"""Whether matching the texts in messages is sufficient for a source to keep a record."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aggregator.lql import Columns, Filter, TagSet, parse_where
from aggregator.streams.reading.event_tags import EventTags, Streams
from aggregator.streams.reading.row_filter import Round, RowFilter

SCHEMA = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("data", pa.binary())])
ROUND = Round({0: 0}, {0: 9})


@pytest.mark.parametrize(
    ("changes", "inside", "enough"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"around": Round({0: 0}, {0: 9}, after=(1, 0, 0))}, True, False),
        ({"around": Round({0: 0}, {0: 9}, up_to=(1, 0, 0))}, True, False),
        ({"chosen": Streams(frozenset({"{a=b}"}))}, True, False),
        ({"others": EventTags("t", TagSet.of({"space": "s"}), ())}, True, False),
    ],
)
def test_texts_that_are_enough(changes, inside, enough):
    """The texts suffice unless indexes, times, streams or tags exclude records, too."""
    for where, told in (('msg CONTAINS "a"', enough), ('msg PREFIX "a"', False)):
        condition = Filter.compile(parse_where(where), Columns(SCHEMA), 0)
        given = {"partition": 0, "around": ROUND, "where": condition, "chosen": None, "first": 0, "end": 9} | changes
        keep = RowFilter(**given).keep(inside)
        assert keep is not None
        assert keep.required_texts_suffice == told
        assert keep.required_texts == {"data": ((b"a",),)}
