"""Topics over HTTP: created, found, changed; retention, compaction and erasure report what they do."""

from __future__ import annotations

import pytest

import aggregator
from aggregator import Retention
from aggregator.cli.shared.open_catalog import policy

LINES = b'{"space": "ada", "timestamp": 5, "type": "page"}\n{"space": "bob", "timestamp": 6, "type": "page"}\n'


def append(web, topic="clicks", body=LINES):
    answer = web.post(f"/v1/topics/{topic}/events", content=body, headers={"content-type": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text


def test_made_once(web):
    """Creating the same topic again has no effect; another definition is refused and changes nothing."""
    definition = {"indexes": ["type"], "roll": {"age": "60s"}, "retention": {"bytes": "1 GiB"}}
    made = web.put("/v1/topics/clicks", json=definition)
    assert (made.status_code, made.json()["indexes"]) == (201, ["type"])
    assert made.json()["roll"]["age_us"] == 60_000_000
    assert web.put("/v1/topics/clicks", json=definition).status_code == 200
    assert web.put("/v1/topics/clicks", json={}).status_code == 200
    for other in ({"indexes": []}, {"roll": {"age": "61s"}}, {"keys": "binary"}):
        answer = web.put("/v1/topics/clicks", json=other)
        assert (answer.status_code, answer.json()["status"]) == (409, 409)
    assert web.get("/v1/topics").json() == {"topics": [{"name": "clicks"}]}


def test_made_with_columns(web):
    """Declared columns exist before the first event and keep their type, even for values that look like another."""
    columns = {"n": "double", "code": "string", "at": "timestamp[us, tz=UTC]", "tags": "list<item: string>"}
    asked = {"schema": {**columns, "n": "float64", "at": "timestamp", "tags": "list<string>"}, "indexes": ["code"]}
    made = web.put("/v1/topics/clicks", json=asked)
    assert (made.status_code, made.json()["schema"]) == (201, columns)
    line = b'{"space": "ada", "timestamp": 5, "n": 1, "code": "007", "at": "2026-03-01T08:00:00Z", "more": true}\n'
    append(web, body=line)
    assert web.get("/v1/topics/clicks").json()["schema"] == {**columns, "more": "bool"}
    events = web.get("/v1/topics/clicks/index/code", params={"value": "007", "columns": "n,code,at"})
    assert events.json() == {"n": 1.0, "code": "007", "at": "2026-03-01T08:00:00.000000Z"}
    assert web.put("/v1/topics/clicks", json=asked).status_code == 200
    assert web.put("/v1/topics/clicks", json=made.json() | {"topic": None}).status_code == 400
    assert web.put("/v1/topics/clicks", json={"schema": {"n": "int64"}}).status_code == 409


@pytest.mark.parametrize("name", ["a/b", "..", ".", "%2e%2e", "ä ö", "A", "x" * 1024, "a\nb", "?#&=", "'"])
def test_any_name(shared_web, name):
    """Any text can name a topic and is returned unchanged."""
    from urllib.parse import quote

    path = "/v1/topics/" + quote(name, safe="").replace(".", "%2E")
    assert shared_web.put(path).status_code == 201
    assert {"name": name} in shared_web.get("/v1/topics").json()["topics"]
    assert shared_web.get(path).json()["topic"] == name


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"odd": 1}', b'{"indexes": "type"}', b'{"keys": "odd"}',
    b'{"roll": {"rows": "many"}}', b'{"retention": [1]}', b'{"roll": {"age": {}}}', b'{"indexes": [1]}',
    b'{"schema": []}', b'{"schema": {"n": "nothing"}}', b'{"schema": {"n": 5}}', b'{"schema": {"space": "string"}}',
    b'{"schema": {"record_index": "int64"}}', b'{"schema": {"n": "int64"}, "indexes": ["n", "n"]}',
    b'{"schema": {"n": "float64"}, "indexes": ["n"]}', b"[" * 100_000, b'{"retention": {"age_us": true}}',
    b'{"indexes": ["\\ud800"]}', b'{"schema": {"\\ud800": "string"}}'])  # fmt: skip
def test_wrong_definitions(shared_web, body):
    """An invalid definition is refused, and no topic is created."""
    answer = shared_web.put("/v1/topics/clicks", content=body)
    assert answer.status_code == 400, answer.text
    assert shared_web.get("/v1/topics/clicks").status_code == 404


