"""Columns of plateau's clients that other routes filled with values of other types.

Members of objects were swapped, and pages with lists, objects and times of day failed with status 500.
"""

from __future__ import annotations

import json
from itertools import count

import httpx
import pyarrow as pa
import pytest
from served import served

FILE = "application/vnd.apache.arrow.file"
TOPICS = count()
OBJECTS = [{"a": 1, "b": 2}, None, {"a": None, "b": 3}]
PAIRS = pa.struct({"b": pa.int64(), "a": pa.int64()})


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with served(tmp_path_factory.mktemp("catalog")) as server, httpx.Client(base_url=server.url) as client:
        yield client


def append(client, topic: str, column: pa.Array | None = None) -> None:
    columns = {"time": pa.array(range(3), pa.int64())} | ({} if column is None else {"x": column})
    sink = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    where, head = f"/topic/{topic}/partition/0", {"content-type": FILE}
    client.post(where, content=sink.getvalue().to_pybytes(), headers=head).raise_for_status()


def append_otherwise(client, topic: str, value: object) -> None:
    event = json.dumps({"space": "s", "timestamp": 1, "x": value})
    where, head = f"/v1/topics/{topic}/events", {"content-type": "application/x-ndjson"}
    client.post(where, content=event, headers=head).raise_for_status()


def column_from(client, topic: str, start: int) -> pa.ChunkedArray:
    where = f"/topic/{topic}/partition/0/records"
    answer = client.get(where, params={"start": start}, headers={"accept": FILE})
    assert answer.status_code == 200, answer.text
    assert client.get(where, params={"start": start}).status_code == 200
    found = pa.ipc.open_file(answer.content).read_all()
    found.validate(full=True)
    return found["x"]


@pytest.mark.parametrize(("sent", "other"), [
    (pa.array(OBJECTS), {"c": 7, "b": 8, "a": 9}),
    (pa.array(OBJECTS), {"c": 7}),
    (pa.array(OBJECTS, PAIRS), {"a": 7.5, "b": 8.5}),
    (pa.array([OBJECTS, None, []]), [{"b": 7, "A": 8}]),
    (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)).take([0, 1, 0]), [1.5]),
    (pa.array([1, None, 2**40]), "n/a"),
])  # fmt: skip
def test_what_was_sent_comes_back(client, sent, other):
    """Members of objects keep their names, whatever others sent to the column."""
    topic = f"t{next(TOPICS)}"
    append(client, topic, sent)
    append_otherwise(client, topic, other)
    found = column_from(client, topic, 0)
    assert found.to_pylist() == sent.to_pylist()


@pytest.mark.parametrize(("sent", "texts"), [
    (pa.array([[1], None, []], pa.list_(pa.int64())), ["[1]", None, "[]"]),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), ["[1,2]", None, "[3,4]"]),
    (pa.array(OBJECTS), ['{"a":1,"b":2}', None, '{"a":null,"b":3}']),
    (pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())), ['{"a":1}', None, "{}"]),
    (pa.array([1, None, 2], pa.time64("us")), ["00:00:00.000001", None, "00:00:00.000002"]),
])  # fmt: skip
def test_a_column_that_became_text(client, sent, texts):
    """Values that cannot be read back from text stay text, as on every other route."""
    topic = f"t{next(TOPICS)}"
    append(client, topic, sent)
    append_otherwise(client, topic, "n/a")
    assert column_from(client, topic, 0).to_pylist() == texts


def test_a_column_that_others_gave_after_the_first_append(client):
    """A column of another type is kept beside the existing one, so that every value stays as sent."""
    topic = f"t{next(TOPICS)}"
    append(client, topic)
    append_otherwise(client, topic, "n/a")
    sent = pa.array([[float("inf")], None, []], pa.list_(pa.float64()))
    append(client, topic, sent)
    assert column_from(client, topic, 4).to_pylist() == sent.to_pylist()
