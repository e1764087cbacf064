"""What senders of Arrow met: half of a body dropped with an answer of 200, and sound tables refused."""

from __future__ import annotations

import httpx
import pyarrow as pa
import pytest
from served import served

STREAM, FILE = "application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file"
TABLE = pa.table({"space": ["a", "b"], "timestamp": pa.array([1, 2], pa.int64()), "data": [b"x", b"y"]})
END = b"\xff\xff\xff\xff\0\0\0\0"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with served(tmp_path_factory.mktemp("catalog")) as server, httpx.Client(base_url=server.url) as client:
        yield client


def arrow(table: pa.Table, *, file: bool = False, rows: int | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(sink, table.schema) as writer:
        writer.write_table(table, rows)
    return sink.getvalue().to_pybytes()


def send(client, topic: str, body: bytes, media: str = STREAM) -> httpx.Response:
    client.put(f"/v1/topics/{topic}", json={})
    return client.post(f"/v1/topics/{topic}/events", content=body, headers={"content-type": media})


def stored(client, topic: str) -> pa.Table:
    answer = client.get(f"/v1/topics/{topic}/events", headers={"accept": STREAM})
    assert answer.status_code == 200, answer.text
    return pa.ipc.open_stream(answer.content).read_all()


@pytest.mark.parametrize("behind", [
    arrow(TABLE), arrow(TABLE, file=True), b"garbage", b"\n", b"\0", END,
], ids=["stream", "file", "garbage", "line end", "zero", "end"])  # fmt: skip
def test_something_behind_a_stream(client, behind):
    """It is refused, and so is what stands before it: a sender of two streams must not believe both to be stored."""
    answer = send(client, "behind", arrow(TABLE) + behind)
    assert answer.status_code == 400
    assert "follow the end" in answer.json()["detail"]
    assert "one stream" in answer.json()["hint"]
    assert len(stored(client, "behind")) == 0


def test_a_stream_behind_one_without_an_end(client):
    """It is refused as well."""
    answer = send(client, "unended", arrow(TABLE).removesuffix(END) + arrow(TABLE))
    assert answer.status_code == 400
    assert "begins before the first one has ended" in answer.json()["detail"]
    assert len(stored(client, "unended")) == 0


@pytest.mark.parametrize("end", [END, END[4:], b""])
def test_the_end_of_a_stream(client, end):
    """It may be marked in the newer and the older form, or not at all."""
    answer = send(client, f"ends{len(end)}", arrow(TABLE).removesuffix(END) + end)
    assert answer.status_code == 200, answer.text
    assert len(stored(client, f"ends{len(end)}")) == 2
