"""Whatever columns a user gave the topic, records of senders that cannot react to errors are all kept."""

from __future__ import annotations

import datetime as dt
import json
import logging
import socket
import time

import httpx
import pyarrow as pa
import pytest
from effort import share_of
from ports import free_port
from served import served
from waiting import until

import aggregator
from aggregator.client import LogHandler
from aggregator.collect import Collector, Files
from aggregator.collect import Settings as Collecting
from aggregator.collect.sinks import CatalogSink
from aggregator.server import Settings

STAMP = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
KINDS = [
    (pa.int64(), 5), (pa.uint8(), 5), (pa.float64(), 1.5), (pa.float32(), 1.5), (pa.bool_(), True),
    (pa.timestamp("us", "UTC"), STAMP), (pa.date32(), STAMP.date()), (pa.duration("s"), dt.timedelta(seconds=1)),
    (pa.list_(pa.int64()), [1]), (pa.struct([("a", pa.int64())]), {"a": 1}),
    (pa.map_(pa.string(), pa.int64()), {"a": 1}),
    (pa.dictionary(pa.int32(), pa.string()), "odd"), (pa.decimal128(5, 2), 1), (pa.binary(2), b"ab"),
    (pa.string(), "odd"),
]  # fmt: skip
NAMES = ("pid", "severity", "level", "status", "scope", "order", "tags", "msg", "ts", "specversion", "source", "host")
RECORD = "ts", "msg"  # names of a record's own columns


def from_syslog(port):
    for text in (b'<13>1 - h shop 4711 ID1 [x@1 status="odd"] syslog 0', b"<14>Mar  1 10:00:00 h shop[12]: syslog 1"):
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            sender.sendto(text, ("127.0.0.1", port))
    with socket.create_connection(("127.0.0.1", port)) as sender:
        sender.sendall(b"<13>no form at all: syslog 2\n")
    return ["syslog 0", "syslog 1", "no form at all: syslog 2"]


def from_otlp(web):
    attributes = [
        {"key": name, "value": value} for name in NAMES
        for value in ({"stringValue": "odd"},)
    ] + [{"key": "order", "value": {"intValue": "5"}}]  # fmt: skip
    records = [
        {"body": {"stringValue": "otlp 0"}, "severityText": "odd", "attributes": attributes},
        {"body": {"stringValue": "otlp 1"}, "attributes": [{"key": "pid", "value": {"doubleValue": 0.1}}]},
        {"body": {"stringValue": "otlp 2"}, "attributes": [{"key": "pid", "value": {"boolValue": True}}]},
    ]
    found = {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "lib"}, "logRecords": records}]}]}
    answer = web.post("/v1/logs", json=found)
    assert (answer.status_code, answer.json()) == (200, {})
    return ["otlp 0", "otlp 1", "otlp 2"]


def from_loki(web):
    values = [["1000", "loki 0", dict.fromkeys(NAMES, "odd")], ["2000", "loki 1", {"pid": "5", "order": "x"}]]
    answer = web.post("/loki/api/v1/push", json={"streams": [{"stream": {"app": "loki"}, "values": values}]})
    assert answer.status_code == 204, answer.text
    return ["loki 0", "loki 1"]


def from_bulk(web):
    documents = [dict.fromkeys(NAMES, value) for value in ("odd", 7, 1.25, True, [1, "x"], {"a": "x"}, 2**70)]
    lines = [
        line
        for n, each in enumerate(documents)
        for line in ({"index": {"_index": "i"}}, {**each, "message": f"bulk {n}"})
    ]
    answer = web.post("/_bulk", content="".join(json.dumps(line) + "\n" for line in lines)).json()
    assert [item["index"]["status"] for item in answer["items"]] == [201] * len(documents)
    return [f"bulk {n}" for n in range(len(documents))]


