"""The forwarder delivers every record at least once, in order, from where it stopped, to real sockets and servers."""

from __future__ import annotations

import io
import json
import math
import socket
import socketserver
import ssl
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest
from certificates import CertificateAuthority
from waiting import until

import aggregator
from aggregator import AggregatorError
from aggregator.cli import run
from aggregator.cli.events import forward as forward_command
from aggregator.forward import Forwarder, Sender, columns_of, destinations, forwarder, make_destination
from aggregator.forward.rendering import json_lines, lines, syslog_messages
from aggregator.lql import Template
from aggregator.server.bodies.shared.times import TimeReader
from esformat import InvalidEventError


@pytest.fixture
def catalog(tmp_path):
    """An open catalog with three records of two streams."""
    with aggregator.open(tmp_path / "c", durability="none") as catalog:
        catalog.write({"app": "web", "host": "h 1"}, [{"ts": 1, "msg": "one"}, {"ts": 3, "msg": 'say "x]"', "n": "5"}])
        catalog.write({"app": "db"}, [{"ts": 2, "msg": b"two\nlines \xff"}])
        yield catalog


def made(to, stream=None, template=None, **options):
    """A destination as the command builds it."""
    given = {"sender": Sender(host="here"), "headers": {}, "ca": None, **options}
    return make_destination(
        to, None if template is None else Template.compile(template), stream or io.BytesIO(), **given
    )


def forward(catalog, tmp_path, to, statement="SELECT POSITION HEAD"):
    """Forward existing records. Returns the forwarder."""
    one = Forwarder(catalog, statement, to, tmp_path / "notes.json", once=True)
    one.run()
    return one


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr(forwarder, "NOTE_S", 0.05)
    monkeypatch.setattr(forwarder, "FIRST_WAIT_S", 0.01)


def test_lines_and_resuming(catalog, tmp_path):
    """Records become JSON lines or follow a format string; a second forwarder continues after the first."""
    stream = io.BytesIO()
    assert forward(catalog, tmp_path, made("stdout", stream)).sent == 3
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert rows == [
        {"ts": "1970-01-01T00:00:00.000001Z", "msg": "one", "tags": {"app": "web", "host": "h 1"}},
        {"ts": "1970-01-01T00:00:00.000002Z", "msg": {"base64": "dHdvCmxpbmVzIP8="}, "tags": {"app": "db"}},
        {"ts": "1970-01-01T00:00:00.000003Z", "msg": 'say "x]"', "tags": {"app": "web", "host": "h 1"},
         "fields": {"n": "5"}},
    ]  # fmt: skip
    catalog.write({"app": "db"}, [{"ts": 0, "msg": "late"}])
    catalog.seal()
    again = io.BytesIO()
    assert forward(catalog, tmp_path, made("stdout", again, "{vars:app}: {msg}")).sent == 1
    assert again.getvalue() == b"db: late\n"


def test_a_column_that_cannot_be_compared_is_no_end(catalog, tmp_path):
    """A column that cannot be compared, appearing between two runs, does not stop the second."""
    statement = "SELECT WHERE n = five POSITION HEAD"
    assert forward(catalog, tmp_path, made("stdout"), statement).sent == 0
    catalog.write({"app": "web"}, pa.table({"msg": ["number"], "n": [5]}))
    catalog.write({"app": "web"}, [{"msg": "text", "n": "five"}])
    assert forward(catalog, tmp_path, made("stdout"), statement).sent == 1


