"""LQL inspected and counted before it runs; queries restricted to a time, newest records first."""

from __future__ import annotations

import tracemalloc
from time import process_time

import pytest


@pytest.fixture
def logs(server):
    """A stream with a record per second."""
    server.catalog.write(
        {"app": "web"},
        [{"ts": n * 1_000_000, "msg": "ERROR" if n % 10 == 0 else "ok", "n": str(n)} for n in range(100)],
    )
    return server.catalog


KINDS = [
    ("SELECT", "records", True), ("SELECT FROM {app=web} WHERE msg = ok", "records", True),
    ("SELECT LIMIT 3", "records", False), ("SELECT ORDER BY ts DESC", "records", False),
    ("SELECT POSITION TAIL", "records", False), ("SELECT COUNT", "groups", False),
    ("SELECT DISTINCT app", "groups", False), ("SHOW PARTITIONS", "table", False), ("EXPLAIN SELECT", "table", False),
    ("TRUNCATE DRYRUN", "change", False), ("CREATE PIPE p", "change", False), ("DELETE PIPE p", "change", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "pages"), KINDS)
def test_kinds(web, logs, text, kind, pages):
    """The kind of a statement is reported without running it."""
    found = web.post("/v1/statement", json={"query": text}).json()
    assert (found["kind"], found["pages"]) == (kind, pages)
    assert not logs.query("SHOW PIPES").num_rows


def test_conditions_are_added(web, logs):
    """A condition is added to statements with and without one, so that both apply."""
    asked = {"query": "SELECT FROM {app=web} WHERE msg = ok OR n = 10", "where": "n > 5", "without": "n = 7"}
    found = web.post("/v1/statement", json=asked).json()["query"]
    assert [event.columns["fields"] for event in logs.query(f"{found} LIMIT 3")] == [
        [("n", "6")], [("n", "8")], [("n", "9")]]  # fmt: skip
    plain = web.post("/v1/statement", json={"query": "SELECT", "where": "msg = ERROR"}).json()["query"]
    assert logs.query(plain).count() == 10
    refused = web.post("/v1/statement", json={"query": "SHOW PARTITIONS", "where": "n = 1"})
    assert (refused.status_code, refused.json()["detail"]) == (400, "where needs a SELECT")


def test_warnings_are_told(web, logs):
    """A name that matches nothing causes a warning: it may be mistyped."""
    found = web.post("/v1/statement", json={"query": "SELECT FROM app = wbe"}).json()
    assert found["warnings"] == ["FROM matches no stream and no topic"]
    before = logs.query("SELECT").count()
    for statement in ("SHOW PARTITIONS {}", "TRUNCATE {} MAXSIZE 0"):
        for source, warns in (("app = wbe", True), ("{app=web}", False), ("", False)):
            told = web.post("/v1/statement", json={"query": statement.format(source)}).json()["warnings"]
            assert [warning.partition(";")[0] for warning in told] == ["no stream matches"] * warns
    assert logs.query("SELECT").count() == before


@pytest.mark.parametrize("path", ["/v1/statement", "/v1/query", "/v1/histogram"])
def test_the_place_of_what_is_wrong(web, logs, path):
    """An error has the offsets of the mistake in the statement, on every route."""
    text = "SELECT FROM app=web WHERE msg CONTAIN x"
    found = web.post(path, json={"query": text}).json()
    start, end = found["place"]
    assert text[start:end] == "CONTAIN"
    assert found["hint"] == "did you mean CONTAINS?"


def test_no_place_of_another_text(web, logs):
    """If the server changed the statement, an error has no offsets, which would refer to the changed text."""
    logs.create_topic("typed").append([{"space": "a", "timestamp": 1, "n": 5}])
    text = "SELECT    FROM topic=typed WHERE n < x"
    start, end = web.post("/v1/query", json={"query": text}).json()["place"]
    assert text[start:end] == "x"
    for more in ({"reverse": True}, {"limit": 1}, {"position": "head"}):
        found = web.post("/v1/query", json={"query": text, **more}).json()
        assert "invalid number 'x'" in found["detail"]
        assert "place" not in found
    changed = web.post("/v1/statement", json={"query": text, "where": "n = 1"}).json()
    assert ("invalid number" in changed["detail"], "place" in changed) == (True, False)


def test_histogram(web, logs):
    """Records chosen by a statement are counted by time, within bounds if given."""
    for text in ("SELECT", "SELECT WHERE msg = ERROR", "SELECT FROM app = nothing", "SELECT LIMIT 1"):
        found = web.post("/v1/histogram", json={"query": text, "buckets": 20}).json()
        expected = logs.query(text).histogram(20)
        assert (found["start_us"], found["width_us"]) == (expected.start_us, expected.width_us)
        assert found["counts"] == list(expected.counts)
    asked = {"query": "SELECT", "start": "1970-01-01T00:00:10Z", "end": 20_000_000, "time_unit": "us"}
    assert web.post("/v1/histogram", json=asked).json()["events"] == 10


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"query": "SELECT COUNT"}, "only the records of a SELECT"), ({"query": "SHOW PARTITIONS"}, "only the records"),
        ({"query": "SELECT", "buckets": 1}, "buckets must"), ({"query": "SELECT", "buckets": True}, "buckets must"),
        ({"query": "SELECT", "start": "soon"}, "start"), ({"query": "SELECT", "start": True}, "start must be a time"),
        ({"query": "SELECT", "end": 2**63}, "end must be a time"), ({"query": 1}, "query must be a text"),
        ({"query": "SELECT", "time_unit": "years"}, "time_unit"), ({"query": "SELECT", "limit": 1}, "limit"),
    ],
)  # fmt: skip
def test_refusals(web, logs, body, told):
    """A statement that cannot be counted is refused with a reason."""
    answer = web.post("/v1/histogram", json=body)
    assert answer.status_code == 400
    assert told in answer.json()["detail"]


