"""A server that follows a store next to the writer and takes over from it."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from effort import share_of
from ports import free_port
from served import ANY_PORT, Spawned
from shipped_catalogs import events, numbers
from waiting import PATIENCE_S, until

import aggregator
from aggregator.client import Client, Retry
from aggregator.server import running
from aggregator.server.config.sources import settings_of
from aggregator.server.running import listen
from aggregator.storage.store.client import Store
from aggregator.storage.store.lease import read_lease

if TYPE_CHECKING:
    from benchmarks.s3_endpoint import S3Endpoint

LEASE_S = 4.0  # a busy machine may renew it a second or two late
ONCE = Retry(attempts=1)


def spawned(root: Path, address: str, *flags: str) -> Spawned:
    """A server process with this directory and store."""
    options = ["--store", address, "--durability", "store", "--set", f"catalog.lease={LEASE_S:g}s"]
    return Spawned(root, *options, *flags)


def stored(client: Client) -> list[int]:
    """The topic's events as a server returns them."""
    return sorted(int(payload) for payload in client.topic("t").scan().to_table()["payload"].to_pylist())


def takes(client: Client) -> bool:
    """Whether a server accepts a batch, which is stored once however often it is sent."""
    try:
        client.topic("t").append(events(20), producer="p", sequence=1)
    except (aggregator.AggregatorError, OSError):
        return False
    return True


@pytest.mark.parametrize("how", share_of([signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM], 3))
def test_a_standby_takes_over(tmp_path: Path, how: signal.Signals):
    """When the writer is gone, the standby takes over with everything acknowledged. A paused writer changes nothing."""
    address = (tmp_path / "store").as_uri()
    with spawned(tmp_path / "a", address) as first, spawned(tmp_path / "b", address, "--standby") as second:
        with Client(first.url) as writer:
            writer.create_topic("t")
            writer.topic("t").append(events(0))
        with Client(second.url, retry=ONCE) as standby:
            assert stored(standby) == list(range(10))
            assert not takes(standby)
            with Client(first.url) as writer:
                writer.topic("t").append(events(10))
            assert stored(standby) == list(range(20))
            began = time.monotonic()
            if how == signal.SIGSTOP:
                first.process.send_signal(how)
            else:
                first.stop(how)
            until(lambda: takes(standby))
            print(f"took over {time.monotonic() - began:.1f} s after {how.name}")
            assert stored(standby) == list(range(30))
            if how == signal.SIGSTOP:
                first.process.send_signal(signal.SIGCONT)
                with Client(first.url, retry=ONCE) as old, pytest.raises(aggregator.AggregatorError, match="taken"):
                    old.topic("t").append(events(100))
                assert stored(standby) == list(range(30))
        second.stop()
    with aggregator.open(tmp_path / "b", durability="store") as catalog:
        assert numbers(catalog) == list(range(30))


SHIPPED = {
    "/v1/logs": {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "text"}}]}]}]},
    "/loki/api/v1/push": {"streams": [{"stream": {"app": "a"}, "values": [["1", "text"]]}]},
    "/v1/streams?tags=app%3Da": [{"msg": "text"}],
}


def test_shippers_keep_what_a_standby_does_not_take(tmp_path: Path):
    """A standby refuses syslog connections and tells shippers to retry until it has taken over."""
    address, port = (tmp_path / "store").as_uri(), free_port()

    def sent() -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port)) as sender:
                sender.sendall(b"<13>1 - h a - - - text\n")
        except ConnectionRefusedError:
            return False
        return True

    with (
        spawned(tmp_path / "a", address) as first,
        spawned(tmp_path / "b", address, "--standby", "--syslog", f"127.0.0.1:{port}") as second,
    ):
        with Client(second.url) as client:
            assert client.query("SELECT COUNT FROM app = a").to_pylist() == [{"count": 0}]
            assert not sent()
            bulk = httpx.post(f"{second.url}/_bulk", content='{"create": {"_index": "a"}}\n{"message": "text"}\n')
            for answer in (bulk, *(httpx.post(f"{second.url}{path}", json=body) for path, body in SHIPPED.items())):
                assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            first.stop()
            until(sent)
            until(lambda: client.query("SELECT COUNT FROM app = a").to_pylist() == [{"count": 1}])
        second.stop()


