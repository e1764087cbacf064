"""Pages that browsers may send requests from, preflights, methods of a path, and clients behind a proxy."""

from __future__ import annotations

import email
import socket
import time
from ipaddress import ip_network

import httpx
import pytest
from served import served

from aggregator import InvalidRequestError
from aggregator.server import Settings
from aggregator.server.config.settings import Http
from aggregator.server.config.sources import settings_of
from aggregator.server.control import waiting_room
from aggregator.server.http.origins import client_of, is_same_origin

PAGE = "https://grafana.example.org"
TRUSTED = tuple(ip_network(text) for text in ("10.0.0.0/8", "127.0.0.1", "2001:db8::/32"))


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    settings = Settings(http=Http(cors_origins=(PAGE,), trusted_proxies=TRUSTED))
    with (
        served(tmp_path_factory.mktemp("browsers") / "data", settings) as server,
        httpx.Client(base_url=server.url, timeout=120) as client,
    ):
        server.catalog.create_topic("t")
        yield client


# ------------------------------------------------------------ other origins


def test_a_page_that_may_ask(web):
    """Answers to an allowed page, refusals too, say that it may read them, and which headers."""
    for path, status in (("/v1/topics", 200), ("/v1/topics/nobody", 404), ("/v1/nothing", 404)):
        answer = web.get(path, headers={"origin": PAGE})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "Aggregator-Position" in answer.headers["access-control-expose-headers"]
        assert "Origin" in answer.headers["vary"]
    assert "Origin" in web.get("/v1/topics").headers["vary"]
    large = web.post("/v1/topics/t/events", content=b"x" * 21_000_000, headers={"origin": PAGE})
    assert (large.status_code, large.headers["access-control-allow-origin"]) == (413, PAGE)


EARLY = {
    429: b"POST /v1/topics/t/events HTTP/1.1\r\nHost: a\r\nOrigin: %b\r\nContent-Length: 0\r\n\r\n",
    501: b"POST /v1/topics/t/events HTTP/1.1\r\nHost: a\r\nOrigin: %b\r\nTransfer-Encoding: gzip\r\n\r\n",
    431: b"GET / HTTP/1.1\r\nHost: a\r\nOrigin: %b\r\nMuch: " + b"x" * 70_000,
    400: b"GET / HTTP/1.1\r\nHost: a\r\nOrigin: %b\r\nAccept: a\r\nNo header\r\n\r\n",
}
"""Requests that are answered before they reach the application."""


@pytest.mark.parametrize("status", EARLY)
@pytest.mark.parametrize(("origin", "origin_allowed"), [(PAGE, True), ("https://example.org", False)])
def test_refused_before_the_application(tmp_path, monkeypatch, status, origin, origin_allowed):
    """An allowed page can also read refusals made before routing; without CORS it would see no reason."""
    with served(tmp_path, Settings(http=Http(cors_origins=(PAGE,)))) as server:
        server.context.know_append("/v1/topics/t/events", "/v1/topics/{topic}/events")
        server.context.appends._counts.busy = server.context.appends.capacity
        monkeypatch.setattr(waiting_room, "PLACES", 0)
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=120) as made:
            made.sendall(EARLY[status] % origin.encode())
            with made.makefile("rb") as reader:
                first = reader.readline()
                headers = email.message_from_bytes(b"".join(iter(reader.readline, b"\r\n")))
    assert first.startswith(b"HTTP/1.1 %d " % status)
    assert headers["access-control-allow-origin"] == (PAGE if origin_allowed else None)
    assert headers["vary"] == "Origin"


def test_what_a_browser_asks_before(web):
    """A preflight needs no token and lists methods and the requested headers."""
    asked = {"origin": PAGE, "access-control-request-method": "POST",
             "access-control-request-headers": "authorization,content-type"}  # fmt: skip
    answer = web.options("/v1/topics/t/events", headers=asked)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, OPTIONS, POST"
    assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
    odd = web.options("/v1/topics/t/events", headers=asked | {"access-control-request-headers": "a b"})
    assert "access-control-allow-headers" not in odd.headers
    assert web.options("/v1/topics/t/events", headers=asked | {"origin": PAGE + ".evil.org"}).status_code == 403


def test_other_pages(web):
    """Other pages are refused without permission to read the answer."""
    for origin in ("https://example.org", "http://grafana.example.org", PAGE + ":8443", "null"):
        answer = web.get("/v1/topics", headers={"origin": origin})
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)