def test_facts_and_upkeep(web):
    """A topic's figures can be read, its policies changed, and upkeep run on request."""
    web.put("/v1/topics/clicks", json={"indexes": ["type"]})
    append(web)
    assert web.get("/v1/topics/clicks").json()["rows"] == 2
    changed = web.patch("/v1/topics/clicks", json={"retention": {"segments": 3}}).json()
    assert changed["retention"]["segments"] == 3
    for change, limits in (
        ({"age": "1d"}, (3, 86_400_000_000)),
        ({}, (3, 86_400_000_000)),
        ({"segments": None}, (None, 86_400_000_000)),
        (None, (None, None)),
    ):
        changed = web.patch("/v1/topics/clicks", json={"retention": change}).json()["retention"]
        assert (changed["segments"], changed["age_us"]) == limits
    assert web.post("/v1/topics/clicks/retain", params={"dry_run": "true"}).json()["dry_run"] is True
    assert web.post("/v1/topics/clicks/compact").json()["merged"] == 0
    erased = web.post("/v1/topics/clicks/erase", json={"spaces": ["ada", "nobody"]}).json()
    assert erased == {"erased": [{"space": "ada", "events": 1}, {"space": "nobody", "events": 0}]}
    assert web.get("/v1/topics/clicks/events", params={"columns": "space"}).text == '{"space":"bob"}\n'
    stats = web.get("/v1/stats").json()
    assert stats["topics"]["clicks"]["rows"] >= 1
    assert "path" not in stats
    hint = web.get("/v1/topics/none").json()["hint"]
    assert hint == "GET /v1/topics lists the topics; PUT /v1/topics/{topic} creates one"
    for path in ("retain", "compact", "erase"):
        assert web.post(f"/v1/topics/none/{path}", json={"spaces": []} if path == "erase" else None).status_code == 404
    assert web.post("/v1/topics/clicks/erase", json={"spaces": "ada"}).status_code == 400
    for given in ("dry_run=perhaps", "dry_run=", "dry_run"):
        assert web.post(f"/v1/topics/clicks/retain?{given}").status_code == 400


def test_retention_has_the_same_names_everywhere(web):
    """Retention given by HTTP, Python or `--retention` is reported with the same names; age has its unit."""
    given = {"bytes": "1 GiB", "age": "1d", "segments": 3, "partition_bytes": "1 MiB", "partition_segments": 2}
    told = {
        "bytes": 1 << 30,
        "age_us": 86_400_000_000,
        "segments": 3,
        "partition_bytes": 1 << 20,
        "partition_segments": 2,
    }
    assert web.put("/v1/topics/t", json={"retention": given}).json()["retention"] == told
    assert web.patch("/v1/topics/t", json={"retention": told}).json()["retention"] == told
    assert Retention.of(given).to_json() == told
    assert Retention.of(policy([(name, str(value)) for name, value in given.items()])).to_json() == told
    assert set(web.get("/openapi.json").json()["paths"]["/v1/topics/{topic}"]["patch"]["requestBody"]["content"][
        "application/json"]["schema"]["properties"]["retention"]["properties"]) == set(given)  # fmt: skip


def test_deleted(web):
    """A deleted topic is gone with its contents; its name can be reused."""
    web.put("/v1/topics/clicks", json={"indexes": ["type"]})
    append(web)
    assert web.delete("/v1/topics/clicks").status_code == 204
    assert web.get("/v1/topics/clicks").status_code == 404
    assert web.delete("/v1/topics/clicks").status_code == 404
    assert web.delete("/v1/topics/logs").status_code == 404
    assert web.put("/v1/topics/clicks", json={"indexes": ["other"]}).status_code == 201
    assert web.get("/v1/topics/clicks/events").text == ""
    web.put("/v1/topics/logs")
    assert web.delete("/v1/topics/logs").status_code == 400


def test_renamed(web):
    """A renamed topic keeps its contents; a name in use or an invalid one is refused."""
    web.put("/v1/topics/clicks")
    append(web)
    web.put("/v1/topics/other")
    for taken in ("other", "logs"):
        assert web.post("/v1/topics/clicks/rename", json={"name": taken}).status_code == 409
    for wrong in ({}, {"name": 1}, {"name": ""}, {"name": "x" * 1025}, {"odd": "x"}):
        assert web.post("/v1/topics/clicks/rename", json=wrong).status_code == 400
    answer = web.post("/v1/topics/clicks/rename", json={"name": "moved/here"})
    assert (answer.status_code, answer.json()["topic"]) == (200, "moved/here")
    assert web.get("/v1/topics/moved%2Fhere").json()["rows"] == 2
    assert web.get("/v1/topics/clicks").status_code == 404


def test_a_dry_run_of_another_retention(server, web):
    """A dry run reports what another limit would remove and keeps the topic's own; without a dry run it is refused."""
    web.put("/v1/topics/clicks")
    append(web)
    server.catalog.seal()
    own = web.get("/v1/topics/clicks").json()["retention"]
    path = "/v1/topics/clicks/retain"
    report = web.post(f"{path}?dry_run=true", json={"retention": {"age": "1d"}}).json()
    assert [(each["rows"], each["reason"]) for each in report["removed"]] == [(2, "age")]
    assert report["dry_run"]
    assert web.post(f"{path}?dry_run=true", json={"retention": {"age": None, "bytes": "1 GiB"}}).json()["removed"] == []
    assert web.post(path, json={"retention": {"age": "1d"}}).status_code == 400
    assert web.post(f"{path}?dry_run=true", json={"retention": {"age": "much"}}).status_code == 400
    facts = web.get("/v1/topics/clicks").json()
    assert (facts["retention"], facts["rows"]) == (own, 2)
    with aggregator.open(server.catalog.path, read_only=True) as reader:
        assert len(reader.topic("clicks").retain(dry_run=True, retention={"age": "1d"}).removed) == 1
