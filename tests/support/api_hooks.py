"""For schemathesis: texts and bodies of formats that the API description names but cannot describe."""

from __future__ import annotations

import io
import re

import pyarrow as pa
import schemathesis
from hypothesis import strategies as st

from tests.aggregator.server.bodies.test_otlp import request

TIMES = st.integers(0, 2**40)
TEXTS = {
    "lql": ["SELECT FROM {app=web} LIMIT 3", "SELECT LIMIT 1"],
    "sql": ["SELECT 1 AS one", "SELECT range AS n FROM range(3)"],
    "lql-select": ["SELECT FROM {app=web} LIMIT 0", "SELECT LIMIT 0"],
    "lql-source": ["{app=web}", "app = web"],
    "lql-operand": ["level", "msg.user.id", "UPPER(app)"],
    "lql-condition": ['msg CONTAINS "a"', "fields:a = b"],
    "tags": ["{app=web}", 'app=web,host="a b"'],
    "position": ["head", "tail"],
    "index": ["type"],
    "page-file": ["app.js", "base.css"],
    "column": ["*", "time", "n"],
    "columns": ["space", "timestamp,space", "record_index,partition"],
    "partition-filter": ["web-1", "regex:^w"],
    "binary-key": ["YQ==", "AA=="],
    "idempotency-key": ["web-1:17", "a:b:0"],
    "column-name": ["type", "price", "a b", "ä"],
    "event-csv": ["space,timestamp,data\na,1,x\n"],
    "event-lines": ['{"space": "a", "timestamp": 1, "data": "x"}\n' * 2],
    "record-lines": ['{"ts": 1, "msg": "x"}\n', '{"ts": 2, "msg": "x", "a": [1]}\n'],
    "lines": ["a\nb\n", ""],
    "bulk-lines": ['{"index": {"_index": "nginx"}}\n{"@timestamp": 1, "message": "x"}\n'],
    "arrow-type": ["string", "int64", "bool"],
}


def arrow(make, table: pa.Table) -> bytes:
    """A table in one of Arrow's two formats."""
    out = io.BytesIO()
    with make(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


for name, texts in TEXTS.items():
    schemathesis.openapi.format(name, st.sampled_from(texts))
for media, bodies in {
    "application/vnd.apache.arrow.stream": st.just(b"stream"),
    "application/vnd.apache.arrow.file": st.just(b"file"),
    "application/x-protobuf": TIMES.map(
        lambda time: request({"body": "x", "time_unix_nano": time}).SerializeToString()
    ),
}.items():
    schemathesis.openapi.media_type(media, bodies)


@schemathesis.serializer("application/x-ndjson", "text/csv")
def text(context: object, value: object) -> bytes:
    """A string as it is; any other value, which these formats cannot express, as an invalid body."""
    return value.encode() if isinstance(value, str) else b"\xff["


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict) -> None:
    """Adjust requests whose parts depend on each other, which cannot be described, and shorten waits."""
    query, body, path = case.query or {}, case.body, case.operation.path
    negative = case.meta is not None and case.meta.generation.mode.is_negative
    times = [query.get(name) for name in ("time.start", "time.end")]
    if all(isinstance(time, str) and re.match(r"\d{4}-\d\d-\d\d[Tt]", time) for time in times) and times[0] > times[1]:
        case.query |= {"time.start": times[1], "time.end": times[0]}
    if isinstance(body, dict) and isinstance(body.get("wait"), int | float) and 0 <= body["wait"] <= 60:
        case.body = body | {"wait": 0.01 if body.get("position") is not None else 0}
    if path == "/v1/query" and isinstance(body, dict) and body.get("position") is not None:  # oldest first
        case.body = {name: value for name, value in case.body.items() if name not in ("start", "end", "reverse")}
    if not negative and path in ("/v1/statement", "/v1/histogram"):  # schemathesis may use examples from other routes
        case.body = body | {"query": TEXTS["lql"][0]}
    if not negative and path == "/v1/sql" and isinstance(body, dict):
        case.body = body | {"query": TEXTS["sql"][0]}
    if path.endswith("/histogram") and not (
        isinstance(query.get("index"), str) and isinstance(query.get("value"), str)
    ):
        case.query = {name: value for name, value in query.items() if name not in ("index", "value", "type")}
    if isinstance(body, bytes) and body in ARROW and not negative:
        kwargs["data"] = arrow(ARROW[body], columns_for(path))
    if not negative and case.query:  # the names in a body are fixed
        case.query = {name: value for name, value in query.items() if name not in ("ts", "msg")}
    if path.endswith("/retain") and isinstance(body, dict) and "retention" in body:  # a change only in a dry run
        case.query = query | {"dry_run": "true"}
    if body == "" and case.media_type == "application/x-ndjson" and (negative or path.endswith("_bulk")):
        kwargs["data"] = b"{" if negative else TEXTS["bulk-lines"][0].encode()  # on other routes an empty body is valid
    if path.startswith("/loki/") and isinstance(body, bytes) and not negative:
        kwargs["data"] = b"\0"  # an empty push, compressed by snappy
    if path == "/v1/tail" and "query" in query:
        case.query |= {"query": "SELECT LIMIT 0"}  # other queries never end
    if path == "/v1/cloudevents" and ":" in (case.headers or {}).get("Idempotency-Key", ""):
        del case.headers["Idempotency-Key"]  # with this header each event needs a time


ARROW = {b"stream": pa.ipc.new_stream, b"file": pa.ipc.new_file}


def columns_for(path: str) -> pa.Table:
    """Records with the columns that a route requires."""
    time = pa.array([1], pa.int64())
    if path.startswith("/topic/"):
        return pa.table({"time": time, "n": [1]})
    if path.endswith("/events"):
        return pa.table({"space": ["a"], "timestamp": time, "data": [b"x"]})
    return pa.table({"ts": time, "msg": ["x"]})