def numbers(answer):
    return [int(line.split('"n":"')[1].split('"')[0]) for line in answer.text.splitlines()]


def test_narrowed_queries(web, logs):
    """A time range, reverse order and the statement's own clauses apply together."""

    def ask(text, **more):
        return web.post("/v1/query", json={"query": text, **more})

    between = {"start": "1970-01-01T00:00:10Z", "end": "1970-01-01T00:00:15Z"}
    assert numbers(ask("SELECT", **between)) == [10, 11, 12, 13, 14]
    assert numbers(ask("SELECT", reverse=True, limit=3)) == [99, 98, 97]
    assert numbers(ask("SELECT WHERE msg = ok", reverse=True, **between)) == [14, 13, 12, 11]
    assert ask("SELECT COUNT", **between).text == '{"count":5}\n'
    assert ask("SELECT COUNT", reverse=True).text == '{"count":100}\n'
    for more, told in (
        ({"query": "SELECT POSITION TAIL", "reverse": True}, "where to begin"),
        ({"query": "SHOW PARTITIONS", "start": 1}, "start and end apply only to a SELECT"),
        ({"query": "SELECT", "position": "head", "reverse": True}, "cannot be combined with position"),
        ({"query": "SELECT", "reverse": 1}, "reverse must be"),
    ):  # fmt: skip
        answer = web.post("/v1/query", json=more)
        assert (answer.status_code, told in answer.json()["detail"]) == (400, True), answer.text


def test_histogram_by_a_name(web, logs):
    """Each of the most frequent values is a series, records without one are null; together they make up the counts."""
    for by, most in (
        ("msg", {"ok": 90, "ERROR": 10}),
        ("n", None),
        ("none", {None: 100}),
        ("UPPER(msg)", {"OK": 90, "ERROR": 10}),
    ):
        asked = {"query": "SELECT FROM app = web", "buckets": 20}
        plain = web.post("/v1/histogram", json=asked).json()
        found = web.post("/v1/histogram", json={**asked, "by": by}).json()
        series = found.pop("series")
        assert found == plain
        assert [each["events"] for each in series] == [sum(each["counts"]) for each in series]
        if most is None:
            assert [each["events"] for each in series] == [1] * 6
        else:
            assert {each["value"]: each["events"] for each in series} == most
            assert [sum(counts) for counts in zip(*(each["counts"] for each in series), strict=True)] == plain["counts"]
    empty = web.post("/v1/histogram", json={"query": "SELECT FROM app = nothing", "by": "msg"}).json()
    assert (empty["events"], empty["series"]) == (0, [])
    between = {"query": "SELECT", "by": "msg", "buckets": 3, "start": 10_000_000, "end": 20_000_000, "time_unit": "us"}
    assert {each["value"]: each["events"] for each in web.post("/v1/histogram", json=between).json()["series"]} == {
        "ok": 9, "ERROR": 1}  # fmt: skip


def test_histogram_by_a_name_with_many_values(server, web):
    """Only shown values have counts for each bar: with a million values, all would need gigabytes."""
    server.catalog.write({"app": "web"}, [{"ts": n * 1_000_000, "msg": "", "n": str(n)} for n in range(4000)])
    asked = {"query": "SELECT", "by": "n", "buckets": 2000}
    web.post("/v1/histogram", json=asked)  # import modules first
    tracemalloc.start()
    try:
        found = web.post("/v1/histogram", json=asked).json()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found["events"], len(found["series"])) == (4000, 6)
    assert peak < 12 << 20  # 27 MB if each value had them


@pytest.mark.parametrize("by", ["", "a, b", "a LIMIT 1", 'ts EVERY "1s"', 5, ["a"], "a WHERE b = c", "a) FROM x"])
def test_histogram_by_what_is_no_name(web, logs, by):
    """`by` must be a single name."""
    assert web.post("/v1/histogram", json={"query": "SELECT", "by": by}).status_code == 400


def test_completions(web, logs):
    """Matching keywords, tags and columns are completed, and values after a tag."""
    logs.create_topic("clicks", indexes=["type"]).append(
        [{"space": "a", "timestamp": 1, "type": "page", "the price": 5}]
    )

    def words(before):
        return [each["text"] for each in web.post("/v1/completions", json={"before": before}).json()["completions"]]

    assert words("SELECT FROM ap") == ["app"]
    assert words("SELECT FROM app = ") == ["web"]
    assert words("SELECT FROM topic = c") == ["clicks"]
    assert words("SELECT WHERE t") == ["`the price`", "topic", "type", "TRUNCATE", "ts"]
    assert web.post("/v1/completions", json={"before": "SELECT FROM topic = cl"}).json()["completions"] == [
        {"text": "clicks", "replaces": 2}]  # fmt: skip
    asked = {"before": "SELECT WHERE le", "names": ["level", "odd name"]}
    assert web.post("/v1/completions", json=asked).json()["completions"] == [{"text": "level", "replaces": 2}]
    assert web.post("/v1/completions", json={"before": "", "names": [1]}).status_code == 400
    started = process_time()
    assert words("x" * 40_000) == []
    assert process_time() - started < 1  # 4 s of the whole server when 10,000 characters were examined
    assert web.post("/v1/completions", json={"before": 5}).status_code == 400
