"""A retried batch was refused as a different one if its memory layout or Arrow types differed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import aggregator
from esformat import InvalidEventError

BATCH = pa.table(
    {
        "space": ["a", "b", "a"], "timestamp": [1, 2, 3], "type": ["x", None, "z"], "n": [1, None, 3],
        "ok": [True, None, False], "tags": [["p"], None, ["q", "r"]], "at": [{"x": 1}, None, {"x": None}],
        "near": pa.array([[1, 2], None, [None, 3]], pa.list_(pa.int8(), 2)),
        "by": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
)  # fmt: skip
VALID = pa.py_buffer(b"\xfd")  # rows 0 and 2, and bits after the last row


def i32(*numbers):
    return pa.py_buffer(np.array(numbers, np.int32))


def hidden(kind, *buffers, children=None):
    """A column of three rows, the second null, with these buffer contents beneath the null and around the values."""
    return pa.Array.from_buffers(kind, 3, [VALID, *buffers], children=children)


FORMS = {
    "cut out of a longer one": pa.concat_tables([BATCH.slice(1), BATCH, BATCH]).combine_chunks().slice(2, 3),
    "in pieces": pa.concat_tables([BATCH.slice(0, 1), BATCH.slice(1)]),
    "a number under a null": BATCH.set_column(3, "n", hidden(pa.int64(), pa.py_buffer(np.array([1, 777, 3])))),
    "a text under a null": BATCH.set_column(2, "type", hidden(pa.string(), i32(0, 1, 4, 5), pa.py_buffer(b"xQQQz"))),
    "texts amid others": BATCH.set_column(2, "type", hidden(pa.string(), i32(2, 3, 3, 4), pa.py_buffer(b"JJxzKK"))),
    "unused bits": BATCH.set_column(4, "ok", hidden(pa.bool_(), pa.py_buffer(b"\xf9"))),
    "a list under a null": BATCH.set_column(
        5, "tags", hidden(pa.list_(pa.string()), i32(0, 1, 3, 5), children=[pa.array(["p", "?", "?", "q", "r"])])
    ),
    "a struct under a null": BATCH.set_column(
        6, "at", hidden(pa.struct([("x", pa.int64())]), children=[pa.array([1, 9, None])])
    ),
    "large types": BATCH.set_column(5, "tags", BATCH["tags"].cast(pa.large_list(pa.large_string()))),
    "a dictionary": BATCH.set_column(0, "space", BATCH["space"].dictionary_encode()),
    "smaller numbers": BATCH.set_column(3, "n", BATCH["n"].cast(pa.int8())),
    "columns in another order": BATCH.select(BATCH.column_names[::-1]),
    "a column without values": BATCH.append_column("none", pa.nulls(3)),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_events_in_another_form(tmp_path, form):
    """The same events are the same batch in every layout, whichever came first."""
    again = FORMS[form]
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        topic.append(BATCH, producer="p", sequence=1)
        assert topic.append(again, producer="p", sequence=1).duplicate
        topic.append(again, producer="p", sequence=2)
        assert topic.append(BATCH, producer="p", sequence=2).duplicate
        assert topic.scan().count() == 6


def test_a_family_of_schemas_came_between(tmp_path):
    """A retry is recognised although similar batches now go to wider columns in another order."""
    first = pa.table({"space": ["a"], "timestamp": [1], "x": pa.array([1], pa.int8()), "y": ["t"]})
    wider = pa.table({"y": ["t"], "x": [2**40], "space": ["a"], "timestamp": [2]})
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        topic.append(first, producer="p", sequence=1)
        topic.append(wider, producer="p", sequence=2)
        assert topic.append(first, producer="p", sequence=1).duplicate
        for other in (first.set_column(2, "x", pa.array([2], pa.int8())), wider, first.drop_columns(["y"])):
            with pytest.raises(aggregator.SequenceConflictError):
                topic.append(other, producer="p", sequence=1)
        assert topic.scan().count() == 2


def test_floats_came_between(tmp_path):
    """After floats were refused, integers beyond float precision are still recognised and appended."""
    whole = pa.table({"space": ["a"], "timestamp": [1], "n": [2**60 + 1]})
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        topic.append(whole, producer="p", sequence=1)
        with pytest.raises(InvalidEventError, match="column 'n' of type double does not fit its type int64"):
            topic.append(whole.set_column(2, "n", pa.array([1.5])), producer="p", sequence=2)
        assert topic.append(whole, producer="p", sequence=1).duplicate
        assert not topic.append(whole, producer="p", sequence=3).duplicate


@pytest.mark.parametrize("column", BATCH.column_names[2:])
def test_another_value_is_another_batch(tmp_path, column):
    """A single different value, of any type, makes another batch."""
    place = BATCH.column_names.index(column)
    other = BATCH.set_column(place, column, BATCH[column].combine_chunks().take(pa.array([0, 0, 2])))
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        topic.append(BATCH, producer="p", sequence=1)
        with pytest.raises(aggregator.SequenceConflictError):
            topic.append(other, producer="p", sequence=1)
