"""NaN and infinities over HTTP: kept as they are, null in JSON lines, themselves in CSV and Arrow."""

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
    """Each format gives what it can; what is stored does not change for it."""
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