def test_odd_values_are_no_end(catalog, tmp_path):
    """Times, dates and zones that Python does not support are sent as text and do not stop the records after them."""
    days = pa.array([[2**31 - 1]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))
    zoned = pa.array([[0]], pa.list_(pa.timestamp("us", "Nowhere/Land")))
    catalog.write({"app": "odd"}, pa.table({
        "ts": [4], "msg": ["odd"], "nanos": pa.array([1_500_000_000_000_001_001], pa.timestamp("ns")),
        "far": pa.array([2**62], pa.timestamp("s")), "days": days, "zoned": zoned,
    }))  # fmt: skip
    catalog.write({"app": "odd"}, [{"ts": 5, "msg": "behind"}])
    catalog.create_topic("other")
    catalog.write({"app": "other"}, pa.table({"ts": [6], "days": ["a text"], "zoned": ["another"]}), "other")
    stream = io.BytesIO()
    assert forward(catalog, tmp_path, made("stdout", stream)).sent == 6
    odd, behind, other = (json.loads(line) for line in stream.getvalue().splitlines()[3:])
    assert (odd["fields"]["nanos"], odd["fields"]["far"]) == ("2017-07-14T02:40:00.000001Z", str(2**62))
    assert ("2147483647" in odd["fields"]["days"], "1970-01-01" in odd["fields"]["zoned"]) == (True, True)
    assert (behind["msg"], other["fields"]["days"]) == ("behind", "a text")


def test_numbers_that_json_lacks(catalog, tmp_path):
    """NaN and infinities are sent as null, as in other JSON lines."""
    values = [1.5, math.nan, math.inf, None]
    catalog.write({"app": "odd"}, pa.table({"ts": [4, 5, 6, 7], "msg": ["odd"] * 4, "load": values, "n": [1] * 4}))
    stream = io.BytesIO()
    forward(catalog, tmp_path, made("stdout", stream), "SELECT FROM app = odd POSITION HEAD")
    found = [json.loads(line, parse_constant=pytest.fail)["fields"] for line in stream.getvalue().splitlines()]
    assert found == [{"load": 1.5, "n": 1}, {"load": None, "n": 1}, {"load": None, "n": 1}, {"n": 1}]


def test_records_without_tags_by_a_format_string(catalog, tmp_path):
    """A record without tags and fields is a line like others."""
    catalog.write({}, [{"ts": 4, "msg": "bare"}, {"ts": 5, "msg": "with", "user": "ann"}])
    stream = io.BytesIO()
    forward(catalog, tmp_path, made("stdout", stream, "{vars}|{msg}"))
    assert {b"|bare", b"user=ann|with"} <= set(stream.getvalue().splitlines())


def test_a_position_that_cannot_be_noted(catalog, tmp_path, caplog):
    """While the position cannot be noted, records are still sent, the log says so once, and it is noted later."""
    folder, away = tmp_path / "state", tmp_path / "away"
    folder.mkdir()
    one = Forwarder(catalog, "SELECT POSITION HEAD", made("stdout"), folder / "notes.json")
    running = threading.Thread(target=one.run)
    running.start()

    def told():
        return [record for record in caplog.records if "cannot save the position" in record.getMessage()]

    try:
        until(lambda: one.sent == 3)
        folder.rename(away)
        for sent in (4, 5):
            catalog.write({"app": "db"}, [{"msg": "more"}])
            until(lambda: one.sent == sent and told())  # noqa: B023  # called immediately
        noted = (away / "notes.json").read_text()
        away.rename(folder)
        until(lambda: (folder / "notes.json").read_text() != noted)
    finally:
        one.stop()
        running.join()
    assert len(told()) == 1
    assert forward(catalog, folder, made("stdout")).sent == 0


def test_a_first_start_begins_now(catalog, tmp_path):
    """Without a position, records that arrive after the first start are sent, also those from before the next start."""
    stream = io.BytesIO()
    assert forward(catalog, tmp_path, made("stdout", stream), "SELECT FROM app = db").sent == 0
    catalog.write({"app": "db"}, [{"msg": "new"}])
    assert forward(catalog, tmp_path, made("stdout", stream), "SELECT FROM app = db").sent == 1


def test_notes_of_another_statement(catalog, tmp_path):
    """Notes of another statement, invalid notes, and statements that cannot be forwarded are refused."""
    forward(catalog, tmp_path, made("stdout"))
    with pytest.raises(aggregator.InvalidRequestError, match="another statement"):
        forward(catalog, tmp_path, made("stdout"), "SELECT WHERE msg = x")
    (tmp_path / "notes.json").write_text("{}")
    with pytest.raises(aggregator.AggregatorError, match="notes"):
        forward(catalog, tmp_path, made("stdout"))
    for statement in ("SELECT COUNT", "SHOW PARTITIONS", "SELECT ORDER BY ts DESC", "SELECT LIMIT 5"):
        with pytest.raises(aggregator.InvalidRequestError):
            forward(catalog, tmp_path, made("stdout"), statement)


