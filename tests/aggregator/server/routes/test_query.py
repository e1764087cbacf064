"""LQL over HTTP: whole answers, pages with each record once, long polls, and live tails that resume."""

from __future__ import annotations

import io
import itertools
import json
import shutil
import threading
import time

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest
from served import ANY_PORT, served
from still import still

import aggregator
import esformat
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http

ALL = "SELECT FROM {}"


@pytest.fixture
def shop(tmp_path):
    """A catalog with ten records of a stream, and a client of its server."""
    settings = Settings(http=Http(bind=ANY_PORT))
    with aggregator.open(tmp_path) as catalog, RunningServer(catalog, settings) as server:
        write(catalog, range(10))
        with httpx.Client(base_url=server.url, timeout=120) as web:
            yield catalog, web


def write(catalog, numbers):
    catalog.write({"app": "web"}, [{"ts": number, "msg": f"m{number}"} for number in numbers])


def ask(web, status=200, **question):
    answer = web.post("/v1/query", json=question)
    assert answer.status_code == status, answer.text
    return answer


def messages(answer) -> list[str]:
    return [json.loads(line)["data"] for line in answer.text.splitlines()]


def test_whole_answers(shop):
    """A SELECT is answered in lines or Arrow, sent as JSON or plain text; COUNT and SHOW return tables."""
    _, web = shop
    assert messages(ask(web, query=f"{ALL} LIMIT 3")) == ["m0", "m1", "m2"]
    assert messages(ask(web, query=ALL, limit=2)) == ["m0", "m1"]
    plain = web.post("/v1/query", content=f"{ALL} WHERE msg = m7", headers={"content-type": "text/plain"})
    assert messages(plain) == ["m7"]
    arrow = web.post("/v1/query", json={"query": ALL}, headers={"accept": "application/vnd.apache.arrow.stream"})
    assert pa.ipc.open_stream(arrow.content).read_all()["data"].to_pylist()[9] == b"m9"
    accept = {"accept": "application/vnd.apache.parquet"}
    parquet = web.post("/v1/query", json={"query": ALL}, headers=accept)
    assert pyarrow.parquet.read_table(io.BytesIO(parquet.content))["data"].to_pylist()[9] == b"m9"
    text = {"accept": "text/plain"}
    formatted = web.post("/v1/query", json={"query": 'SELECT "{vars:app}: {msg}" FROM {} LIMIT 2'}, headers=text)
    assert formatted.text.splitlines() == ["web: m0", "web: m1"]
    ended = web.post("/v1/query", json={"query": "SELECT '{msg}\\n' FROM {} LIMIT 2"}, headers=text)
    assert ended.text == "m0\nm1\n"  # a format string with line ends causes no empty lines
    assert web.post("/v1/query", json={"query": "SHOW PARTITIONS"}, headers=text).status_code == 406
    assert ask(web, query="SELECT COUNT FROM {}").json()["count"] == 10
    assert ask(web, query="SHOW PARTITIONS").json()["tags"] == "{app=web}"


def test_records_as_a_file_of_ours(shop, tmp_path):
    """Records of streams become events of a segment, with their tags as space and their fields; tables are refused."""
    catalog, web = shop
    catalog.write({"app": "web"}, [{"msg": "with fields", "level": "info"}])
    esdb = {"accept": "application/vnd.esdb"}
    answer = web.post("/v1/query", json={"query": ALL, "reverse": True, "limit": 2}, headers=esdb)
    (tmp_path / "records.esdb").write_bytes(answer.content)
    with esformat.open(tmp_path / "records.esdb") as segment:
        (space,) = segment.spaces()
        assert (space, segment[space].scan().count()) == ("{app=web}", 2)
        assert list(segment.scan())[-1].data == b"with fields"
        assert dict(segment.scan().to_table()["fields"][-1].as_py()) == {"level": "info"}
    assert web.post("/v1/query", json={"query": "SHOW PARTITIONS"}, headers=esdb).status_code == 406


@pytest.mark.parametrize("question", [
    {"query": "SELEKT"}, {"query": 5}, {}, {"query": ALL, "position": "nonsense"}, {"query": ALL, "position": 5},
    {"query": ALL, "position": '" LIMIT 1'}, {"query": ALL, "limit": 0}, {"query": ALL, "wait": 5},
    {"query": ALL, "position": "head", "limit": 100_001}, {"query": ALL, "position": "head", "wait": 61},
    {"query": "SHOW PARTITIONS", "position": "head"}, {"query": "SELECT COUNT FROM {}", "position": "head"},
    {"query": f"{ALL} POSITION HEAD", "position": "head"}, {"query": f"{ALL} ORDER BY ts DESC", "position": "head"},
    {"query": ALL, "odd": 1}, {"query": "SELECT FROM {} WHERE " + "(" * 5000},
    {"query": ALL, "position": ""}, {"query": ALL, "reverse": ""}, {"query": ALL, "reverse": []},
])  # fmt: skip
def test_wrong_questions(shared_web, question):
    """Invalid statements, positions and options are refused."""
    assert ask(shared_web, status=400, **question).headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["start", "end", "position", "query"])
