"""HTTP/1.1 features that clients use: protocol upgrades, chunks, trailers, request targets, early refusals.

The bytes are those of real clients or cases from the RFCs; Java's client and curl are used directly if installed.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import time

import httpx
import pytest
from certificates import CertificateAuthority
from effort import long
from served import served
from waiting import PATIENCE_S, until

from aggregator.server import Settings
from aggregator.server.config.settings import Http, Tls
from aggregator.server.http import connection
from tests.aggregator.server.http.test_limits import raw, until_cut
from tests.aggregator.server.plateau.test_plateau import ARROW

LINE = b'{"space": "a", "timestamp": 1}\n'
PATH = "/v1/topics/t/events"
H2C = [
    b"connection: Upgrade, HTTP2-Settings",
    b"upgrade: h2c",
    b"http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
]
WEBSOCKET = [b"connection: keep-alive, Upgrade", b"upgrade: websocket", b"sec-websocket-version: 13",
             b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="]  # fmt: skip
OFFERS = {"h2c": H2C, "websocket": WEBSOCKET, "of a proxy": [b"Connection: upgrade", b"Upgrade: TLS/1.0, HTTP/2.0"]}
CHUNKED = b"transfer-encoding: chunked"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    settings = Settings(http=Http(max_append_bytes=1_000_000, stall_s=60.0))
    with served(tmp_path_factory.mktemp("connection") / "data", settings) as it:
        it.catalog.create_topic("t")
        yield it


def head(line, *lines, media=b"application/x-ndjson"):
    return b"\r\n".join([line, b"host: x", b"content-type: " + media, *lines, b"", b""])


def sized(body):
    return b"content-length: %d" % len(body)


def answers(server, *sent, count=1, pause_s=0.0):
    """The answers to bytes sent on one connection: (status, headers, body) each."""
    with raw(server) as made:
        for piece in sent:
            made.sendall(piece)
            time.sleep(pause_s)
        return [answer_on(made) for _ in range(count)]


def answer_on(made):
    """One answer, with a length or in chunks, read exactly to its end."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += made.recv(1) or pytest.fail(f"cut: {received!r}")
    first, *lines = received[:-4].decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    if "content-length" not in headers:
        return int(first.split()[1]), headers, b""
    body = b""
    while len(body) < int(headers["content-length"]):
        body += made.recv(int(headers["content-length"]) - len(body)) or pytest.fail("cut")
    return int(first.split()[1]), headers, body


def rows(server):
    return server.catalog.topic("t").scan().count()


# ------------------------------------------------------------ offers of another protocol


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_an_offer_of_another_protocol_is_ignored(server, offer, chunked, whole):
    """A request that offers another protocol is read with its body, sent together or later, and so is the next one."""
    body = b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(LINE), LINE) if chunked else LINE
    begin = head(b"POST %b HTTP/1.1" % PATH.encode(), *OFFERS[offer], CHUNKED if chunked else sized(LINE))
    following = b"GET /v1/topics/t HTTP/1.1\r\nhost: x\r\n\r\n"
    before = rows(server)
    sent = [begin + body + following] if whole else [begin[:50], begin[50:], body[:7], body[7:], following]
    stored, asked = answers(server, *sent, count=2, pause_s=0.0 if whole else 0.02)
    assert (stored[0], asked[0]) == (200, 200)
    assert json.loads(stored[2])["last"] == before
    assert rows(server) == before + 1


def test_an_offer_without_a_body(server):
    """An upgrade offer without a body is an ordinary request; a long header counts once."""
    long = b"x-long: " + b"y" * 60_000
    assert answers(server, b"\r\n".join([b"GET /ok HTTP/1.1", b"host: x", long, *H2C, b"", b""]))[0][0] == 200


