"""One query finds the errors of all senders."""

from __future__ import annotations

import json
import logging
import socket
import time

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from ports import free_port
from served import served

from aggregator.client import LogHandler
from aggregator.collect import Collector, Files
from aggregator.collect import Settings as Collecting
from aggregator.collect.sinks import CatalogSink
from aggregator.server import Settings
from aggregator.streams.level import LEVELS

QUESTION = 'SELECT "{msg}" WHERE fields:level = error OR fields:level = fatal'


@pytest.fixture
def running(tmp_path):
    port = free_port()
    with (
        served(tmp_path / "data", Settings(syslog=f"127.0.0.1:{port}")) as server,
        httpx.Client(base_url=server.url, timeout=120) as web,
    ):
        yield server, web, port


def send_syslog(port):
    for text in (b"<11>Mar  1 10:00:00 h a: bad syslog", b"<14>Mar  1 10:00:00 h a: good syslog",
                 b"<8>1 - h a - - - bad new syslog"):  # fmt: skip
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            sender.sendto(text, ("127.0.0.1", port))


def send_otlp(web):
    kinds = ({"severityNumber": 17}, {"severityText": "ERROR"}, {"severityNumber": 9}, {"severityText": "INFO"},
             {"attributes": [{"key": "level", "value": {"stringValue": "ERR"}}]})  # fmt: skip
    words = ("bad number", "bad text", "good number", "good text", "bad attribute")
    records = [{"body": {"stringValue": word}, **kind} for word, kind in zip(words, kinds, strict=True)]
    assert web.post("/v1/logs", json={"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).status_code == 200
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.severity_number, record.body.string_value = 21, "bad protobuf"
    headers = {"content-type": "application/x-protobuf"}
    assert web.post("/v1/logs", content=request.SerializeToString(), headers=headers).status_code == 200


def send_bulk(web):
    documents = [
        {"message": "bad ecs", "log": {"level": "error"}}, {"message": "good ecs", "log": {"level": "info"}},
        {"message": "bad journald", "PRIORITY": "3"}, {"message": "good journald", "PRIORITY": "6"},
        {"message": "bad pino", "level": 50}, {"message": "good pino", "level": 30},
        {"message": "bad gelf", "level": 3}, {"log": '{"level":"error","text":"bad docker"}\n'},
        {"log": 'level=info text="good docker"'}, {"message": "E0301 10:00:00.000000 1 a.go:1] bad klog"},
        {"message": "I0301 10:00:00.000000 1 a.go:1] good klog"}, {"message": "good: no error level at all"},
    ]  # fmt: skip
    lines = [json.dumps(line) for each in documents for line in ({"index": {"_index": "i"}}, each)]
    assert not web.post("/_bulk", content="\n".join(lines) + "\n").json()["errors"]


def send_lines(web):
    records = [{"msg": "bad own", "lvl": "ERROR"}, {"msg": "good own", "severity": "info"}, {"msg": "good: none"},
               {"msg": "good: a game", "level": 3}, {"msg": '{"level": "error"}, which is good here'}]  # fmt: skip
    body = "".join(json.dumps(record) + "\n" for record in records)
    headers = {"content-type": "application/x-ndjson"}
    assert web.post("/v1/streams?tags=app%3Down", content=body, headers=headers).status_code == 200


def collect(catalog, root):
    texts = {
        "json": '{"level":"error","text":"bad json"}\n{"level":"info","text":"good json"}\n',
        "logfmt": 'level=error text="bad logfmt"\nlevel=info text="good logfmt"\n',
        "docker": '{"log":"{\\"level\\":\\"error\\",\\"text\\":\\"bad docker\\"}\\n","stream":"stdout",'
        '"time":"2026-03-01T10:00:00Z"}\n',
        "text": "E0301 10:00:00.000000 1 a.go:1] bad glog\nI0301 10:00:00.000000 1 a.go:1] good glog\n",
        "regex": "ERROR bad regex\nINFO good regex\n",
    }
    files = []
    for kind, text in texts.items():
        (root / f"{kind}.log").write_text(text)
        pattern = r"(?P<level>[A-Z]+) (?P<msg>.*)" if kind == "regex" else None
        files.append(
            Files(
                path=(str(root / f"{kind}.log"),), name=kind, format={"docker": "json"}.get(kind, kind), pattern=pattern
            )
        )
    sink = CatalogSink(catalog, "logs", "0", time.sleep)
    Collector(Collecting("unused", tuple(files)), sink, root / "notes.json", lambda: 1_000_000).run(
        time.sleep, once=True
    )


def push_loki(web):
    streams = [
        {"stream": {"app": "l", "level": "error"}, "values": [["1700000000000000000", "bad loki label"]]},
        {"stream": {"app": "l"}, "values": [["1700000000000000000", "bad loki field", {"detected_level": "critical"}],
                                            ["1700000000000000001", "good loki", {"detected_level": "info"}]]},
    ]  # fmt: skip
    assert web.post("/loki/api/v1/push", json={"streams": streams}).status_code == 204


def log(url):
    handler = LogHandler(url, {"app": "python"})
    logger = logging.Logger("any")
    logger.addHandler(handler)
    logger.error("bad python")
    logger.critical("bad critical python")
    logger.warning("good python")
    handler.close()


def test_one_question_finds_all_errors(running, tmp_path):
    """One query finds all errors of all senders, in whatever form they wrote them, and nothing else."""
    server, web, port = running
    send_syslog(port)
    send_otlp(web)
    send_bulk(web)
    send_lines(web)
    collect(server.catalog, tmp_path)
    push_loki(web)
    log(server.url)
    topic = server.catalog.topic("logs")
    for _ in range(500):
        messages = [event.data.decode() for event in topic.scan()]
        if sum("syslog" in message for message in messages) == 3:
            break
        time.sleep(0.01)
    found = list(server.catalog.query(QUESTION).lines())
    assert sorted(found) == sorted(message for message in messages if "bad" in message)
    assert len(found) == 22
    levels = {dict(event.columns["fields"] or ()).get("level") for event in topic.scan()}
    assert levels - {None, "3"} <= set(LEVELS)


def test_what_the_sender_said_stays(running):
    """The sender's own word is stored unchanged next to the level."""
    server, web, _ = running
    body = '{"msg": "a", "level": "WARNING"}\n{"msg": "b", "lvl": "WARNING"}\n{"msg": "c", "level": "boss"}\n'
    headers = {"content-type": "application/x-ndjson"}
    assert web.post("/v1/streams?tags=app%3Down", content=body, headers=headers).status_code == 200
    fields = [dict(event.columns["fields"]) for event in server.catalog.topic("logs").scan()]
    assert fields == [
        {"level": "warn", "level_text": "WARNING"},
        {"lvl": "WARNING", "level": "warn"},
        {"level": "boss"},
    ]
