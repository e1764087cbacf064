"""Batches become messages of a schema: in the core if possible, otherwise in Arrow, with the same result."""

from __future__ import annotations

import pyarrow as pa
import pytest

from aggregator.engine.ingest.batch import MAX_KEY_BYTES, BatchAdapter
from esformat import InvalidEventError
from esformat.parts import default_schema, make_schema

FORMAT_KEY_BYTES = 1 << 16
SCHEMA = default_schema([], binary_keys=False)


def batch(spaces, data=None, grouping=None):
    columns = {"space": spaces, "timestamp": pa.array(range(5, 5 + len(spaces)), pa.int64())}
    columns |= {"data": data or [b"x"] * len(spaces)} | ({} if grouping is None else {"grouping": grouping})
    return pa.record_batch(columns)


def read(message, schema=SCHEMA):
    return pa.ipc.read_record_batch(message.stored, schema.arrow)


ROADS = {
    "one batch": lambda given: given,
    "a table": lambda given: pa.table(given),
    "chunks": lambda given: pa.Table.from_batches([given.slice(0, 1), given.slice(1)]),
    "wide offsets": lambda given: given.set_column(0, "space", given.column("space").cast(pa.large_string())),
    "a dictionary": lambda given: given.set_column(0, "space", given.column("space").dictionary_encode()),
}


@pytest.mark.parametrize("road", ROADS)
def test_every_road_gives_the_same(road):
    """However the columns are laid out, the message has the same bytes, rows and times."""
    plain = batch(["a", "bb", "", "a"])
    expected = BatchAdapter(plain.schema, SCHEMA).message(plain)
    given = ROADS[road](plain)
    found = BatchAdapter(given.schema, SCHEMA).message(given)
    assert found[:4] == expected[:4]
    assert found.fingerprint(SCHEMA) == expected.fingerprint(SCHEMA)
    assert expected[1:4] == (4, 5, 8)
    assert read(found).column("grouping").to_pylist() == [""] * 4


def test_a_copy():
    """Changing the caller's memory after the append does not change the message."""
    memory = bytearray(b"abc")
    offsets = pa.py_buffer(pa.array([0, 1, 2, 3], pa.int32()).buffers()[1])
    given = batch(["s"] * 3, pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(memory)]))
    message = BatchAdapter(given.schema, SCHEMA).message(given)
    memory[:] = b"xyz"
    assert read(message).column("data").to_pylist() == [b"a", b"b", b"c"]


def test_broken_batches():
    """Offsets outside their data and text that is not UTF-8 are refused without being read."""
    edges = pa.array([0, 1 << 30, 0, 1], pa.int32()).buffers()[1]
    short = pa.Array.from_buffers(pa.binary(), 3, [None, edges, pa.py_buffer(b"x")])
    text = pa.array([b"\xff"] * 3).view(pa.string())
    for given in (batch(["s"] * 3, short), batch(text)):
        with pytest.raises(InvalidEventError):
            BatchAdapter(given.schema, SCHEMA).message(given)


@pytest.mark.parametrize(("spaces", "said"), [(["a", "b" * (FORMAT_KEY_BYTES + 1)], "row 1"), (["a", None], "row 1")])
def test_what_is_refused_is_named(spaces, said):
    """A key that is too long or null is refused with its row number."""
    given = batch(spaces)
    with pytest.raises(InvalidEventError, match=said):
        BatchAdapter(given.schema, SCHEMA).message(given)


def test_longest_keys_and_empty_batches():
    """Keys of the maximum length and batches without rows are accepted."""
    for longest in (MAX_KEY_BYTES, FORMAT_KEY_BYTES):
        given = batch(["b" * longest, "a"])
        message = BatchAdapter(given.schema, SCHEMA).message(given)
        assert read(message).column("space").to_pylist() == ["b" * longest, "a"]
    assert BatchAdapter(given.schema, SCHEMA).message(given.slice(0, 0)).rows == 0


def test_columns_that_are_not_there():
    """A missing column is null if the schema allows nulls."""
    given = batch(["a"])
    schema = make_schema(
        pa.schema([*given.schema, ("n", pa.int64()), ("l", pa.list_(pa.string()))]), [], binary_keys=False
    )
    found = read(BatchAdapter(given.schema, schema).message(given), schema)
    assert found.select(["n", "l"]).to_pylist() == [{"n": None, "l": None}]
