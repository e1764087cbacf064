"""Odd data sent over HTTP was changed or dropped with status 200, or failed with status 500."""

from __future__ import annotations

import json
from decimal import Decimal

import httpx
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from served import served

LINES, JSON, PARQUET = "application/x-ndjson", "application/json", "application/vnd.apache.parquet"
LONG = 123456789012345678901234567890


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with served(tmp_path_factory.mktemp("catalog")) as server, httpx.Client(base_url=server.url) as client:
        yield client


def send(client, topic: str, body: object, media: str = LINES) -> httpx.Response:
    client.put(f"/v1/topics/{topic}", json={})
    content = body if isinstance(body, bytes | str) else json.dumps(body)
    return client.post(f"/v1/topics/{topic}/events", content=content, headers={"content-type": media})


def rows(answer: httpx.Response) -> list[dict]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def asked(client, statement: str, route: str = "/v1/query") -> list[dict]:
    return rows(client.post(route, content=statement, headers={"content-type": "text/plain", "accept": LINES}))


def test_an_export_that_ends_early(client):
    """A truncated export is refused, and nothing of it is stored."""
    export = ExportLogsServiceRequest()
    record = export.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=10**18)
    record.body.string_value = "paid 1000000 EUR"
    body = export.SerializeToString()[:-11]
    answer = client.post("/v1/logs", content=body, headers={"content-type": "application/x-protobuf"})
    assert answer.status_code == 400
    assert asked(client, 'SELECT WHERE msg PREFIX "paid"') == []


@pytest.mark.parametrize("body", [
    '{"space": "x", "timestamp": 1, "a": 1, "a": 2}', '[{"space": "x", "timestamp": 1, "o": {"b": 1, "b": 2}}]',
])  # fmt: skip
def test_a_key_that_is_there_twice(client, body):
    answer = send(client, "twice", body, JSON)
    assert (answer.status_code, "duplicate key" in answer.text) == (400, True)


def test_long_whole_numbers(client):
    """Long integers keep every digit on every route."""
    assert send(client, "long", {"space": "x", "timestamp": 1, "n": LONG, "o": {"n": -LONG}}, JSON).status_code == 200
    (row,) = rows(client.get("/v1/topics/long/events", headers={"accept": LINES}))
    assert str(LONG) in str(row["n"])
    assert str(-LONG) in json.dumps(row["o"])
    body = f'{{"index": {{"_index": "long"}}}}\n{{"message": {LONG}, "e": {LONG}, "o": {{"n": {LONG}}}}}\n'
    answer = client.post("/_bulk", content=body, headers={"content-type": LINES})
    assert (answer.status_code, answer.json()["errors"]) == (200, False)
    assert json.dumps(asked(client, "SELECT FROM index=long")).count(str(LONG)) == 3
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "time": "2026-01-01T00:00:00Z"}
    event["data"] = {"n": LONG}
    answer = client.post("/v1/cloudevents", json=event, headers={"content-type": "application/cloudevents+json"})
    assert answer.status_code == 200, answer.text
    found = client.get("/v1/topics/cloudevents/events", headers={"accept": LINES}).text
    assert str(LONG) in found


def test_columns_of_one_name_in_an_answer(client):
    """Columns of a join with the same name each keep their values."""
    send(client, "left", {"space": "x", "timestamp": 1, "id": 1, "v": "left"})
    send(client, "right", {"space": "y", "timestamp": 2, "id": 1, "v": "right"})
    statement = 'SELECT l.v, r.v FROM "left" l JOIN "right" r ON l.id = r.id'
    assert asked(client, statement, "/v1/sql") == [{"v": "left", "v_1": "right"}]


@pytest.mark.parametrize("statement", [
    "SELECT INTERVAL 1 DAY AS d", "SELECT {'a': 1} AS s, INTERVAL 1 DAY AS d",
    "SELECT max(timestamp) - min(timestamp) AS d FROM empty",
])  # fmt: skip
def test_what_parquet_cannot_hold(client, statement):
    """Values that Parquet cannot store are refused with their column; other formats accept them."""
    send(client, "empty", {"space": "x", "timestamp": 1, "labels": {}})
    answer = client.post("/v1/sql", content=statement, headers={"content-type": "text/plain", "accept": PARQUET})
    assert (answer.status_code, "'d'" in answer.text) == (400, True)
    answer = client.get("/v1/topics/empty/events", headers={"accept": PARQUET})
    assert (answer.status_code, "'labels'" in answer.text) == (400, True)


@pytest.mark.parametrize("column", [
    pa.array([b""], pa.binary(0)), pa.array([Decimal(100)], pa.decimal128(10, -2)),
], ids=["bytes", "decimal"])  # fmt: skip
def test_types_that_parquet_refuses(client, column, request):
    """So are types that Arrow reports as disk errors."""
    topic = f"types-{request.node.callspec.id}"
    sink = pa.BufferOutputStream()
    table = pa.table({"space": ["x"], "timestamp": [1], "odd": column})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert send(client, topic, sink.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream").status_code == 200
    answer = client.get(f"/v1/topics/{topic}/events", headers={"accept": PARQUET})
    assert (answer.status_code, "'odd'" in answer.text) == (400, True)


def test_bounds_between_two_microseconds(client):
    """Bounds between two microseconds exclude exactly the records before or after them."""
    times = [f"2026-03-01T08:00:00.00000{n}Z" for n in range(2)]
    send(client, "bounds", "\n".join(json.dumps({"space": "x", "timestamp": t, "n": n}) for n, t in enumerate(times)))
    for given in ({"end": "2026-03-01T08:00:00.0000005Z"}, {"end": 1772352000000000500, "time_unit": "ns"}):
        assert [row["n"] for row in rows(client.get("/v1/topics/bounds/events", params=given))] == [0]
        start = {("start" if name == "end" else name): value for name, value in given.items()}
        assert [row["n"] for row in rows(client.get("/v1/topics/bounds/events", params=start))] == [1]


def test_names_with_nul(client):
    """Names with NUL, which other programs would cut, are refused everywhere."""
    for body in (
        '{"space": "x", "timestamp": 1, "a\\u0000b": 1}',
        '{"space": "x", "timestamp": 1, "o": {"a\\u0000": 1}}',
    ):
        answer = send(client, "nul", body)
        assert (answer.status_code, "NUL" in answer.text) == (400, True)
    assert rows(client.get("/v1/topics/nul/events", headers={"accept": LINES})) == []
    table = pa.table({"space": ["x"], "timestamp": pa.array([1], pa.timestamp("us", "UTC")), "a\0b": [1]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answer = send(client, "nul", sink.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream")
    assert answer.status_code == 400