def test_half_of_a_surrogate_pair(shared_web, name):
    """Text that UTF-8 cannot encode, from an escape in JSON, is refused."""
    body = json.dumps({"query": ALL} | {name: "2026-03-01\ud800"})
    answer = shared_web.post("/v1/query", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400


def test_pages(shop):
    """Pages from the head have every record once, including those written meanwhile."""
    catalog, web = shop
    position, seen = "head", []
    for turn in range(6):
        page = ask(web, query=ALL, position=position, limit=3)
        seen += messages(page)
        position = page.headers["aggregator-position"]
        if turn == 1:
            write(catalog, [100, 101])
    assert sorted(seen) == sorted([f"m{n}" for n in (*range(10), 100, 101)])
    assert messages(ask(web, query=f"{ALL} OFFSET -2", position="tail")) == ["m100", "m101"]


def test_long_poll(shop):
    """A page at the tail waits for a record and is sent when one arrives."""
    catalog, web = shop
    begun = time.monotonic()
    empty = ask(web, query=ALL, position="tail", wait=0.2)
    assert messages(empty) == []
    assert 0.15 < time.monotonic() - begun < 30
    threading.Timer(0.3, write, (catalog, [50])).start()
    page = ask(web, query=ALL, position=empty.headers["aggregator-position"], wait=60)
    assert messages(page) == ["m50"]
    assert time.monotonic() - begun < 55
    assert messages(ask(web, query=ALL, position=page.headers["aggregator-position"])) == []


def test_many_long_polls(shop):
    """Waiting takes no thread: far more polls wait than there are threads, and other requests are answered."""
    catalog, web = shop
    found: list[list[str]] = []
    end = ask(web, query=ALL, position="tail").headers["aggregator-position"]  # however late a thread starts

    def poll():
        with httpx.Client(base_url=web.base_url, timeout=120) as mine:
            found.append(messages(ask(mine, query=ALL, position=end, wait=60)))

    polls = [threading.Thread(target=poll) for _ in range(25)]
    for thread in polls:
        thread.start()
    until = time.monotonic() + 50
    while 'by_route{route="/v1/query"} 25.0' not in web.get("/metrics").text and time.monotonic() < until:
        time.sleep(0.05)
    assert len(messages(ask(web, query=ALL))) == 10
    write(catalog, [7])
    for thread in polls:
        thread.join(120)
    assert found == [["m7"]] * 25


def events(lines) -> list[tuple[str, str]]:
    """Position and message of server-sent events, as long as they arrive."""
    for line in lines:
        if line.startswith("id: "):
            position = line[4:]
        elif line.startswith("data: "):
            yield position, json.loads(line[6:])["data"]


def test_tail_goes_on_where_it_was(shop):
    """Each event has its position; a client that reconnects misses nothing and gets nothing twice."""
    catalog, web = shop
    with web.stream("GET", "/v1/tail", params={"query": ALL}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == ": listening"
        start = next(lines).removeprefix("id: ")
    write(catalog, [20, 21, 22])
    with web.stream("GET", "/v1/tail", params={"query": ALL}, headers={"last-event-id": start}) as answer:
        lines = answer.iter_lines()
        coming = events(lines)
        assert [next(coming)[1] for _ in range(2)] == ["m20", "m21"]
        last, _ = next(coming)
    write(catalog, [23])
    with web.stream("GET", "/v1/tail", params={"query": ALL}, headers={"last-event-id": last}) as answer:
        assert next(events(answer.iter_lines()))[1] == "m23"
    with web.stream("GET", "/v1/tail", params={"query": f"{ALL} LIMIT 4", "position": "head"}) as answer:
        assert [message for _, message in events(answer.iter_lines())] == ["m0", "m1", "m2", "m3"]
    for wrong in ({}, {"query": "SHOW PARTITIONS"}, {"query": ALL, "position": "x y"}, {"query": ALL, "position": ""}):
        assert web.get("/v1/tail", params=wrong).status_code == 400


def test_positions_after_a_restored_copy(tmp_path):
    """A tail or page with a position from after a restored copy is refused with the reason."""
    root, copy = tmp_path / "data", tmp_path / "copy"
    with served(root) as server, httpx.Client(base_url=server.url) as web:
        write(server.catalog, [1, 2])
        shutil.copytree(still(server.catalog).path, copy)
        write(server.catalog, [3, 4])
        with web.stream("GET", "/v1/tail", params={"query": ALL, "position": "head"}) as answer:
            ids = [position for position, _ in itertools.islice(events(answer.iter_lines()), 4)]
    with served(copy) as server, httpx.Client(base_url=server.url) as web:
        write(server.catalog, [5, 6, 7])
        answer = web.get("/v1/tail", params={"query": ALL}, headers={"last-event-id": ids[-1]})
        assert (answer.status_code, "restored from" in answer.json()["detail"]) == (400, True)
        answer = web.post("/v1/query", json={"query": ALL, "position": ids[-1]})
        assert (answer.status_code, "restored from" in answer.json()["detail"]) == (400, True)
