"""`curl -d @file` removes line ends: a CSV file became only a header, and its rows were lost despite status 200."""

from __future__ import annotations

import json

import httpx
import pytest
from served import served

CSV = "space,timestamp,data,type\ncustomer-1,2026-03-01T08:00:00Z,hello,page\n"
EVENT = '{"space": "a", "timestamp": 1, "data": "x"}\n'
EVENTS, STREAMS = "/v1/topics/t/events", "/v1/streams?tags=app%3Dweb"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with served(tmp_path_factory.mktemp("catalog")) as server, httpx.Client(base_url=server.url) as client:
        client.put("/v1/topics/t", json={})
        yield client


def send(client, path: str, body: str, media: str) -> httpx.Response:
    return client.post(path, content=body, headers={"content-type": media})


@pytest.mark.parametrize("body", [CSV.replace("\n", ""), CSV.splitlines()[0]])
def test_csv_without_line_ends(client, body):
    """A CSV body without a line end is refused, and the hint says how to send it."""
    problem = send(client, EVENTS, body, "text/csv").json()
    assert (problem["status"], problem["detail"]) == (400, "the body has no line ends, so it has only a header")
    assert "--data-binary" in problem["hint"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_of_a_header(client, end):
    """A header with a line end is a table without events."""
    answer = send(client, EVENTS, CSV.splitlines()[0] + end, "text/csv")
    assert (answer.status_code, answer.json()["last"]) == (200, -1), answer.text


@pytest.mark.parametrize(("path", "line"), [
    (EVENTS, EVENT), (EVENTS, EVENT.replace('"x"', '{"base64": "eA=="}')), (STREAMS, '{"ts": 1, "msg": "x"}\n'),
])  # fmt: skip
def test_json_lines_without_line_ends(client, path, line):
    """For JSON lines without line ends the hint says how to send them; other broken lines have another reason."""
    for body in (line.strip() * 3, " ".join([line.strip()] * 2)):
        problem = send(client, path, body, "application/x-ndjson").json()
        assert problem["status"] == 400
        assert "--data-binary" in problem["hint"], problem
    for body in (line + line.strip() * 2, line.strip() + "]"):
        problem = send(client, path, body, "application/x-ndjson").json()
        assert problem["status"] == 400
        assert "--data-binary" not in json.dumps(problem)
