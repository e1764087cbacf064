"""SQL over HTTP: rows in every format, ended with the client, and access to nothing but a token's topics."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import httpx
import pyarrow as pa
import pytest
from served import served
from waiting import until

import aggregator
from aggregator.client import AsyncClient, Client
from aggregator.errors import InvalidRequestError
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Work
from aggregator.server.control.tokens import create
from aggregator.server.routes.sql import Answer
from esformat.sql import Session
from esformat.sql import rows as rows_module

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 7"
TEXT = {"content-type": "text/plain"}


def fill(path):
    """A catalog with two topics and a stream."""
    with aggregator.open(path) as catalog:
        for name in ("clicks", "secrets"):
            topic = catalog.create_topic(name, indexes=["type"])
            topic.append([{"space": f"s{n % 3}", "timestamp": n, "type": "page" if n % 4 else None} for n in range(40)])
        catalog.write({"app": "web"}, [{"msg": "hello"}])
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("sql") / "data")


@pytest.fixture(scope="module")
def server(data):
    with served(data) as running:
        yield running


@pytest.fixture
def copied(tmp_path):
    """A copy of the catalog for a server of one test."""
    return fill(tmp_path / "data")


@pytest.fixture
def web(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def ask(web: httpx.Client, statement: str, **more: object) -> httpx.Response:
    return web.post("/v1/sql", json={"query": statement, **more})


COUNTS = "SELECT type, count(*) AS n FROM clicks GROUP BY 1 ORDER BY 2"


def test_formats(web):
    """An answer is available as JSON lines, CSV and Arrow; a statement may be JSON or text."""
    expected = [{"type": None, "n": 10}, {"type": "page", "n": 30}]
    assert [json.loads(line) for line in ask(web, COUNTS).text.splitlines()] == expected
    as_csv = web.post("/v1/sql", content=COUNTS, headers={**TEXT, "accept": "text/csv"})
    assert as_csv.text.splitlines() == ['"type","n"', ",10", '"page",30']
    arrow = {**TEXT, "accept": "application/vnd.apache.arrow.stream"}
    table = pa.ipc.open_stream(io.BytesIO(web.post("/v1/sql", content=COUNTS, headers=arrow).content)).read_all()
    assert table.to_pylist() == expected
    nothing = web.post("/v1/sql", content="SELECT type FROM clicks WHERE space = 'x'", headers=arrow)
    assert pa.ipc.open_stream(io.BytesIO(nothing.content)).read_all().column_names == ["type"]


def test_a_limit_ends_the_statement(monkeypatch):
    """The statement ends when the limit is reached, although the answer is still in use."""
    bound = []
    batches = rows_module._batches
    monkeypatch.setattr(rows_module, "_batches", lambda *given: bound.append(given[0]) or batches(*given))
    answer = Answer(Session(lambda name: None, hint="").ask("FROM range(10000000)"), 7)
    assert sum(map(len, answer.batches())) == 7
    with pytest.raises(duckdb.ConnectionException):
        bound[0].connection.execute("SELECT 1")
    assert answer.schema.names == ["range"]


def test_an_answer_runs_its_statement_once():
    """The schema of an answer without rows comes from its stream: the statement is not bound again for it."""
    streams = []

    class OneStream:
        def to_reader(self):
            streams.append(pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int32())]), iter([])))
            return streams[-1]

    answer = Answer(OneStream(), None)
    assert (list(answer.batches()), answer.schema.names, len(streams)) == ([], ["x"], 1)


def test_limit(web):
    assert len(ask(web, "SELECT * FROM clicks", limit=7).text.splitlines()) == 7
    assert len(ask(web, "SELECT * FROM range(200000)", limit=100_001).text.splitlines()) == 100_001


WRONG = [
    ({"query": "SELEC"}, "syntax error"),
    ({"query": "FROM nope"}, "no table"),
    ({"query": "DROP TABLE clicks"}, "not DROP"),
    ({"query": "SELECT 1; SELECT 2"}, "one statement"),
    ({"query": "SELECT 'x'::INT"}, "Could not convert"),
    ({"query": "SELECT 1", "limit": 0}, "limit"),
    ({"query": "SELECT 1", "limit": True}, "limit"),
    ({"query": "SELECT 1", "nope": 1}, "nope"),
    ({"sql": "SELECT 1"}, "no query"),
    ([], "no query"),
]


@pytest.mark.parametrize(("body", "said"), WRONG, ids=[json.dumps(body) for body, _ in WRONG])
def test_wrong_requests(web, body, said):
    answer = web.post("/v1/sql", json=body)
    assert answer.status_code == 400
    assert said in answer.json()["detail"]


OUTSIDE = [
    "FROM '/etc/passwd'", "FROM read_csv('/etc/passwd')", "FROM read_text('/etc/passwd')", "FROM glob('/*')",
    "FROM '{data}/manifest.sqlite'", "FROM read_blob('{data}/manifest.sqlite')", "FROM 'http://127.0.0.1:9/x.csv'",
    "FROM 's3://bucket/x.parquet'", "FROM 's3://bucket/x.esdb'", "FROM '{data}/segments'", "FROM sqlite_scan('x', 'y')",
    "COPY clicks TO '{out}/x.csv'", "ATTACH '{out}/x.db'", "INSTALL httpfs", "LOAD httpfs",
    "SET memory_limit = '100GB'", "SET enable_external_access = true", "PRAGMA database_list", "CALL pragma_version()",
    "SELECT getenv('HOME')", "FROM request", "FROM context", "FROM duckdb_secrets()", "IMPORT DATABASE '{data}'",
    "EXPORT DATABASE '{out}'", "CREATE TABLE t (n INT)", "SELECT count(*) FROM query('FROM ''/etc/passwd''')",
]  # fmt: skip


@pytest.mark.parametrize("statement", OUTSIDE)
def test_nothing_else_can_be_reached(web, data, tmp_path, statement):
    """Files, network, extensions, settings and server variables are out of reach, and a refusal changes nothing."""
    answer = ask(web, statement.replace("{data}", str(data)).replace("{out}", str(tmp_path)))
    assert answer.status_code == 400, answer.text
    assert "root:" not in answer.text
    assert list(tmp_path.iterdir()) == []
    assert ask(web, COUNTS).status_code == 200


@pytest.mark.parametrize("statement", ["FROM duckdb_settings()", "FROM duckdb_extensions()", "FROM duckdb_secrets()"])
def test_no_place_of_the_server_is_told(web, statement):
    """Settings and their descriptions reveal neither home nor working directory of the server."""
    told = ask(web, statement).text
    assert told
    assert str(Path.home()) not in told
    assert str(Path.cwd()) not in told


def test_tokens(copied, tmp_path):
    """A token reads its topics and does not see others; a token that may only write is refused."""
    file = tmp_path / "tokens.json"
    reader = create(file, "reader", scopes=["read"], topics=["clicks"])
    writer = create(file, "writer", scopes=["write"])
    everything = create(file, "all", scopes=["read"])
    with served(copied, Settings(tokens=file)) as running, httpx.Client(base_url=running.url) as web:

        def status(token: str | None, statement: str) -> int:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            return web.post("/v1/sql", json={"query": statement}, headers=headers).status_code

        assert [status(reader, f"SELECT count(*) FROM {name}") for name in ("clicks", "secrets", "streams")] == [
            200,
            400,
            400,
        ]
        assert status(reader, "SELECT count(*) FROM clicks JOIN secrets USING (space)") == 400
        assert status(everything, "SELECT count(*) FROM clicks JOIN secrets USING (space)") == 200
        assert status(reader, "SELECT count(*) FROM secrets") == 400  # also if another token has just queried
        assert status(writer, "SELECT 1") == 403
        assert status(None, "SELECT 1") == 401


def under_way(server: RunningServer) -> int:
    return server.context.reads.busy + server.context.reads.slow


def test_time(copied):
    """A statement that exceeds its time is ended, and the next one is answered."""
    with (
        served(copied, Settings(work=Work(query_s=0.5))) as running,
        httpx.Client(base_url=running.url, timeout=120) as web,
    ):
        began = time.monotonic()
        answer = ask(web, ENDLESS)
        assert (answer.status_code, answer.json()["type"]) == (400, "/problems/query-limit")
        assert time.monotonic() - began < 60
        assert ask(web, COUNTS).status_code == 200


def test_memory(copied):
    """A statement that needs more memory than allowed is refused and writes nothing to disk."""
    settings = Settings(work=Work(query_bytes=64 << 20))
    with served(copied, settings) as running, httpx.Client(base_url=running.url, timeout=60) as web:
        answer = ask(web, "SELECT count(*) FROM (SELECT DISTINCT hash(range) FROM range(50000000))")
        assert answer.status_code == 400
        assert "memory" in answer.json()["detail"].lower()
        assert ask(web, COUNTS).status_code == 200


def test_a_client_that_leaves(server):
    """A statement ends soon after its client left, before its first row or later."""
    where = urlsplit(server.url)
    for statement in (ENDLESS, "SELECT a.range, b.range FROM range(1000000) a, range(1000000) b"):
        client = HTTPConnection(str(where.hostname), where.port, timeout=20)
        client.request("POST", "/v1/sql", statement, TEXT)
        until(lambda: under_way(server) > 0)
        client.close()
        until(lambda: under_way(server) == 0, 60)


def test_clients(server):
    """`Client.sql` is lazy and has every form of an answer; the async client returns a table."""
    with Client(server.url) as client:
        rows = client.sql(COUNTS)
        assert rows.fetchall() == [(None, 10), ("page", 30)]
        assert rows.schema.names == rows.to_table().column_names == ["type", "n"]
        assert list(client.sql("SELECT tags['app'] FROM streams")) == [("web",)]
        with pytest.raises(InvalidRequestError, match="syntax error"):
            client.sql("SELEC").to_table()

    async def table() -> pa.Table:
        async with AsyncClient(server.url) as client:
            return await client.sql(COUNTS)

    assert asyncio.run(table()).column("n").to_pylist() == [10, 30]


def test_without_duckdb(copied, monkeypatch):
    """A server without the package says so and names the extra to install."""
    import esformat.sql

    monkeypatch.delitem(vars(esformat.sql), "Database", raising=False)
    monkeypatch.setitem(sys.modules, "esformat.sql.session", None)
    with served(copied) as running, httpx.Client(base_url=running.url) as web:
        answer = ask(web, "SELECT 1")
        assert answer.status_code == 501
