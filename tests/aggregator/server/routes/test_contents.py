"""The contents of a topic over HTTP: as the catalog reports them, with readable refusals."""

from __future__ import annotations

import pytest


@pytest.fixture
def clicks(server):
    """A topic with a segment, unsealed events, an index of texts and one of numbers."""
    topic = server.catalog.create_topic("a/b", indexes=["type", "n"])
    events = [
        {"space": f"s{n % 3}", "timestamp": n * 1_000_000, "type": "buy" if n % 5 else "page", "n": n % 2 == 0}
        for n in range(100)
    ]
    topic.append(events[:60])
    server.catalog.seal("a/b")
    topic.append(events[60:])
    return topic


PATH = "/v1/topics/a%2Fb"


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", {}), ("space=s1", {"space": "s1"}), ("start=1970-01-01T00:00:50Z", {"start": 50_000_000}),
        ("start=10000000&end=20000000&time_unit=us", {"start": 10_000_000, "end": 20_000_000}),
        ("partition=0&buckets=5", {"partition": "0"}), ("space=nobody", {"space": "nobody"}),
    ],
)  # fmt: skip
def test_histogram(web, clicks, query, options):
    """Histogram counts equal the catalog's, for all events and for those with a value."""
    buckets = 5 if "buckets" in query else 60
    for more, answer in (
        ("", clicks.scan(**options)),
        ("&index=type&value=buy", clicks.scan_index("type", "buy", **options)),
        ("&index=n&value=true&type=boolean", clicks.scan_index("n", True, **options)),
    ):
        found = web.get(f"{PATH}/histogram?{query}{more}").json()
        expected = answer.histogram(buckets)
        assert found == {"start_us": expected.start_us, "width_us": expected.width_us, "events": answer.count(),
                         "counts": list(expected.counts)}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        (f"{PATH}/histogram?buckets=1", 400, "buckets"), (f"{PATH}/histogram?buckets=9999", 400, "buckets"),
        (f"{PATH}/histogram?index=type", 400, "sent together"), (f"{PATH}/histogram?value=buy", 400, "sent together"),
        (f"{PATH}/histogram?index=nope&value=buy", 404, "nope"), ("/v1/topics/none/histogram", 404, "none"),
        (f"{PATH}/histogram?partition=none", 404, "no partition 'none'"),
        (f"{PATH}/histogram?limit=3", 400, "limit"), (f"{PATH}/values/nope", 404, "nope"),
        (f"{PATH}/values/type?limit=0", 400, "limit"), ("/v1/topics/none/segments", 404, "none"),
    ],
)  # fmt: skip
def test_refusals(web, clicks, path, status, told):
    """Invalid requests are refused with a reason."""
    answer = web.get(path)
    assert (answer.status_code, told in answer.json()["detail"]) == (status, True), answer.text


def test_values(web, clicks):
    """The most frequent values come first, up to a limit, with the total number of values."""
    found = web.get(f"{PATH}/values/type").json()
    assert found == {"values": [{"value": "buy", "events": 80}, {"value": "page", "events": 20}], "different": 2}
    assert web.get(f"{PATH}/values/type?limit=1").json() == {"values": found["values"][:1], "different": 2}
    assert web.get(f"{PATH}/values/n").json()["values"] == [
        {"value": False, "events": 50}, {"value": True, "events": 50}]  # fmt: skip


def test_segments(web, clicks):
    """All segments are listed with the manifest's facts."""
    found = web.get(f"{PATH}/segments").json()["segments"]
    assert found == clicks.segments()
    assert (len(found), found[0]["rows"], found[0]["max_timestamp"]) == (1, 60, 59_000_000)


def test_problems(web, server, clicks):
    """There are no problems in an intact catalog; a damaged file is described."""
    assert web.get("/v1/problems").json() == {"trouble": None, "problems": []}
    (path,) = (server.catalog.path / "segments").rglob("*.esdb")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    server.catalog.verify()
    (problem,) = web.get("/v1/problems").json()["problems"]
    assert "damaged" in problem["message"]
    assert problem["found_us"] > 0