def test_any_page(tmp_path):
    """`*` allows any origin."""
    with served(tmp_path, Settings(http=Http(cors_origins=("*",)))) as server:
        answer = httpx.get(f"{server.url}/v1/topics", headers={"origin": "https://example.org"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://example.org")


# ------------------------------------------------------------ behind a proxy

ORIGINS = [
    ("http://h:3030", ["h:3030"], True), ("https://h", ["h"], True), ("https://h", ["h:443"], True),
    ("http://h:80", ["h"], True), ("https://H.example", ["h.EXAMPLE"], True), ("https://h:80", ["h"], False),
    ("https://h", ["127.0.0.1:3030", "h"], True), ("https://h.evil", ["h"], False), ("null", ["null"], False),
    ("https://h", [], False), ("", [""], False), ("http://[::1]:3030", ["[::1]:3030"], True),
]  # fmt: skip


@pytest.mark.parametrize(("origin", "hosts", "same"), ORIGINS)
def test_the_same_origin(origin, hosts, same):
    """An origin is the same if it names one of the server's hosts; the scheme's default port may be omitted."""
    assert is_same_origin(origin, hosts) is same


ASKERS = [
    ("192.0.2.1", {b"x-forwarded-for": b"198.51.100.7", b"x-forwarded-host": b"x"}, "192.0.2.1", ("h",)),
    ("10.0.0.1", {b"x-forwarded-for": b"198.51.100.7", b"x-forwarded-host": b"Logs.example"}, "198.51.100.7",
     ("h", "logs.example")),
    ("10.0.0.1", {b"x-forwarded-for": b"1.2.3.4, 198.51.100.7, 10.9.9.9"}, "198.51.100.7", ("h",)),
    ("10.0.0.1", {b"x-forwarded-for": b"10.1.1.1,10.2.2.2"}, "10.1.1.1", ("h",)),
    ("10.0.0.1", {b"x-forwarded-for": b"nonsense, 10.2.2.2"}, "10.2.2.2", ("h",)),
    ("10.0.0.1", {b"x-forwarded-for": b"198.51.100.7:4711"}, "198.51.100.7", ("h",)),
    ("::ffff:10.0.0.1", {b"x-forwarded-for": b"198.51.100.7"}, "198.51.100.7", ("h",)),
    ("10.0.0.1", {b"forwarded": b'For="[2001:db8:cafe::17]:4711";host="a.example";proto=https'}, "2001:db8:cafe::17",
     ("h", "a.example")),
    ("10.0.0.1", {b"forwarded": b'for=192.0.2.43, for=198.51.100.17;by=203.0.113.60'}, "198.51.100.17", ("h",)),
    ("10.0.0.1", {b"forwarded": b"for=unknown"}, "10.0.0.1", ("h",)),
    ("10.0.0.1", {b"forwarded": b"for=_hidden;host"}, "10.0.0.1", ("h",)),
    ("", {b"x-forwarded-for": b"198.51.100.7"}, "", ("h",)),
]  # fmt: skip


@pytest.mark.parametrize(("peer", "headers", "address", "hosts"), ASKERS)
def test_who_asks(peer, headers, address, hosts):
    """The client is the nearest address that is not a trusted proxy; headers of other senders are ignored."""
    found = client_of(peer, [(b"host", b"h"), *headers.items()], TRUSTED)
    assert (found.address, found.hosts) == (address, hosts)


def test_headers_of_proxies_that_go_on_and_on():
    """Long proxy headers of odd shape take no time."""
    began = time.thread_time()
    for value in (b"a" * 60_000, b'a="' + b"\\" * 60_000, b"a=b;" * 15_000, b"1.2.3.4," * 7_500, b"=" * 60_000):
        for name in (b"forwarded", b"x-forwarded-for", b"x-forwarded-host"):
            client_of("10.0.0.1", [(b"host", b"h"), (name, value)], TRUSTED)
    assert time.thread_time() - began < 5


def test_a_page_from_behind_the_proxy(web, tmp_path):
    """A page behind the proxy is allowed only if the proxy is trusted."""
    asked = {"origin": "https://logs.example.org", "x-forwarded-host": "logs.example.org", "x-forwarded-proto": "https"}
    assert web.get("/v1/topics", headers=asked).status_code == 200
    with served(tmp_path) as server:
        assert httpx.get(f"{server.url}/v1/topics", headers=asked).status_code == 403


def test_the_log_names_the_client(tmp_path):
    """A request's log line has the client address from the proxy."""
    told = []
    with served(tmp_path, Settings(http=Http(trusted_proxies=TRUSTED))) as server:
        server.context.listeners.append(told.append)
        httpx.get(f"{server.url}/v1/topics", headers={"x-forwarded-for": "198.51.100.7"})
        httpx.get(f"{server.url}/v1/topics")
    assert [each.client for each in told] == ["198.51.100.7", "127.0.0.1"]


def test_settings():
    """Lists are lists or comma-separated text; invalid origins and networks are refused."""
    http = settings_of({"http.cors_origins": "https://A.example/, *", "http.trusted_proxies": ["10.0.0.0/8"]}).http
    assert http.cors_origins == ("https://a.example", "*")
    assert http.trusted_proxies == TRUSTED[:1]
    for name, value in (("cors_origins", "a.example"), ("cors_origins", "https://a/b"), ("cors_origins", 5),
                        ("trusted_proxies", "10.0.0.1/8"), ("trusted_proxies", ["x"])):  # fmt: skip
        with pytest.raises(InvalidRequestError):
            settings_of({f"http.{name}": value})


# ------------------------------------------------------------ methods

METHODS = {
    "/v1/topics/t/events": "GET, HEAD, OPTIONS, POST", "/v1/topics/t": "DELETE, GET, HEAD, OPTIONS, PATCH, PUT",
    "/v1/topics": "GET, HEAD, OPTIONS", "/i/_bulk": "OPTIONS, POST, PUT", "/topic/t/records": "OPTIONS, POST",
}  # fmt: skip


@pytest.mark.parametrize("path", METHODS)
def test_methods_of_a_path(web, path):
    """OPTIONS and the refusal of a method list all methods of the path, across routes."""
    for method, status in (("OPTIONS", 204), ("TRACE", 405)):
        answer = web.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (status, METHODS[path])


def test_options_of_nothing_and_of_everything(web):
    """OPTIONS of an unknown path is 404; `*` means the server."""
    assert web.options("/v1/nothing").status_code == 404
    answer = web.send(web.build_request("OPTIONS", "/", extensions={"target": b"*"}))
    assert answer.status_code == 204
    assert "PATCH" in answer.headers["allow"]


def test_head(web):
    """HEAD is answered like GET without the body, also for streamed and refused answers."""
    for path in ("/v1/topics/t/events", "/v1/topics", "/openapi.json", "/v1/topics/nobody", "/", "/metrics"):
        got, head = web.get(path, headers={"accept-encoding": "identity"}), web.head(path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers.get("content-type") == got.headers.get("content-type")
        if path != "/metrics":
            assert head.headers.get("content-length") == got.headers.get("content-length")