def from_json_lines(web):
    records = [{"msg": f"json {n}", **{name: value for name in NAMES if name not in RECORD}}
               for n, value in enumerate(("odd", 7, 1.25, True, [1, "x"], {"a": "x"}))]  # fmt: skip
    body = "".join(json.dumps(record) + "\n" for record in records)
    headers = {"content-type": "application/x-ndjson"}
    answer = web.post("/v1/streams", params={"tags": "{app=json}"}, content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return [record["msg"] for record in records]


def from_collector(catalog, root):
    (root / "logs").mkdir()
    (root / "logs" / "a.log").write_text('{"msg": "collected", "status": "odd", "pid": 5, "level": "info"}\n')
    files = Files(path=(str(root / "logs" / "*.log"),), format="json", file_tag="",
                  fields=("msg", "pid", "level"), columns={"status": "integer"})  # fmt: skip
    sink = CatalogSink(catalog, "logs", "0", time.sleep)
    Collector(Collecting("unused", (files,)), sink, root / "notes.json", lambda: 1_000_000).run(time.sleep, once=True)
    return [(root / "logs" / "a.log").read_text().strip()]


def from_log_handler(url):
    handler = LogHandler(url, {"app": "python"})
    logger = logging.Logger("any")
    logger.addHandler(handler)
    logger.warning("handled 0", extra={"pid": "odd", "status": 5})
    logger.warning("handled 1", extra={"pid": 1.5, "tags": True})
    handler.close()
    assert handler.dropped == 0
    return ["handled 0", "handled 1"]


def from_cloud_events(web):
    events = [{"specversion": "1.0", "id": str(n), "source": "/s", "type": "t", "data": f"event {n}", "pid": value,
               "datacontenttype": "text/plain"} for n, value in enumerate(("odd", 5, True))]  # fmt: skip
    headers = {"content-type": "application/cloudevents-batch+json"}
    answer = web.post("/v1/cloudevents?topic=logs", content=json.dumps(events), headers=headers)
    assert answer.status_code == 200, answer.text
    return [f"event {n}" for n in range(3)]


def send_all(server, web, port, root):
    """Send one kind after the other, so that each meets the columns of those before. Returns the messages."""
    sent = from_syslog(port) + from_otlp(web) + from_loki(web) + from_bulk(web) + from_json_lines(web)
    return sent + from_collector(server.catalog, root) + from_log_handler(server.url) + from_cloud_events(web)


def as_text(data):
    return data.decode() if isinstance(data, bytes) else data


def all_of(catalog, count):
    """The messages of all records, once there are this many."""
    until(lambda: catalog.topic("logs").scan().count() >= count)
    return [as_text(event.data) for event in catalog.topic("logs").scan()]


def check_reads(server, web, sent, before):
    """Check that scans, LQL and HTTP return every record, unsealed and sealed, with its fields by name."""
    for _ in range(2):
        assert sorted(filter(None, all_of(server.catalog, len(sent) + before))) == sorted(sent)
        rows = [json.loads(line) for line in web.get("/v1/topics/logs/events").text.splitlines()]
        assert len(rows) == len(sent) + before
        for app, messages in (("shop", ["syslog 0", "syslog 1"]), ("json", [f"json {n}" for n in range(6)])):
            lines = server.catalog.query(f"SELECT FROM app = {app}").lines()
            assert sorted(lines) == messages
        server.catalog.seal("logs")


@pytest.fixture
def running(tmp_path):
    port = free_port()
    settings = Settings(syslog=f"127.0.0.1:{port}")
    with (
        served(tmp_path / "data", settings) as server,
        httpx.Client(base_url=server.url, timeout=120) as web,
    ):
        yield server, web, port


FEW = [KINDS[place] for place in (0, 2, 5, 9, 14)]


@pytest.mark.parametrize(
    ("kind", "value"), share_of(FEW, 2), ids=lambda each: str(each) if isinstance(each, pa.DataType) else ""
)
def test_columns_of_any_type(running, tmp_path, kind, value):
    """With columns of any one type named like fields of records, nothing is lost, and fields are found by name."""
    server, web, port = running
    table = {"space": ["{app=first}"], "timestamp": [1], **{name: pa.array([value], kind) for name in NAMES}}
    server.catalog.create_topic("logs").append(pa.table(table))
    sent = send_all(server, web, port, tmp_path)
    check_reads(server, web, sent, 1)
    wanted = {"pid": ("4711", "syslog 0"), "severity": ("notice", "syslog 0"), "level": ("warn", "handled 0")}
    for name, (text, message) in wanted.items():
        rows = server.catalog.query(f'SELECT "{{msg}} {{vars:{name}}}" WHERE fields:{name} = "{text}"')
        assert f"{message} {text}" in list(rows.lines())
    counted = server.catalog.query("SELECT COUNT FROM app = shop GROUP BY fields:pid").to_pydict()
    assert counted == {"fields:pid": ["12", "4711"], "count": [1, 1]}


@pytest.mark.parametrize(("kind", "value"), KINDS, ids=lambda each: str(each) if isinstance(each, pa.DataType) else "")
def test_values_beside_a_column(tmp_path, kind, value):
    """A value is in the column if the column can represent it exactly, otherwise it is text in the map."""
    values = ["odd", 7, 1.25, 0.1, True, [1, "x"], {"a": "x"}, 2**70, b"ab", STAMP, STAMP.date(), None, value]
    with aggregator.open(tmp_path) as catalog:
        catalog.create_topic("logs").append(pa.table({"space": ["s"], "timestamp": [1], "v": pa.array([value], kind)}))
        catalog.write({"app": "a"}, [{"ts": place, "v": each} for place, each in enumerate(values)])
        schema = catalog.topic("logs").scan().schema
        rows = [
            (e.columns["v"], dict(e.columns.get("fields") or ())) for e in catalog.topic("logs").scan(space="{app=a}")
        ]
    assert schema.field("v").type == (pa.string() if pa.types.is_dictionary(kind) else kind)
    for given, (stored, rest) in zip(values, rows, strict=True):
        assert ("v" in rest) == (stored is None and given is not None)
        if not pa.types.is_string(schema.field("v").type) and stored is not None:
            moment = isinstance(given, dt.datetime) and pa.types.is_date(kind)
            given = given.date() if moment else given
            assert stored == (list(given.items()) if pa.types.is_map(kind) else given)
            assert (type(stored) is bool) == (type(given) is bool)


@pytest.mark.parametrize(("name", "kind", "value"), [
    ("data", *KINDS[0]), ("fields", *KINDS[0]), ("fields", *KINDS[10]), ("fields", *KINDS[14]),
], ids=str)  # fmt: skip
def test_own_columns_of_any_type(running, tmp_path, name, kind, value):
    """Columns may have the names of the aggregator's own record columns and other types."""
    server, web, port = running
    table = {"space": ["{app=first}"], "timestamp": [1], name: pa.array([value], kind)}
    server.catalog.create_topic("logs").append(pa.table(table))
    sent = send_all(server, web, port, tmp_path)
    found = all_of(server.catalog, len(sent) + 1)
    assert sorted(each for each in found if each in sent) == sorted(sent)
    assert len(found) == len(sent) + 1
    assert sorted(server.catalog.query("SELECT FROM app = shop").lines()) == ["syslog 0", "syslog 1"]


def test_columns_that_must_not_be_null(running, tmp_path):
    """Columns that records lack, wholly or in part, may be declared not null."""
    server, web, port = running
    fields = [pa.field(name, pa.string(), nullable=False) for name in NAMES]
    whole = pa.map_(pa.string(), pa.string())
    schema = pa.schema(
        [pa.field("data", pa.binary(), nullable=False), pa.field("fields", whole, nullable=False), *fields]
    )
    server.catalog.create_topic("logs", schema)
    sent = send_all(server, web, port, tmp_path)
    check_reads(server, web, sent, 0)


def test_a_repeated_batch_after_a_column_came(tmp_path):
    """A repeated batch is recognised even if its fields have a column since."""
    records = [{"ts": 1, "msg": "a", "pid": 5}, {"ts": 2, "msg": "b", "pid": "x"}]
    with aggregator.open(tmp_path) as catalog:
        first = catalog.write({"app": "a"}, records, producer="p", sequence=1)
        for value in (1, 1.5, "y"):
            catalog.topic("logs").append(pa.table({"space": ["s"], "timestamp": [1], "pid": [value]}))
            again = catalog.write({"app": "a"}, iter(records), producer="p", sequence=1)
            assert (again.duplicate, again.first) == (True, first.first)
        with pytest.raises(aggregator.SequenceConflictError):
            catalog.write({"app": "a"}, [{**records[0], "pid": 6}, records[1]], producer="p", sequence=1)
