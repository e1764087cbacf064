"""Memory for request bodies: large bodies wait for each other, and all memory is returned."""

from __future__ import annotations

import gzip
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from served import served

from aggregator.server import Settings
from aggregator.server.bodies.otlp import size as otlp_size
from aggregator.server.config.settings import Work
from aggregator.server.control import body_room
from aggregator.server.control.body_room import BodyRoom


def test_no_more_at_once_than_there_is_room():
    """In a room of 100, at most three threads hold bodies of 30; all get their turn."""
    room = BodyRoom(100)
    most, together = [], threading.Barrier(3)

    def work(number):
        room.reserve(30)
        most.append(room.held_bytes)
        if number < 3:
            together.wait(120)  # three fit
        room.release()

    with ThreadPoolExecutor(3) as first:
        list(first.map(work, range(3)))
    with ThreadPoolExecutor(8) as others:
        list(others.map(work, range(3, 43)))
    assert len(most) == 43
    assert max(most) == 90
    assert room.held_bytes == 0


def test_a_body_that_is_larger_than_the_room():
    """A body larger than the room is read alone, and a thread that takes twice does not wait for itself."""
    room = BodyRoom(100)
    room.reserve(500)
    room.reserve(500)
    assert room.held_bytes == 1000
    room.release()
    room.release()
    assert room.held_bytes == 0


def test_patience(monkeypatch):
    """A body that is never returned does not block others forever."""
    monkeypatch.setattr(body_room, "PATIENCE_S", 0.05)
    room = BodyRoom(10)
    room.reserve(10)
    with ThreadPoolExecutor(1) as other:
        other.submit(room.reserve, 10).result(120)
    assert room.held_bytes == 20


def test_the_servers_room(tmp_path):
    """Bodies take room by their decompressed size and return it however they end."""
    seen = []
    line = b'{"space": "a", "timestamp": 1}\n'
    headers = {"content-type": "application/x-ndjson", "content-encoding": "gzip"}
    with served(tmp_path, Settings(work=Work(body_bytes=1_000_000))) as server:
        server.catalog.create_topic("t")
        room = server.context.body_room
        reserve = room.reserve
        room.reserve = lambda size: (reserve(size), seen.append((size, room.held_bytes)))
        statuses = [
            httpx.post(
                f"{server.url}/v1/topics/{topic}/events", content=gzip.compress(body), headers=headers
            ).status_code
            for topic, body in (("t", line * 10_000), ("t", b"nonsense"), ("t", line))
        ]
        assert statuses == [200, 400, 200]
        assert seen == [(len(line) * 10_000,) * 2, (8, 8), (len(line),) * 2]
        assert room.held_bytes == 0


def test_more_records_than_are_taken(server, monkeypatch):
    """Too many records are refused: three bytes each in the body are hundreds of times as much in memory."""
    monkeypatch.setattr(otlp_size, "MAX_RECORDS", 10)
    for count, status in ((10, 200), (11, 400)):
        message = bytes([0x0A, 2 * count + 2, 0x12, 2 * count]) + b"\x12\x00" * count
        assert len(ExportLogsServiceRequest.FromString(message).resource_logs[0].scope_logs[0].log_records) == count
        text = b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [%b]}]}]}' % b",".join([b"{}"] * count)
        for media, body in (("application/json", text), ("application/x-protobuf", message)):
            answer = httpx.post(f"{server.url}/v1/logs", content=body, headers={"content-type": media})
            assert answer.status_code == status, answer.text