def test_notes_of_another_catalog(catalog, tmp_path):
    """A catalog recreated at the path does not have the noted position: the error says which file to remove."""
    forward(catalog, tmp_path, made("stdout"))
    notes = tmp_path / "notes.json"
    with aggregator.open(tmp_path / "again") as other:
        other.write({"app": "web"}, [{"ts": 1, "msg": "one"}])
        with pytest.raises(aggregator.InvalidRequestError, match="belongs to another catalog") as refused:
            forward(other, tmp_path, made("stdout"))
        assert str(notes) in str(refused.value)
        assert "remove this one to start over" in str(refused.value)
        notes.unlink()
        stream = io.BytesIO()
        assert forward(other, tmp_path, made("stdout", stream), "SELECT POSITION HEAD").sent == 1


def test_a_file(catalog, tmp_path):
    """Lines are appended with the records' original bytes; a line cut off by a crash is ended first."""
    path = tmp_path / "out.log"
    path.write_bytes(b"half a li")
    forward(catalog, tmp_path, made(f"file:{path}", template="{msg}"))
    assert path.read_bytes() == b'half a li\none\ntwo\nlines \xff\nsay "x]"\n'


class Failing:
    """A destination that accepts a batch after a few attempts, or never."""

    def __init__(self, tries, error=OSError):
        self.tries, self.error, self.taken = tries, error, []

    def send(self, batch, columns):
        self.tries -= 1
        if self.tries >= 0:
            raise self.error("no")
        self.taken += batch.column("data").to_pylist()

    def close(self):
        pass


def test_failures_are_tried_again(catalog, tmp_path):
    """Failures are retried with growing pauses, and nothing is lost."""
    one = Failing(3)
    assert forward(catalog, tmp_path, one).retries == 3
    assert len(one.taken) == 3


def test_what_was_not_sent_is_sent_later(catalog, tmp_path):
    """A forwarder stopped during failures, or refused permanently, keeps its position before the unsent records."""
    never = Failing(1 << 30)
    stopping = Forwarder(catalog, "SELECT POSITION HEAD", never, tmp_path / "notes.json")
    threading.Timer(0.2, stopping.stop).start()
    stopping.run()
    assert stopping.sent == 0
    with pytest.raises(aggregator.AggregatorError):
        forward(catalog, tmp_path, Failing(1, aggregator.AggregatorError))
    one = Failing(0)
    forward(catalog, tmp_path, one)
    assert len(one.taken) == 3


# ------------------------------------------------------------ syslog


