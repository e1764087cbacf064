"""Verbs that use a server: the same output as for the directory it serves, tokens, and wrong addresses."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from effort import long, share_of
from waiting import PATIENCE_S, until

import aggregator
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http
from aggregator.server.control.tokens import create

COMMAND = [sys.executable, "-W", "error", "-m", "aggregator"]
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def served(clicks, command):
    """A server over `data`: three clicks, and three records of two streams."""
    with aggregator.open(clicks, durability="none") as catalog:
        catalog.write({"app": "web"}, [{"ts": 1, "msg": "one", "n": 5}, {"ts": 3, "msg": "three"}])
        catalog.write({"app": "db"}, [{"ts": 2, "msg": "two"}])
        with RunningServer(catalog, Settings(http=Http(bind="127.0.0.1:0", drain_s=1.0))) as server:
            yield server


SAME = [
    ["query", "SELECT FROM app = web"],
    ["query", "SELECT '{vars:app}: {msg}' LIMIT 2"],
    ["query", "SELECT LIMIT 2", "--format", "table"],
    ["query", "SELECT ORDER BY ts DESC LIMIT 1", "--format", "csv"],
    ["query", "SELECT COUNT GROUP BY app", "--format", "csv"],
    ["query", "SHOW PARTITIONS", "--format", "table"],
    ["query", "SHOW PIPES"],
    ["query", "SELECT FROM app = nobody"],
    ["query", "SELECT FROM app lik 'w*'"],
    ["query", "SELECT WHERE n > 'x'"],
    ["tail", "clicks"],
    ["tail", "clicks", "-n", "1", "--partition", "0"],
    ["tail", "SELECT", "-n", "2"],
    ["tail", "SELECT POSITION AT '1970-01-01T00:00:00.000002Z'"],
    ["tail", "SELECT COUNT"],
    ["tail", "nothing"],
    ["stats", "clicks"],
    ["stats", "clicks", "--json"],
    ["stats", "nothing"],
    ["topics"],
    ["topics", "--json"],
    ["scan", "clicks", "--space", "ada", "--reverse"],
    ["scan", "clicks", "--index", "type=page", "--count"],
    ["scan", "clicks", "--format", "csv", "--columns", "space,timestamp"],
    ["scan", "clicks", "--index", "nope=page"],
    ["shell"],
]


@pytest.mark.parametrize("arguments", share_of(SAME, 4), ids=" ".join)
def test_same_as_of_a_directory(command, served, arguments):
    """Output, exit status and the presence of an error are the same for a directory and its server."""
    verb, *rest = arguments
    stdin = b"SHOW PARTITIONS; SELECT LIMIT 2; SELECT COUNT" if verb == "shell" else b""
    here = command(verb, "data", *rest, stdin=stdin)
    there = command(verb, served.url, *rest, stdin=stdin)
    if "--json" in rest:
        assert _comparable(there.json) == _comparable(here.json)
    else:
        assert (there.status, there.text) == (here.status, here.text)
    assert bool(there.err) == bool(here.err)


def _comparable(facts):
    """The figures without the arrival times of unsealed events, which differ between processes."""
    if isinstance(facts, dict):
        return {name: _comparable(value) for name, value in facts.items() if name != "oldest_unsealed_us"}
    return [_comparable(value) for value in facts] if isinstance(facts, list) else facts


def test_stats_of_all(command, served):
    """`stats` has the same figures; a server's address replaces the path on its disk."""
    here, there = (command("stats", place, "--json").json for place in ("data", served.url))
    assert there.pop("path") == served.url
    assert here.pop("path").endswith("data")
    for topic in there["topics"].values():
        assert topic.pop("segments_to_merge") == 0  # like `memory` and `log`, known only to the writer
    assert _comparable(there["topics"]) == _comparable(here["topics"])
    assert there.keys() >= here.keys()
    assert served.url in command("stats", served.url).text


def test_arrow_and_export(served, command, tmp_path):
    """Arrow answers work, and a whole topic is exported to a file."""
    done = subprocess.run(
        [*COMMAND, "query", served.url, "SELECT FROM app != ''", "--format", "arrow"], capture_output=True, check=True
    )
    assert pa.ipc.open_stream(done.stdout).read_all()["data"].to_pylist() == [b"one", b"two", b"three"]
    assert "3 events" in command("export", served.url, "clicks", "there.esdb").text
    command("export", "data", "clicks", "here.esdb")
    assert (tmp_path / "there.esdb").read_bytes() == (tmp_path / "here.esdb").read_bytes()