JAVA = """
import java.net.URI; import java.net.http.*;
public class Sends {
    public static void main(String[] given) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int at = 1; at < given.length; at += 4) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(given[0] + given[at + 1]))
                .header("Content-Type", given[at + 2])
                .method(given[at], HttpRequest.BodyPublishers.ofString(given[at + 3])).build();
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.body().replace("\\n", ""));
        }
    }
}
"""
_LOG = '{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "of java"}}]}]}]}'
_EVENT = '{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "2026-03-01T08:00:00Z"}'
OF_JAVA = [
    ("PUT", "/v1/topics/j", "application/json", '{"indexes": ["type"]}'),
    ("POST", "/v1/topics/j/events", "application/x-ndjson", '{"space": "a", "timestamp": 1, "type": "x"}'),
    ("POST", "/v1/streams?tags=app%3Dj", "application/x-ndjson", '{"msg": "of java"}'),
    ("POST", "/v1/lines?tags=app%3Dj", "text/plain", "of java"),
    ("POST", "/_bulk", "application/x-ndjson", '{"index": {"_index": "j"}}\n{"message": "of java"}\n'),
    ("POST", "/v1/logs", "application/json", _LOG),
    ("POST", "/v1/cloudevents", "application/cloudevents+json", _EVENT),
    ("POST", "/v1/query", "text/plain", 'SELECT COUNT FROM {} WHERE msg = "of java"'),
]