class Receiver(socketserver.ThreadingTCPServer):
    """A syslog server that keeps what it receives; it may hang up on the first connection after its first bytes."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, hang_up=False):
        self.got, self.hang_up = [], hang_up
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    class Handler(socketserver.BaseRequestHandler):
        """A connection."""

        def handle(self):
            got = bytearray()
            self.server.got.append(got)
            if self.server.hang_up and len(self.server.got) == 1:
                got += self.request.recv(10)
                return
            while some := self.request.recv(1 << 16):
                got += some


def messages(stream):
    """The messages of a stream, each preceded by its length."""
    found = []
    while stream:
        length, _, rest = bytes(stream).partition(b" ")
        found.append(rest[: int(length)])
        stream = rest[int(length) :]
    return found


EXPECTED = [
    b'<134>1 1970-01-01T00:00:00.000001Z h_1 web - - [tags@32473 app="web" host="h 1"] one',
    b'<134>1 1970-01-01T00:00:00.000002Z here db - - [tags@32473 app="db"] two\nlines \xff',
    b'<134>1 1970-01-01T00:00:00.000003Z h_1 web - - [tags@32473 app="web" host="h 1"][fields@32473 n="5"] say "x]"',
]


@contextmanager
def running(forwarder):
    """Run a forwarder in a thread and wait for its end afterwards."""
    thread = threading.Thread(target=forwarder.run)
    thread.start()
    try:
        yield
    finally:
        forwarder.stop()
        thread.join()


def test_syslog_by_tcp(catalog, tmp_path):
    """Messages follow RFC 5424 with octet counts; after the server hangs up, unconfirmed records are sent again."""
    with Receiver(hang_up=True) as server:
        host, port = server.server_address
        to = made(f"syslog://{host}:{port}")
        one = Forwarder(catalog, "SELECT POSITION HEAD", to, tmp_path / "notes.json")
        with running(one):
            until(lambda: server.got and len(server.got[0]) == 10)
            catalog.write({"app": "web", "host": "h 1"}, [{"ts": 4, "msg": "four"}])
            until(lambda: len(server.got) > 1 and server.got[-1].endswith(b"four"))
        assert one.retries >= 1
        received = messages(server.got[-1])
        assert received[-1].endswith(b'host="h 1"] four')
        count = len(received) - 1  # without those that the kernel confirmed before the server hung up
        assert received[:-1] == EXPECTED[3 - count :]
        server.shutdown()


def test_syslog_arrives_whole(catalog, tmp_path):
    """Messages over TCP are those of the records, in order."""
    with Receiver() as server:
        host, port = server.server_address
        forward(catalog, tmp_path, made(f"syslog+tcp://{host}:{port}"))
        until(lambda: server.got and server.got[0].endswith(EXPECTED[-1]))
        assert messages(server.got[0]) == EXPECTED
        server.shutdown()


class TlsReceiver(Receiver):
    """A syslog server behind TLS. `refused`: the errors that ended handshakes."""

    def __init__(self, certificate, hang_up=False):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*certificate)
        self.refused = []
        super().__init__(hang_up)

    def finish_request(self, request, client_address):
        """Runs in the connection's thread."""
        request.settimeout(60)
        try:
            with self.context.wrap_socket(request, server_side=True) as made, suppress(ssl.SSLError, ConnectionError):
                super().finish_request(made, client_address)
        except (ssl.SSLError, ConnectionError) as error:
            self.refused.append(error)


@pytest.mark.parametrize("hang_up", [False, True])
def test_syslog_by_tls(catalog, tmp_path, hang_up):
    """The same stream is sent encrypted; the forwarder reconnects to a server that hangs up."""
    authority = CertificateAuthority(tmp_path)
    with TlsReceiver(authority.issue("syslog"), hang_up) as server:
        host, port = server.server_address
        one = Forwarder(
            catalog, "SELECT POSITION HEAD", made(f"syslog+tls://{host}:{port}", ca=str(authority.certificate)),
            tmp_path / "notes.json",
        )  # fmt: skip
        with running(one):
            if hang_up:
                until(lambda: server.got and len(server.got[0]) == 10)
            else:
                until(lambda: server.got and server.got[0].endswith(EXPECTED[-1]))
            catalog.write({"app": "web", "host": "h 1"}, [{"ts": 4, "msg": "four"}])
            until(lambda: len(server.got) > hang_up and server.got[-1].endswith(b"four"))
        received = messages(server.got[-1])
        assert received[-1].endswith(b'host="h 1"] four')
        assert received[:-1] == EXPECTED[4 - len(received) :]
        assert len(received) == 4 or hang_up
        assert server.refused == []
        server.shutdown()


