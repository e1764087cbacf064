"""Unusual numbers over HTTP: NaN and infinities are stored, null in JSON lines, unchanged in CSV and Arrow; integers
out of range get a clear answer.
"""

from __future__ import annotations

import math

import pyarrow as pa

LINES = (
    '{"space": "a", "timestamp": 1, "v": 1.5}\n'
    '{"space": "a", "timestamp": 2, "v": NaN}\n'
    '{"space": "a", "timestamp": 3, "v": -Infinity}\n'
    '{"space": "a", "timestamp": 4, "v": null}\n'
)


def test_numbers_that_json_does_not_have(web):
    """Each format returns what it can represent; the stored values are unaffected."""
    assert web.put("/v1/topics/odd", json={}).status_code == 201
    sent = web.post("/v1/topics/odd/events", content=LINES, headers={"Content-Type": "application/x-ndjson"})
    assert sent.status_code == 200
    events = "/v1/topics/odd/events?columns=v"
    assert web.get(events).text.split() == ['{"v":1.5}', '{"v":null}', '{"v":null}', '{"v":null}']
    assert web.get(events, headers={"Accept": "text/csv"}).text.splitlines() == ['"v"', "1.5", "nan", "-inf", ""]
    arrow = web.get(events, headers={"Accept": "application/vnd.apache.arrow.stream"})
    values = pa.ipc.open_stream(arrow.content).read_all()["v"].to_pylist()
    assert values[0] == 1.5
    assert math.isnan(values[1])
    assert values[2:] == [-math.inf, None]


HUGE = (2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400)
PATHS = {
    "/topic/{topic}/partition/{partition}/records": "/topic/odd/partition/0/records",
    "/v1/topics/{topic}/partitions/{partition}/records": "/v1/topics/odd/partitions/0/records",
    "/v1/topics/{topic}/index/{column}": "/v1/topics/odd/index/n",
    "/v1/topics/{topic}/values/{column}": "/v1/topics/odd/values/n",
    "/v1/topics/{topic}/histogram": "/v1/topics/odd/histogram",
    "/v1/topics/{topic}/events": "/v1/topics/odd/events",
    "/v1/copy/log": "/v1/copy/log",
}
NEEDED = {
    "/topic/odd/partition/0/records": {"start": "0"},
    "/v1/topics/odd/index/n": {"value": "1"},
    "/v1/copy/log": {"check": "0" * 16},
}
"""Other parameters that some requests need."""


def whole_numbers(web):
    """Path and name of each integer query parameter."""
    for path, verbs in web.get("/openapi.json").json()["paths"].items():
        for parameter in verbs.get("get", {}).get("parameters", ()):
            if parameter["in"] == "query" and parameter["schema"].get("type") == "integer":
                yield PATHS[path], parameter["name"]


def test_whole_numbers_out_of_range(web):
    """An integer out of range is accepted where it makes sense, otherwise 400 names it; never a server error."""
    assert web.put("/v1/topics/odd", json={"schema": {"n": "int64"}, "indexes": ["n"]}).status_code == 201
    assert web.post("/v1/topics/odd/events", json=[{"space": "a", "timestamp": 1, "n": 1}]).status_code == 200
    asked = list(whole_numbers(web))
    assert {path for path, _ in asked} == set(PATHS.values())
    for path, name in asked:
        for number in (*HUGE, "٣", "1" * 5_000, "1_0", "0x1", ""):
            answer = web.get(path, params={**NEEDED.get(path, {}), name: number})
            allowed = (200, 400) if number == HUGE[0] else (400,)
            assert answer.status_code in allowed, (path, name, number)
            assert answer.status_code == 200 or name in answer.text
