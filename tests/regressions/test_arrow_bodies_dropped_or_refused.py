"""For senders of Arrow, half of a body was dropped with status 200, and valid tables were refused."""

from __future__ import annotations

import io

import httpx
import polars as pl
import pyarrow as pa
import pytest
from served import served

import aggregator
from aggregator.client import Client

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
    """If bytes follow a stream, the whole body is refused, so that a sender of two does not believe both stored."""
    answer = send(client, "behind", arrow(TABLE) + behind)
    assert answer.status_code == 400
    assert "follow the end" in answer.json()["detail"]
    assert "one stream" in answer.json()["hint"]
    assert len(stored(client, "behind")) == 0


def test_a_stream_behind_one_without_an_end(client):
    """So is a body with a second stream after one without an end."""
    answer = send(client, "unended", arrow(TABLE).removesuffix(END) + arrow(TABLE))
    assert answer.status_code == 400
    assert "begins before the first one ends" in answer.json()["detail"]
    assert len(stored(client, "unended")) == 0


@pytest.mark.parametrize("end", [END, END[4:], b""])
def test_the_end_of_a_stream(client, end):
    """The end of a stream may be marked in the newer or older form, or not at all."""
    answer = send(client, f"ends{len(end)}", arrow(TABLE).removesuffix(END) + end)
    assert answer.status_code == 200, answer.text
    assert len(stored(client, f"ends{len(end)}")) == 2


FRAME = pl.DataFrame({"space": ["a", "b"], "timestamp": [1, 2], "data": [b"x", b"y"], "n": [[1], [2, 3]]})


def of_polars(frame: pl.DataFrame, **options) -> bytes:
    sink = io.BytesIO()
    frame.write_ipc(sink, **options)
    return sink.getvalue()


@pytest.mark.parametrize(("topic", "options"), [
    ("plain", {}), ("lz4", {"compression": "lz4"}), ("zstd", {"compression": "zstd"}),
    ("small", {"record_batch_size": 1}), ("old", {"compat_level": pl.CompatLevel.oldest()}),
])  # fmt: skip
def test_files_of_polars(client, topic, options):
    """A Polars file, whose first message has no length prefix, is read through its footer, with any compression."""
    answer = send(client, topic, of_polars(FRAME, **options), FILE)
    assert answer.status_code == 200, answer.text
    found = stored(client, topic).select(["space", "data", "n"])
    assert found.to_pydict() == FRAME.drop("timestamp").to_dict(as_series=False)


def test_a_file_of_polars_to_plateaus_routes(client):
    """Plateau's routes read it, too."""
    body = of_polars(pl.DataFrame({"time": [1, 2], "message": ["x", "y"]}), compat_level=pl.CompatLevel.oldest())
    answer = client.post("/topic/polars/partition/p", content=body, headers={"content-type": FILE})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("body", [
    arrow(TABLE, file=True) * 2, arrow(TABLE, file=True) + arrow(TABLE.slice(0, 0), file=True), of_polars(FRAME) * 2,
    arrow(TABLE, file=True) + b"garbage", arrow(TABLE, file=True)[:-1],
], ids=["file", "empty file", "of Polars", "garbage", "cut"])  # fmt: skip
def test_something_behind_a_file(client, body):
    """If bytes follow a file, the whole body is refused."""
    answer = send(client, "files", body, FILE)
    assert answer.status_code == 400, answer.text
    assert len(stored(client, "files")) == 0


ODD = pl.DataFrame({
    "space": ["a", "b", "c"], "timestamp": [1, 2, 3],
    "category": pl.Series(["x", None, "y"], dtype=pl.Categorical),
    "enum": pl.Series(["p", "q", "p"], dtype=pl.Enum(["p", "q"])),
    "texts": [["a", "a text of more than twelve"], [], None],
    "categories": pl.Series([["x"], ["y", "x"], []], dtype=pl.List(pl.Categorical)),
    "pairs": pl.Series([["x", "y"], ["z", None], ["", ""]], dtype=pl.Array(pl.String, 2)),
    "struct": [{"s": "x", "n": 1}, {"s": None, "n": 2}, {"s": "a text of more than twelve", "n": 3}],
    "binaries": [[b"x"], [b"\xff", None], []],
})  # fmt: skip


@pytest.mark.parametrize("way", ["client", "stream", "file", "compressed"])
def test_frames_of_polars(client, tmp_path, way):
    """Categories, enums and nested texts are stored as by an append in the same process."""
    client.put(f"/v1/topics/{way}", json={})
    if way == "client":
        with Client(str(client.base_url)) as ours:
            ours.topic(way).append(ODD)
    elif way == "stream":
        sink = io.BytesIO()
        ODD.write_ipc_stream(sink)
        assert send(client, way, sink.getvalue()).status_code == 200
    else:
        body = of_polars(ODD, compression="zstd" if way == "compressed" else "uncompressed")
        assert send(client, way, body, FILE).status_code == 200
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        topic.append(ODD)
        expected = topic.scan().to_table()
    found = stored(client, way).select(expected.column_names)
    assert found.schema.types == expected.schema.types
    assert found.to_pylist() == expected.to_pylist()