@pytest.mark.parametrize("wrong", ["authority", "name", "no TLS"])
def test_syslog_to_the_wrong_server(catalog, tmp_path, monkeypatch, wrong):
    """Nothing is sent to a server that cannot prove its identity; attempts continue, and nothing is lost."""
    authority = CertificateAuthority(tmp_path)
    ca = str(authority.certificate) if wrong != "authority" else None
    if wrong == "no TLS":
        monkeypatch.setattr(destinations, "TIMEOUT_S", 0.2)
    with Receiver() if wrong == "no TLS" else TlsReceiver(authority.issue("syslog")) as server:
        host, port = "localhost" if wrong == "name" else "127.0.0.1", server.server_address[1]
        to = made(f"syslog+tls://{host}:{port}", ca=ca)
        one = Forwarder(catalog, "SELECT POSITION HEAD", to, tmp_path / "notes.json")
        with running(one):
            until(lambda: one.retries >= 2 and (server.got if wrong == "no TLS" else server.refused))
        assert not any(b"one" in got for got in server.got)
        assert one.sent == 0
        server.shutdown()
    assert forward(catalog, tmp_path, made("stdout", io.BytesIO())).sent == 3


def test_syslog_by_udp(catalog, tmp_path):
    """Each message is a datagram; a message that is too long is cut."""
    catalog.write({"app": "db"}, [{"ts": 9, "msg": "x" * 70_000}])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(120)
        forward(catalog, tmp_path, made(f"syslog+udp://127.0.0.1:{receiver.getsockname()[1]}"))
        received = [receiver.recv(1 << 17) for _ in range(4)]
    assert received[:3] == EXPECTED
    assert len(received[3]) == destinations.MAX_DATAGRAM


def test_names_of_structured_data(catalog, tmp_path):
    """Invalid names of structured data are left out; quotes, brackets and backslashes are escaped."""
    catalog.write({"a=b": "1", "ok": 'q"\\]'}, [{"ts": 5, "msg": "m", "bad name": "1", "n" * 33: "1"}])
    with Receiver() as server:
        host, port = server.server_address
        forward(catalog, tmp_path, made(f"syslog://{host}:{port}"), "SELECT FROM ok != '' POSITION HEAD")
        until(lambda: server.got and server.got[0].endswith(b"] m"))
        assert messages(server.got[0])[0].endswith(b' here aggregator - - [tags@32473 ok="q\\"\\\\\\]"] m')
        server.shutdown()


# ------------------------------------------------------------ HTTP


class Web(ThreadingHTTPServer):
    """Answer with the given statuses, then 204, and keep accepted bodies."""

    daemon_threads = True

    def __init__(self, *statuses, answer=b""):
        self.statuses, self.got, self.headers, self.answer = list(statuses), [], [], answer
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        """The server's address."""
        return f"http://127.0.0.1:{self.server_address[1]}/in?x=1"

    class Handler(BaseHTTPRequestHandler):
        """A request."""

        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = self.server.statuses.pop(0) if self.server.statuses else 204
            if status == 0:
                self.close_connection = True
                return
            if status in (200, 204):
                self.server.got.append((self.path, body))
                self.server.headers.append(dict(self.headers))
            self.send_response(status)
            self.send_header("Content-Length", str(len(self.server.answer)))
            if status == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(self.server.answer)

        def log_message(self, *_):
            pass


def test_http(catalog, tmp_path, monkeypatch):
    """JSON lines are sent a few records per request; overload, failures and broken connections are retried."""
    monkeypatch.setattr(destinations, "POST_ROWS", 2)
    with Web(429, 503, 0, 204, 500) as server:
        one = forward(catalog, tmp_path, made(server.url, headers={"X-Key": "k"}))
        assert (one.sent, one.retries) == (3, 4)
        bodies = [[json.loads(line)["msg"] for line in body.splitlines()] for _, body in server.got]
        assert bodies == [["one", {"base64": "dHdvCmxpbmVzIP8="}], ['say "x]"']]
        assert {path for path, _ in server.got} == {"/in?x=1"}
        assert {(h["Content-Type"], h["X-Key"]) for h in server.headers} == {("application/x-ndjson", "k")}
        server.shutdown()


def test_long_answers_are_not_read(catalog, tmp_path, monkeypatch):
    """The unread rest of a long answer is not taken for the answer to the next request, which would cause a retry."""
    monkeypatch.setattr(destinations, "POST_ROWS", 1)
    with Web(200, 200, 200, answer=bytes(3 << 20)) as server:
        one = forward(catalog, tmp_path, made(server.url))
        assert (one.sent, one.retries, len(server.got)) == (3, 0, 3)
        server.shutdown()