@long
@pytest.mark.skipif(shutil.which("java") is None, reason="needs a JDK")
def test_the_client_of_java(server, tmp_path):
    """java.net.http, which offers h2c with each request, can append and query on every route."""
    (tmp_path / "Sends.java").write_text(JAVA)
    given = [part for request in OF_JAVA for part in request]
    command = ["java", "-XX:TieredStopAtLevel=1", str(tmp_path / "Sends.java"), server.url, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["201", *["200"] * 7], lines
    assert json.loads(lines[-1].split(maxsplit=1)[1]) == {"count": 4}
    assert server.catalog.topic("j").indexes == ("type",)
    assert server.catalog.topic("j").scan().count() == 1
    assert server.catalog.topic("cloudevents").scan().count() == 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("chunked", [False, True])
def test_curl_that_offers_http2(server, chunked):
    """The body that curl sends is stored, also if it waits for 100 Continue."""
    before = rows(server)
    body = LINE * 9000  # curl sends Expect: 100-continue from a certain size on; here always
    command = ["curl", "-s", "--http2", "-H", "Expect: 100-continue", "-H", "Content-Type: application/x-ndjson"]
    command += ["-H", "Transfer-Encoding: chunked"] if chunked else []
    done = subprocess.run([*command, "--data-binary", "@-", server.url + PATH], input=body, capture_output=True,
                          check=False, timeout=60)  # fmt: skip
    assert json.loads(done.stdout)["last"] == before + 8999


# ------------------------------------------------------------ requests without a body

APPENDS = {
    PATH: "application/x-ndjson",
    f"{PATH}?partition=1": "text/csv",
    f"{PATH}?partition=2": "application/vnd.apache.arrow.stream",
    "/v1/streams?tags=a%3Db": "application/x-ndjson",
    "/v1/lines?tags=a%3Db": "text/plain",
    "/_bulk": "application/json",
    "/i/_bulk": "application/x-ndjson",
    "/v1/logs": "application/json",
    "/v1/cloudevents": "application/cloudevents-batch+json",
    "/topic/t/partition/p": ARROW,
}


@pytest.mark.parametrize("path", APPENDS)
@pytest.mark.parametrize("lines", [[], [b"content-length: 0"], [CHUNKED]], ids=["none", "empty", "chunked"])
def test_an_append_without_a_body_is_refused(server, path, lines):
    """An append without a body is refused: a client whose body got lost must not be told that it is stored."""
    end = b"0\r\n\r\n" if CHUNKED in lines else b""
    sent = head(b"POST %b HTTP/1.1" % path.encode(), *lines, media=APPENDS[path].encode())
    ((status, _, body),) = answers(server, sent + end)
    assert status == 400
    assert b"body" in body


def test_an_export_of_nothing(server):
    """An export of nothing has no bytes in protobuf and is accepted if it has a length; without one it is refused."""
    media = b"application/x-protobuf"
    for lines, end, status in (
        ([b"content-length: 0"], b"", 200), ([CHUNKED], b"0\r\n\r\n", 200), ([], b"", 400),
    ):  # fmt: skip
        assert answers(server, head(b"POST /v1/logs HTTP/1.1", *lines, media=media) + end)[0][0] == status


# ------------------------------------------------------------ what else a request may be


def test_targets_with_a_host(server):
    """The absolute form of a target, which every server must accept, works."""
    for target, status in ((b"http://x/healthz", 200), (b"http://x:99/v1/nothing?a=b", 404), (b"http://x", 200)):
        assert answers(server, b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)[0][0] == status


def test_trailers_are_no_headers(server):
    """Trailers do not count as headers: proxies only check headers."""
    body = b"%x\r\n%b\r\n0\r\nidempotency-key: nonsense\r\ncontent-type: text/x\r\n\r\n" % (len(LINE), LINE)
    assert answers(server, head(b"POST %b HTTP/1.1" % PATH.encode(), CHUNKED) + body)[0][0] == 200


@pytest.mark.parametrize("end", [b"0\r\nx: ", b"0\r\n", b"5;"], ids=["a trailer", "trailers", "an extension"])
def test_what_follows_a_body_has_limits(server, end):
    """Endless trailers and chunk extensions are refused, like headers."""
    endless = b"x: y\r\n" if end == b"0\r\n" else b"yyyyyy"
    with raw(server, head(b"POST %b HTTP/1.1" % PATH.encode(), CHUNKED) + end) as made:
        with contextlib.suppress(ConnectionError):
            for _ in range(64):  # 25 MB
                made.sendall(endless * 65536)
        with contextlib.suppress(ConnectionError):
            assert int(made.recv(65536)[9:12]) == 431


def test_the_oldest_clients(server):
    """HTTP/1.0 has no chunks: an answer without a length ends with the connection."""
    server.catalog.write({"app": "old"}, [{"msg": "hello"}])
    asked = b"GET /v1/tail?query=SELECT%20FROM%20%7Bapp%3Dold%7D%20LIMIT%201&position=head HTTP/1.0\r\n\r\n"
    with raw(server, asked) as made:
        begin, _, body = until_cut(made).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in begin
    assert b"connection: close" in begin
    assert body.startswith(b": listening\n\nid: p1")
    assert body.endswith(b"}\n\n")


@pytest.mark.parametrize(
    ("lines", "status"),
    [([b"transfer-encoding: gzip, chunked"], 501), ([b"transfer-encoding: chunked", b"content-length: 5"], 400)],
)
def test_framings_that_are_not_spoken(server, lines, status):
    """Ambiguous framing is refused, and nothing after it is taken for a request."""
    sent = head(b"POST %b HTTP/1.1" % PATH.encode(), *lines) + b"0\r\n\r\n" + b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n"
    with raw(server, sent) as made:
        received = until_cut(made)
    assert int(received[9:12]) == status
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"application/problem+json" in received


def test_who_waits_for_100_and_is_refused(server):
    """A client waiting for 100 Continue may send its body or not after a refusal, so the connection closes."""
    begin = head(b"POST /v1/topics/nobody/events HTTP/1.1", b"expect: 100-continue", b"content-length: 2000000")
    ((status, headers, _),) = answers(server, begin)
    assert (status, headers["connection"]) == (413, "close")


def test_a_slow_body_behind_another_request(server, monkeypatch):
    """The answer to the first request starts no timeout for the body of the second."""
    monkeypatch.setattr(connection, "LINGER_S", 0.1)
    first = b"GET /v1/topics/t HTTP/1.1\r\nhost: x\r\n\r\n"
    second = head(b"POST %b HTTP/1.1" % PATH.encode(), sized(LINE))
    with raw(server, first + second + LINE[:5]) as made:
        assert answer_on(made)[0] == 200
        time.sleep(0.4)
        made.sendall(LINE[5:])
        assert answer_on(made)[0] == 200


def test_more_connections_than_are_taken(tmp_path):
    """Connections beyond the limit are told to retry, and existing ones are served."""
    with served(tmp_path, Settings(http=Http(max_connections=2))) as server:
        asked = b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n"
        with raw(server, asked) as first, raw(server, asked) as second:
            assert [answer_on(made)[0] for made in (first, second)] == [200, 200]
            ((status, headers, body),) = answers(server, asked)
            assert (status, headers["retry-after"], json.loads(body)["status"]) == (503, "1", 503)
            first.sendall(asked)
            assert answer_on(first)[0] == 200


def test_a_body_that_nobody_asked_for(server):
    """The unexpected body of a GET or DELETE is skipped."""
    for request, status in ((b"GET /v1/topics/t", 200), (b"DELETE /v1/topics/absent", 404)):
        first = b"%b HTTP/1.1\r\nhost: x\r\ncontent-length: 31\r\n\r\n%b" % (request, LINE)
        found = answers(server, first + b"GET /ok HTTP/1.1\r\nhost: x\r\n\r\n", count=2)
        assert [told for told, _, _ in found] == [status, 200]


def test_requests_before_a_bad_one(server):
    """Requests before a bad one are answered in order, and then the bad one is."""
    asked = b"GET /v1/topics/t HTTP/1.1\r\nhost: x\r\n\r\n"
    found = answers(server, asked * 3 + b"NONSENSE\r\n\r\n", count=4)
    assert [status for status, _, _ in found] == [200, 200, 200, 400]


# ------------------------------------------------------------ refusals of large bodies

SIZE = 8_000_000
REFUSED = {
    "413": (b"POST /v1/topics/t/events HTTP/1.1", []),
    "413 of chunks": (b"POST /v1/topics/t/events HTTP/1.1", [CHUNKED]),
    "404": (b"POST /v1/nothing HTTP/1.1", []),
    "415": (b"POST /v1/topics/t/events HTTP/1.1", [b"content-type: text/x"]),
    "403": (b"POST /v1/topics/t/events HTTP/1.1", [b"origin: http://elsewhere"]),
    "405": (b"PATCH /v1/topics/t/events HTTP/1.1", []),
    "431": (b"POST /v1/topics/t/events HTTP/1.1", [b"x-long: " + b"y" * 70_000]),
    "400 no http": (b"NONSENSE /v1/topics/t/events HTTP/1.1", []),
    "400 chunks": (b"POST /v1/topics/t/events HTTP/1.1", [CHUNKED]),
    "501": (b"POST /v1/topics/t/events HTTP/1.1", [b"transfer-encoding: gzip, chunked"]),
}


@pytest.fixture(scope="module")
def roomy(tmp_path_factory):
    """A server that accepts bodies of SIZE."""
    with served(tmp_path_factory.mktemp("roomy") / "data") as it:
        it.catalog.create_topic("t")
        yield it


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_large_bodies_are_refused_with_an_answer(server, roomy, name, version):
    """A client that sends its whole body before reading gets the refusal and no connection reset."""
    line, lines = REFUSED[name]
    in_chunks = any(b"transfer-encoding" in each for each in lines)
    framing = [] if in_chunks else [b"content-length: %d" % SIZE]
    begin = head(line.replace(b"1.1", version), b"connection: close", *lines, *framing)
    if name == "415":
        begin = begin.replace(b"application/x-ndjson", b"application/none", 1)
    body = (b"%x\r\n" % (SIZE if name == "413 of chunks" else 100) + LINE * (SIZE // len(LINE) + 1))[:SIZE]
    status = "400" if version == b"1.0" and in_chunks else name[:3]
    with raw(server if name.startswith("413") else roomy, begin) as made:
        made.sendall(body)
        received = b""
        while piece := made.recv(65536):  # up to its orderly end
            received += piece
    assert received[9:12].decode() == status
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in received.lower()


def test_large_bodies_are_refused_over_tls(tmp_path):
    """TLS cannot be half-closed: the body is read anyway, and the answer arrives."""
    authority = CertificateAuthority(tmp_path)
    certificate, key = authority.issue("server")
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    with served(tmp_path / "data", Settings(tls=Tls(certificate, key))) as server:
        host, port = server.url.removeprefix("https://").split(":")
        plain = socket.create_connection((host, int(port)), timeout=60)
        with trust.wrap_socket(plain, server_hostname=host) as made:
            made.sendall(head(b"POST /v1/nothing HTTP/1.1", b"connection: close", b"content-length: %d" % SIZE))
            made.sendall(b"x" * SIZE)
            assert answer_on(made)[0] == 404


def test_a_client_that_stays_is_cut(tmp_path, monkeypatch):
    """After a refusal neither silence nor an endless body keeps the connection open."""
    monkeypatch.setattr(connection, "LINGER_S", 0.3)
    monkeypatch.setattr(connection, "LINGER_BYTES", 4_000_000)
    with served(tmp_path) as server:
        with raw(server, b"NONSENSE\r\n\r\n") as silent:
            assert until_cut(silent).startswith(b"HTTP/1.1 400 ")
        with raw(server, b"NONSENSE\r\n\r\n") as busy, contextlib.suppress(ConnectionError):
            began = time.monotonic()
            while time.monotonic() - began < PATIENCE_S:
                busy.sendall(b"x" * 65536)
        assert time.monotonic() - began < PATIENCE_S
        held = server._server.server_state.connections
        until(lambda: not held)
        assert httpx.get(f"{server.url}/ok").status_code == 200