def test_what_changes_a_catalog(command, served):
    """The server, which holds the directory, creates and alters topics, appends events, creates and deletes pipes."""
    made = command("topics", served.url, "--create", "orders", "--index", "type", "--retention", "age=7d")
    assert (made.status, made.text) == (0, "orders: created\n")
    altered = "orders: altered; keeps 7 days; seals segments after 500,000 events, 67.1 MB or 1 minute\n"
    assert command("topics", served.url, "--alter", "orders", "--roll", "age=60s").text == altered
    topic = served.catalog.topic("orders")
    assert (topic.indexes, topic.roll.age_us, topic.retention.age_us) == (
        ("type",), 60_000_000, 7 * 86_400_000_000,
    )  # fmt: skip
    done = command("append", served.url, "clicks", "clicks.jsonl", "--space", "who", "--timestamp", "at", "--json")
    assert done.json["events"] == 3
    assert served.catalog.topic("clicks").scan().count() == 6
    done = command("query", served.url, "CREATE PIPE errors FROM app = web WHERE msg = one")
    assert (done.status, done.err) == (0, "")
    assert command("query", "data", "SHOW PIPES").rows[0]["name"] == "errors"
    assert command("query", served.url, "DELETE PIPE errors").status == 0
    refused = command("append", served.url, "clicks", "clicks.jsonl", "--durability", "none")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "--durability is only for a directory" in refused.err


def test_who_finds_it_locked_is_told_where_to_ask(command, served):
    """Verbs that would write to a served directory name its server until it stops."""
    for arguments in (
        ["query", "data", "CREATE PIPE errors WHERE msg = one"],
        ["topics", "data", "--create", "more"],
        ["compact", "data"],
    ):
        refused = command(*arguments)
        assert (refused.status, refused.err.count("\n")) == (1, 1)
        assert f"aggregator query {served.url}" in refused.err
    served.__exit__(None, None, None)
    assert "close it there" in command("compact", "data").err
    served.__enter__()


def test_verbs_that_need_a_directory(command, served):
    """Verbs that need a directory say so and list the verbs that work with a server."""
    for arguments in (["compact"], ["retain"], ["verify"], ["rebuild-manifest"], ["init"], ["erase", "clicks", "ada"]):
        verb, *rest = arguments
        refused = command(verb, served.url, *rest)
        assert (refused.status, refused.err.count("\n")) == (2, 1), refused.err
        assert "works on a directory" in refused.err
        assert "query" in refused.err
    assert not Path("http:").exists()


def test_two_indexes_at_once(command, served):
    """A server can look up only one index at a time."""
    command("topics", served.url, "--create", "two", "--index", "a", "--index", "b")
    refused = command("scan", served.url, "two", "--index", "a=1", "--index", "b=2")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "one --index at a time" in refused.err


def test_tokens(command, served, tmp_path, monkeypatch):
    """A token comes from an option, a file or the environment and is never printed, whatever fails."""
    secret = create(tmp_path / "data" / "tokens.json", "me", ["read"], None, None)
    (tmp_path / "secret").write_text(f"{secret}\n")
    _until_asked_for(command, served.url)
    assert command("query", served.url, "SELECT COUNT FROM app != ''", "--token", secret).rows == [{"count": 3}]
    assert command("query", served.url, "SELECT COUNT FROM app != ''", "--token-file", "secret").rows == [{"count": 3}]
    monkeypatch.setenv("AGGREGATOR_TOKEN", secret)
    assert command("query", served.url, "SELECT COUNT FROM app != ''").rows == [{"count": 3}]
    assert command("query", "data", "SELECT COUNT FROM app != ''").rows == [{"count": 3}]
    wrong = secret[:-4] + "abcd"
    (tmp_path / "two lines").write_text("a\nb")
    (tmp_path / "empty").write_text("\n")
    for status, options in (
        (1, ["--token", wrong]), (2, ["--token", f"{secret}\n"]), (2, ["--token", "ä" + secret]),
        (2, ["--token-file", "two lines"]), (2, ["--token-file", "empty"]), (1, ["--token-file", "missing"]),
        (2, ["--token", secret, "--token-file", "secret"]),
    ):  # fmt: skip
        refused = command("query", served.url, "SELECT COUNT", *options)
        assert refused.status == status
        assert refused.text == ""
        assert refused.err.count("\n") == 1
        assert secret not in refused.err
        assert wrong not in refused.err
    refused = command("topics", served.url, "--create", "more")  # needs admin
    assert (refused.status, refused.err.count("\n")) == (1, 1)
    monkeypatch.delenv("AGGREGATOR_TOKEN")
    refused = command("stats", served.url)
    assert refused.status == 1
    assert "--token-file" in refused.err
    assert command("query", "data", "SELECT", "--token", secret).status == 2
    user = served.url.replace("//", f"//me:{secret}@")
    refused = command("query", user, "SELECT")
    assert refused.status == 2
    assert secret not in refused.err
    assert secret not in command("query", served.url, "--help").text


def _until_asked_for(command, url):
    """Wait until the server requires tokens, which it notices within a second."""
    until(lambda: command("stats", url).status)