def test_http_that_refuses_for_good(catalog, tmp_path):
    """A permanent refusal ends the forwarder; the next one continues with the same records."""
    with Web(401) as server:
        with pytest.raises(aggregator.AggregatorError, match="401"):
            forward(catalog, tmp_path, made(server.url))
        assert forward(catalog, tmp_path, made(server.url, template="{msg}")).sent == 3
        sent = b"".join(body for _, body in server.got)
        assert sent == b'one\ntwo\nlines \xff\nsay "x]"\n'
        server.shutdown()


@pytest.mark.parametrize(
    "to",
    ["nowhere", "ftp://x", "syslog://", "http://", "syslog://h:x", "http://u:p@h/", "http://a..b/", "syslog://h:99999"],
)
def test_no_destination(to):
    """An invalid destination is refused with examples of valid ones."""
    with pytest.raises(aggregator.InvalidRequestError):
        made(to)


def test_a_destination_that_takes_nothing(catalog, tmp_path):
    """When its patience ends, the forwarder raises the reason; nothing counts as sent, and the next starts there."""
    missing = tmp_path / "later"
    one = Forwarder(
        catalog, "SELECT POSITION HEAD", made(f"file:{missing}/out"), tmp_path / "notes.json", once=True, patience_s=0.2
    )
    with pytest.raises(AggregatorError, match=r"has not accepted records for 0\.2 s: .*No such file"):
        one.run()
    assert one.sent == 0
    missing.mkdir()
    assert forward(catalog, tmp_path, made(f"file:{missing}/out")).sent == 3


def test_the_command_loses_patience(catalog, tmp_path, monkeypatch, capfd):
    """--once gives up after a while, so that a scheduled job does not hang."""
    catalog.close()
    monkeypatch.setattr(forward_command, "ONCE_PATIENCE_S", 0.2)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert run(["forward", str(catalog.path), "SELECT POSITION HEAD", "--to", f"file:{tmp_path}/no/out", "--once"]) == 1
    assert "has not accepted records for 0.2 s" in capfd.readouterr().err


def test_bytes_that_are_not_text():
    """Messages and fields that are not UTF-8 are {"base64": …} in JSON, as in scans; a format string keeps them."""
    batch = pa.record_batch({
        "space": ["{app=web}"] * 3, "timestamp": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "data": pa.array([b"a\xff", b"b", None]), "raw": pa.array([b"\xfe", b"x", None]),
    })  # fmt: skip
    columns = columns_of(batch)
    rows = [json.loads(line) for line in json_lines(batch, columns).to_pylist()]
    assert [row["msg"] for row in rows] == [{"base64": "Yf8="}, "b", ""]
    assert [row.get("fields") for row in rows] == [{"raw": {"base64": "/g=="}}, {"raw": "x"}, None]
    assert lines(batch, columns, Template.compile("{msg}")).to_pylist() == [b"a\xff\n", b"b\n", b"\n"]
    assert b'raw="{\\"base64\\": \\"/g==\\"}"' in syslog_messages(batch, columns, Sender())[0].as_py()


def test_times_beyond_the_calendar():
    """They have a date, too, which a server refuses: it would take a plain number for nanoseconds of another year."""
    batch = pa.record_batch({
        "space": ["{app=web}"] * 4, "timestamp": pa.array([1, 10**18, 1 - 2**63, -(2**63)], pa.timestamp("us", "UTC")),
        "data": [b"a"] * 4,
    })  # fmt: skip
    written = [json.loads(line)["ts"] for line in json_lines(batch, columns_of(batch)).to_pylist()]
    assert written == [
        "1970-01-01T00:00:00.000001Z", "33658-09-27T01:46:40.000000Z", "-290308-12-21T19:59:05.224193Z",
        str(-(2**63)),
    ]  # fmt: skip
    for text in written[1:]:
        with pytest.raises(InvalidEventError, match=r"ts: .* is neither ISO 8601"):
            TimeReader().read(text, "ts")
