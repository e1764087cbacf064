"""Rates of log shippers over loopback, with client and server on the same machine: python -m benchmarks.shippers

The server is `aggregator serve` in a separate process; acknowledged records are durable. Two connections send batches
of 1,000 records that were prepared in advance; syslog uses one TCP connection. Records are log lines of about 100
bytes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

BATCH = 1_000
TIME_NS = 1_772_352_000_000_000_000
MESSAGE = "GET /products/{n}?page=3 200 1543 1.23ms Mozilla/5.0 (X11; Linux x86_64) session=5f2c9a7e{n:08d}"


def lines_of_text() -> bytes:
    return "".join(MESSAGE.format(n=n) + "\n" for n in range(BATCH)).encode()


def json_lines() -> bytes:
    records = ({"ts": TIME_NS // 1000 + n, "msg": MESSAGE.format(n=n), "status": 200} for n in range(BATCH))
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def bulk() -> bytes:
    action = json.dumps({"index": {"_index": "nginx"}})
    times = (f"2026-03-01T08:00:{n % 60:02d}.{n:03d}Z" for n in range(BATCH))
    documents = (
        {"@timestamp": time_, "message": MESSAGE.format(n=n), "host": {"name": "web-1"}, "status": 200}
        for n, time_ in enumerate(times)
    )
    return "".join(f"{action}\n{json.dumps(document)}\n" for document in documents).encode()


def otlp() -> bytes:
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    attribute = resource.resource.attributes.add()
    attribute.key, attribute.value.string_value = "service.name", "nginx"
    records = resource.scope_logs.add().log_records
    for n in range(BATCH):
        record = records.add()
        record.time_unix_nano, record.severity_number = TIME_NS + n * 1000, 9
        record.body.string_value = MESSAGE.format(n=n)
        attribute = record.attributes.add()
        attribute.key, attribute.value.int_value = "http.status_code", 200
    return request.SerializeToString()


WORKS: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "OTLP, protobuf": ("/v1/logs", "application/x-protobuf", otlp),
    "Elasticsearch _bulk": ("/_bulk", "application/x-ndjson", bulk),
    "records as JSON lines": ("/v1/streams?tags=app%3Dnginx", "application/x-ndjson", json_lines),
    "lines of text": ("/v1/lines?tags=app%3Dnginx", "text/plain", lines_of_text),
}


@contextmanager
def server() -> Iterator[tuple[int, int]]:
    """Start a server; yield its ports for HTTP and syslog."""
    with tempfile.TemporaryDirectory() as folder:
        with socket.create_server(("127.0.0.1", 0)) as web, socket.create_server(("127.0.0.1", 0)) as syslog:
            ports = web.getsockname()[1], syslog.getsockname()[1]
        command = [sys.executable, "-m", "aggregator", "serve", f"{folder}/data", "--bind", f"127.0.0.1:{ports[0]}"]
        process = subprocess.Popen([*command, "--syslog", f"127.0.0.1:{ports[1]}"], stderr=subprocess.DEVNULL)
        try:
            for _ in range(600):
                try:
                    socket.create_connection(("127.0.0.1", ports[1])).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield ports
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def send(port: int, path: str, media: str, body: bytes, seconds: float) -> tuple[int, list[float], int]:
    """Send over two connections; return the number of acknowledged batches, their sorted latencies, and refusals."""
    end = time.perf_counter() + seconds
    waits: list[float] = []
    refused = 0

    def run() -> None:
        nonlocal refused
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while (begun := time.perf_counter()) < end:
            connection.request("POST", path, body, {"content-type": media})
            answer = connection.getresponse()
            content = answer.read()
            if answer.status == 429:
                refused += 1
                time.sleep(0.05)
                continue
            assert answer.status == 200, content
            waits.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(waits), sorted(waits), refused


def send_syslog(port: int, web: int, seconds: float) -> int:
    """Send over one TCP connection as fast as possible; return the number of messages when all of them are stored."""
    form = "<13>1 2026-03-01T08:00:00.{n:06d}Z web-1 nginx 7 - - " + MESSAGE + "\n"
    batch = "".join(form.format(n=n) for n in range(BATCH)).encode()
    end = time.perf_counter() + seconds
    sent = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while time.perf_counter() < end:
            connection.sendall(batch)
            sent += BATCH
    while stored(web) < sent:
        time.sleep(0.01)
    return sent


def stored(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/v1/topics/logs")
    found = json.loads(connection.getresponse().read())
    return int(found.get("rows", 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each work")
    seconds = parser.parse_args().seconds
    print("| sent as | records/s | one batch, p50 / p99 ms |\n|---|---|---|")
    for name, (path, media, make) in WORKS.items():
        with server() as (web, _):
            body = make()
            send(web, path, media, body, 0.5)
            begun = time.perf_counter()
            count, waits, refused = send(web, path, media, body, seconds)
            rate = count * BATCH / (time.perf_counter() - begun)
            p50, p99 = (waits[int(len(waits) * share)] * 1000 for share in (0.5, 0.99))
            print(f"| {name} | {rate:,.0f} | {p50:.1f} / {p99:.1f} |" + (f" {refused} refused" if refused else ""))
    with server() as (web, syslog):
        begun = time.perf_counter()
        sent = send_syslog(syslog, web, seconds)
        print(f"| syslog, RFC 5424 over TCP | {sent / (time.perf_counter() - begun):,.0f} | – |")


if __name__ == "__main__":
    main()