def test_nobody_there(command, clicks, served):
    """An unreachable or wrong address is reported in one line that contains it, without delay."""
    for arguments in (["query", NOBODY, "SELECT"], ["stats", NOBODY], ["tail", NOBODY, "SELECT", "-f"],
                      ["forward", NOBODY, "SELECT", "--to", "stdout"], ["shell", NOBODY]):  # fmt: skip
        refused = command(*arguments, stdin=b"SELECT")
        assert (refused.status, refused.text, refused.err.count("\n")) == (1, "", 1), arguments
        assert "cannot be reached" in refused.err
        assert "`aggregator serve DIRECTORY` starts one" in refused.err
        assert NOBODY in refused.err
    assert command("query", "http://", "SELECT").status == 2
    elsewhere = command("stats", f"{served.url}/elsewhere")
    assert elsewhere.status != 0
    assert elsewhere.err.count("\n") == 1


def _line(process, end=PATIENCE_S):
    assert select.select([process.stdout], [], [], end)[0], "nothing came"
    return process.stdout.readline()


def test_following(served, tmp_path):
    """Records and events are printed as they arrive, until Ctrl-C, which exits with status 130."""
    arguments = [["SELECT '{msg}' FROM app = new OR app = web", "-n", "1"], ["clicks", "-n", "1"]]
    for (what, *rest), sent in share_of(zip(arguments, (b"came\n", b"new"), strict=True), 2):
        with subprocess.Popen(
            [*COMMAND, "tail", served.url, what, *rest, "-f"], stdout=subprocess.PIPE, bufsize=0
        ) as tail:
            guard = threading.Timer(PATIENCE_S, tail.kill)
            guard.start()
            _line(tail)  # the newest: the tail follows from here
            served.catalog.write({"app": "new"}, [{"msg": "came"}])
            served.catalog.topic("clicks").append([{"space": "new", "timestamp": 7, "type": "page"}])
            assert sent in _line(tail)
            tail.send_signal(signal.SIGINT)
            assert tail.wait(120) == 130
            guard.cancel()


def test_limit_of_a_tail(command, served):
    """A tail ends after that many records, across all pages."""
    done = command("tail", served.url, "SELECT '{msg}' FROM app != '' POSITION HEAD LIMIT 2", "-f")
    assert (done.status, done.text) == (0, "one\ntwo\n")


def test_forward(command, served):
    """`forward` sends existing records once; a second run finds only new ones, also with an OFFSET."""
    for start, first in (("HEAD", 3), ("TAIL OFFSET -2", 2)):
        statement = f"SELECT '{{msg}}' FROM app != '' POSITION {start}"
        arguments = ("forward", served.url, statement, "--to", f"file:out-{first}.txt", "--once")
        assert command(*arguments).text == f"{first} records sent\n"
        assert command(*arguments).text == "0 records sent\n"
    served.catalog.write({"app": "web"}, [{"ts": 4, "msg": "four"}])
    for first in ("HEAD", "TAIL OFFSET -2"):
        count = 3 if first == "HEAD" else 2
        arguments = (
            "forward",
            served.url,
            f"SELECT '{{msg}}' FROM app != '' POSITION {first}",
            "--to",
            f"file:out-{count}.txt",
            "--once",
        )
        assert command(*arguments).text == "1 record sent\n"
    assert Path("out-3.txt").read_text() == "one\ntwo\nthree\nfour\n"
    assert Path("out-2.txt").read_text() == "two\nthree\nfour\n"
    for wrong in ("SHOW PARTITIONS", "SELECT COUNT", "SELECT LIMIT 1"):
        assert command("forward", served.url, wrong, "--to", "stdout").status == 2


@long
def test_forward_stopped_between_records(served, tmp_path):
    """A terminated forwarder notes what it sent and continues exactly there."""
    state, out = tmp_path / "notes.json", tmp_path / "out.txt"
    command = [
        *COMMAND,
        "forward",
        served.url,
        "SELECT '{msg}' FROM app != '' POSITION HEAD",
        "--to",
        f"file:{out}",
        "--state",
        str(state),
    ]
    for messages in (["one", "two", "three"], ["one", "two", "three", "four"]):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as forwarding:
            guard = threading.Timer(PATIENCE_S, forwarding.kill)
            guard.start()
            while not out.exists() or len(out.read_text().splitlines()) < len(messages):
                assert forwarding.poll() is None
                threading.Event().wait(0.02)
            forwarding.terminate()
            assert forwarding.wait(120) == 0
            guard.cancel()
        assert out.read_text().splitlines() == messages
        served.catalog.write({"app": "web"}, [{"msg": "four"}])
    assert json.loads(state.read_text())["position"] not in ("head", "tail")


@long
def test_ctrl_c_in_a_query(served, tmp_path):
    """Ctrl-C before the server answers exits with status 130 and one line."""
    assert os.environ.get("AGGREGATOR_TOKEN") is None
    listener = __import__("socket").create_server(("127.0.0.1", 0))  # accepts the connection and sends nothing
    address = "http://{}:{}".format(*listener.getsockname())
    with subprocess.Popen([*COMMAND, "query", address, "SELECT"], stderr=subprocess.PIPE) as asking:
        connection, _ = listener.accept()
        connection.recv(65536)
        asking.send_signal(signal.SIGINT)
        assert asking.wait(120) == 130
        assert asking.stderr.read() == b"aggregator: interrupted\n"
    connection.close()
    listener.close()