def test_a_standby_that_is_told_to_stop_as_it_may_take_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A standby that is stopped just as it may take over leaves the catalog to others."""
    address = (tmp_path / "store").as_uri()
    with aggregator.open(tmp_path / "a", store=address) as catalog:
        catalog.create_topic("t")

    def run(self: running._Server, sockets: list[socket.socket]) -> None:
        until(lambda: self.should_exit)  # because the lease is free
        self.handle_exit(signal.SIGTERM, None)

    monkeypatch.setattr(running._Server, "run", run)
    settings = settings_of({"catalog.store": address, "catalog.standby": "true"})
    assert not running._follow(tmp_path / "b", settings, [])
    seen = read_lease(Store(address))
    assert seen is not None
    assert (seen.terms.epoch, seen.terms.released) == (1, True)


def failing(s3: S3Endpoint, told: Callable[[], list[str]]) -> None:
    """Let the store refuse everything until a new message is logged."""
    before, ending = len(told()), time.monotonic() + PATIENCE_S
    s3.refuse = lambda method, path, query: 503 if len(told()) == before and time.monotonic() < ending else None


def test_a_server_stops_while_its_store_is_of_no_use(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """When a server stops with a failing store, waiting requests are answered within their time limit."""
    told: list[Exception] = []
    with spawned(tmp_path / "a", f"s3://{bucket}/c", "--set", "http.drain=10s") as server:  # 3 for answers
        with Client(server.url) as client:
            client.create_topic("t")

        def send() -> None:
            with Client(server.url, retry=ONCE) as client:
                try:
                    client.topic("t").append(events(0))
                except (aggregator.AggregatorError, OSError) as error:
                    told.append(error)

        waits = threading.Event()

        def refuse(method: str, path: str, query: str) -> int:
            if "/log/" in path:
                waits.set()
            return 403

        s3.refuse = refuse
        thread = threading.Thread(target=send)
        thread.start()
        assert waits.wait(PATIENCE_S)
        assert server.stop() == 0
        thread.join()
    assert "the log cannot be written" in str(told[0])
    assert not [each for each in server.told if "Exception" in each["message"]]


def test_a_store_that_fails_as_a_standby_begins(
    tmp_path: Path, s3: S3Endpoint, bucket: str, caplog: pytest.LogCaptureFixture
):
    """If the store fails, a standby reports it and waits, before following and when opening after a takeover."""
    address = f"s3://{bucket}/c"
    with aggregator.open(tmp_path / "a", store=address, lease="1s") as catalog:
        catalog.create_topic("t").append(events(0))
    given = {"catalog.store": address, "catalog.standby": "true", "catalog.lease": "1s", "http.bind": ANY_PORT}
    settings = settings_of(given)

    def follow() -> bool:
        with listen(ANY_PORT) as listener:
            return running._follow(tmp_path / "b", settings, [listener])

    def told() -> list[str]:
        return [each.message for each in caplog.records if "waits for its store" in each.message]

    for number in (0, 1):
        failing(s3, told)
        assert follow()
        failing(s3, told)
        with running._opened(tmp_path / "b", settings) as catalog:
            assert numbers(catalog) == list(range(10)), number
    assert len(told()) >= 4
    assert all("the store does not answer" in each for each in told())


@pytest.mark.parametrize("status", [403, 404])
def test_a_standby_of_nothing(tmp_path: Path, s3: S3Endpoint, bucket: str, status: int):
    """Missing rights or a missing catalog end a standby immediately, because waiting would not help."""
    s3.refuse = lambda method, path, query: status
    settings = settings_of({"catalog.store": f"s3://{bucket}/c", "catalog.standby": "true"})
    with pytest.raises(aggregator.AggregatorError, match="refuses" if status == 403 else "no catalog found"):
        running._follow(tmp_path / "b", settings, [])
