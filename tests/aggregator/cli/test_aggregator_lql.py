"""Statements, the shell, the collector and the forwarder from the command line."""

from __future__ import annotations

import json
import math
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import long
from ports import free_port
from pyarrow import feather
from waiting import PATIENCE_S

import aggregator
from aggregator.cli.events import collect as collect_command
from aggregator.cli.events.shell import Shell, is_whole
from aggregator.cli.root import run
from aggregator.cli.shared.statements import split
from aggregator.lql.parse.completion import completions

COMMAND = [sys.executable, "-W", "error", "-m", "aggregator"]


@pytest.fixture
def streams(command, tmp_path):
    """A catalog `data` with three records of two streams."""
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        catalog.write({"app": "web"}, [{"ts": 1, "msg": "one", "n": 5}, {"ts": 3, "msg": "three"}])
        catalog.write({"app": "db"}, [{"ts": 2, "msg": "two"}])
    return tmp_path / "data"


def test_query_formats(command, streams):
    """Records and tables print in every format."""
    assert command("query", "data", "SELECT FROM app = web").rows == [
        {"ts": "1970-01-01T00:00:00.000001Z", "msg": "one", "tags": {"app": "web"}, "fields": {"n": "5"}},
        {"ts": "1970-01-01T00:00:00.000003Z", "msg": "three", "tags": {"app": "web"}},
    ]
    assert command("query", "data", "SELECT '{vars:app}: {msg}' LIMIT 2").text == "web: one\ndb: two\n"
    assert command("query", "data", "SELECT LIMIT 2", "--format", "template").text == "one\ntwo\n"
    lines = command("query", "data", "SELECT LIMIT 2", "--format", "jsonl").rows
    assert command("query", "data", "SELECT LIMIT 2", "--format", "json").json == lines
    assert command("query", "data", "SELECT WHERE msg = nothing", "--format", "json").json == []
    for statement, rows in (("SELECT LIMIT 2", 2), ("SELECT COUNT", 1)):
        assert command("query", "data", statement, "-o", "answer.parquet", "--force").status == 0
        assert pq.read_table("answer.parquet").num_rows == rows
    assert command("query", "data", "SELECT", "-o", "answer.esdb").status == 2
    assert command("tail", "data", "SELECT", "-f", "--format", "parquet").status == 2
    table = command("query", "data", "SELECT LIMIT 1", "--format", "table").text
    assert table.split() == [
        "ts", "tags", "msg", "fields", table.split()[4], "1970-01-01T00:00:00.000001Z", "{app=web}", "one", '{"n":',
        '"5"}',
    ]  # fmt: skip
    csv = command("query", "data", "SELECT LIMIT 1", "--format", "csv").text
    assert csv.splitlines()[0].replace('"', "") == "ts,tags,msg,fields"
    csv = command("query", "data", "SELECT COUNT GROUP BY app", "--format", "csv").text
    assert csv.splitlines() == ['"app","count"', '"db",1', '"web",2']
    assert command("query", "data", "SHOW PARTITIONS").rows[0]["records"] == 2
    assert "total records: 3" in command("query", "data", "SHOW PARTITIONS", "--format", "table").text
    assert command("query", "data", "-", stdin=b"SELECT COUNT").rows == [{"count": 3}]


def test_numbers_that_json_lacks(command, streams, tmp_path):
    """NaN is null in each format that shows fields as JSON."""
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        catalog.write({"app": "odd"}, pa.table({"ts": [9], "msg": ["x"], "load": [math.nan]}))
    for format_, shown in (("csv", '{""load"": null}'), ("table", '{"load": null}'), ("jsonl", '{"load": null}')):
        assert shown in command("query", "data", "SELECT FROM app = odd", "--format", format_).text


def test_statements_that_match_no_stream(command, streams):
    """SHOW PARTITIONS and TRUNCATE warn if no stream matches: other events of a topic are not in streams."""
    with aggregator.open(streams) as catalog:
        catalog.create_topic("plain").append([{"space": "a", "timestamp": 1}])
        catalog.create_topic("raw", keys="binary").append([{"space": b"a", "timestamp": 1}])
    for topic in ("plain", "raw", "nope"):
        for statement in (f"SHOW PARTITIONS topic={topic}", f"TRUNCATE topic={topic} MAXSIZE 1"):
            done = command("query", "data", statement)
            assert (done.status, done.text) == (0, "")
            assert done.err.startswith("warning: no stream matches; SHOW PARTITIONS and TRUNCATE apply only to streams")
    for statement in (
        "SHOW PARTITIONS",
        "SHOW PARTITIONS app=web",
        "TRUNCATE app=web MAXSIZE 1GB",
        "TRUNCATE app=web MAXSIZE 0",
    ):
        assert command("query", "data", statement).err == ""


def test_messages_that_are_not_text(command, tmp_path):
    """A message that is not UTF-8 prints as {"base64": …}, as in scans."""
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        catalog.write({"app": "web"}, pa.table({"ts": [1], "msg": pa.array([b"a\xff"])}))
    for verb in ("query", "tail"):
        (row,) = command(verb, "data", "SELECT", "--format", "jsonl").rows
        assert row["msg"] == {"base64": "Yf8="}
        for form in ("csv", "table"):
            assert "Yf8=" in command(verb, "data", "SELECT", "--format", form).text


@long
def test_query_as_arrow(streams):
    """Arrow output in a pipe is a stream."""
    done = subprocess.run(
        [*COMMAND, "query", str(streams), "SELECT", "--format", "arrow"], stdout=subprocess.PIPE, check=True
    )
    assert pa.ipc.open_stream(done.stdout).read_all()["data"].to_pylist() == [b"one", b"two", b"three"]


def test_wrong_statements(command, streams):
    """A wrong statement exits with status 2 and shows where the error is."""
    done = command("query", "data", "SELECT FROM app lik 'w*'")
    assert (done.status, done.text) == (2, "")
    assert done.err.splitlines()[0].startswith('aggregator: "lik" was not expected here; did you mean LIKE?')
    assert done.err.splitlines()[2].strip() == "^^^"
    for arguments in (
        ("query", "SELECT LIMIT x"),
        ("tail", "SELECT COUNT"),
        ("forward", "SHOW PARTITIONS", "--to", "-"),
    ):
        done = command(arguments[0], "data", *arguments[1:])
        assert (done.status, done.text) == (2, ""), arguments


def test_tail_of_a_statement(command, streams):
    """`tail` prints the last matching records; with -f also new ones."""
    assert [row["msg"] for row in command("tail", "data", "SELECT", "-n", "2").rows] == ["two", "three"]
    assert command("tail", "data", "select '{msg}' FROM app = web", "-n", "1").text == "three\n"
    assert [r["msg"] for r in command("tail", "data", "SELECT FROM app = web POSITION HEAD").rows] == ["one", "three"]
    assert command("tail", "data", "SELECT", "--partition", "0").status == 2
    assert command("tail", "data", "selection").status == 2
    with subprocess.Popen(
        [*COMMAND, "tail", str(streams), "SELECT '{msg}' FROM app = new", "-f"], stdout=subprocess.PIPE
    ) as following:
        guard = threading.Timer(PATIENCE_S, following.kill)
        guard.start()
        with aggregator.open(streams) as catalog:
            deadline = time.monotonic() + PATIENCE_S
            while not select.select([following.stdout], [], [], 0.1)[0]:
                assert time.monotonic() < deadline
                catalog.write({"app": "new"}, [{"msg": "came"}])
        assert following.stdout.readline() == b"came\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(PATIENCE_S) == 130
        guard.cancel()


def test_shell_in_a_pipe(command, streams):
    """Statements end with semicolons; the first wrong one ends the shell."""
    done = command("shell", "data", stdin=b"SELECT '{msg}' WHERE msg = 'a;b' OR msg = one;\n\nSELECT COUNT\n;")
    assert (done.status, done.text) == (0, 'one\n{"count":3}\n')
    done = command("shell", "data", stdin=b"SELECT COUNT; SELEC; SELECT COUNT")
    assert done.status == 2
    assert len(done.text.splitlines()) == 1
    for asked in (b"\\help", b"help", b"HELP;"):
        assert "semicolon" in command("shell", "data", stdin=asked).text
    assert is_whole("help")
    unknown = command("shell", "data", stdin=b"\\nope")
    assert (unknown.status, unknown.text, "no such command" in unknown.err) == (2, "", True)


@pytest.mark.parametrize("end", ["exit", "quit;", "EXIT", "\\quit"])
def test_shell_ends(command, streams, end):
    """The shell also ends on the exit words of other shells; what follows is not run."""
    done = command("shell", "data", stdin=f"SELECT COUNT; {end}; SELECT COUNT".encode())
    assert (done.status, done.err) == (0, "")
    assert done.text == '{"count":3}\n'
    assert is_whole(end)


def test_shell_at_a_terminal(streams, tmp_path):
    """At a terminal the shell prompts, accepts statements over several lines, shows where errors are, and ends."""
    pytest.importorskip("prompt_toolkit")
    main, child = pty.openpty()
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "dumb", "COLUMNS": "200"}
    with subprocess.Popen(
        [*COMMAND, "shell", str(streams)], stdin=child, stdout=child, stderr=child, env=environment, close_fds=True
    ) as shell:
        guard = threading.Timer(120, shell.kill)  # otherwise a failed assertion would wait for the shell to end
        guard.start()
        os.close(child)
        seen = b""

        def until(text):
            nonlocal seen
            deadline = time.monotonic() + 60
            while text not in seen:
                assert time.monotonic() < deadline, seen
                if select.select([main], [], [], 0.2)[0]:
                    seen += os.read(main, 65536)
            seen = seen[seen.index(text) + len(text) :]

        until(b"lql> ")
        os.write(main, b"SELECT '{vars:app}<{msg}>'\r")
        os.write(main, b"WHERE msg = two;\r")
        until(b"db<two>")
        os.write(main, b"SELEC;\r")
        until(b"did you mean SELECT?")
        os.write(main, b"\\format csv\r")
        os.write(main, b"SELECT COUNT;\r")
        until(b"count")
        os.write(main, b"\\quit\r")
        assert shell.wait(120) == 0
        guard.cancel()
    os.close(main)
    assert "WHERE msg = two" in (tmp_path / "state" / "aggregator" / "history").read_text()


@pytest.mark.parametrize(("streams", "greeted"), [(1, "1 stream."), (2, "2 streams.")])
def test_shell_greets(monkeypatch, capsys, streams, greeted):
    """The shell greets with the number of streams."""
    session = SimpleNamespace(prompt=mock.Mock(side_effect=EOFError))
    monkeypatch.setattr(Shell, "_session", lambda self: session)
    Shell("data", SimpleNamespace(streams=lambda: [None] * streams), None).interact()
    assert capsys.readouterr().out == f"data: {greeted} Type \\help for help.\n"


def test_where_statements_end():
    """A semicolon in quotes or braces does not end a statement."""
    text = 'SELECT WHERE msg = \';\' AND msg != "\\";"; SHOW PARTITIONS {a=";",b=x;y} ;; SELECT `;` '
    ended, rest = split(text)
    assert ended == ['SELECT WHERE msg = \';\' AND msg != "\\";"', 'SHOW PARTITIONS {a=";",b=x;y}']
    assert rest == " SELECT `;` "
    assert split("SELECT 'open") == ([], "SELECT 'open")
    assert [is_whole(one) for one in ("SELECT", "SELECT;", "SELECT\n", "\\help", "", "SELECT ';")] == [
        False, True, True, True, True, False
    ]  # fmt: skip


def test_completion():
    """Keywords and tag names are completed, and tag values after a tag."""
    streams = [{"app": "web", "zone": "eu"}, {"app": "web store", "pod": "p1"}]

    def words(before):
        return [text for text, _ in completions(before, streams, ["errors", "warnings"])]

    assert words("SEL") == ["SELECT"]
    assert words("SELECT FROM ap") == ["app"]
    assert words("SELECT FROM app = w") == ["web", '"web store"'][:1]
    assert words("SELECT FROM app = ") == ["web", '"web store"']
    assert words("SELECT FROM {zone=eu,p") == ["pod"]
    assert words("DELETE PIPE e") == ["errors"]
    assert list(completions("select fr", streams)) == [("FROM", 2)]
    assert words("SELECT SU") == ["SUFFIX", "SUM("]
    columns = ["price", "zone id", "select"]
    assert [text for text, _ in completions("SELECT WHERE z", streams, names=columns)] == ["zone", "`zone id`"]
    assert [text for text, _ in completions("SELECT FROM {p", streams, names=columns)] == ["pod"]


def test_collect(command, streams, monkeypatch):
    """`collect` stores files in a catalog; the second run finds nothing new."""
    Path("logs").mkdir()
    Path("logs/a.log").write_text("first\nsecond")
    arguments = ("collect", "--path", "logs/*.log", "--into", "data", "--tags", "app=files", "--file-tag", "", "--once")
    assert command(*arguments).text == "2 lines, 2 without a time\n"
    assert command(*arguments, "--json").json["lines"] == 0
    assert command("query", "data", "SELECT '{msg}' FROM app = files").text == "first\nsecond\n"
    assert command("collect", "--path", "x").status == 2
    assert "give the catalog with --into" in command("collect", "data", "--path", "x").err
    monkeypatch.setattr(collect_command, "ONCE_PATIENCE_S", 0.2)
    away = f"http://127.0.0.1:{free_port()}"
    told = command("collect", "--path", "logs/*.log", "--into", away, "--once")
    assert told.status == 1
    assert "cannot be reached" in told.err
    assert command("collect", "--path", "x", "--into", "data", "--line-format", "xml").status == 2
    assert command("collect", "--path", "x", "--into", "nowhere").status == 2


def test_collect_until_it_is_ended(streams, tmp_path):
    """A signal ends `collect` after the batch it is storing; everything written before is there."""
    (tmp_path / "a.log").write_text("first\n")
    state = tmp_path / "notes.json"
    with subprocess.Popen(
        [*COMMAND, "collect", "--path", str(tmp_path / "*.log"), "--into", str(streams), "--state", str(state)],
        stdout=subprocess.PIPE,
    ) as collecting:
        deadline = time.monotonic() + PATIENCE_S
        while not state.exists() or json.loads(state.read_text())["sequence"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        collecting.terminate()
        assert collecting.wait(PATIENCE_S) == 0
        assert collecting.stdout.read() == b"1 line, 1 without a time\n"


def test_forward(command, streams):
    """`forward` sends existing records to a file once; the second run finds nothing new."""
    arguments = ("forward", "data", "SELECT '{msg}' POSITION HEAD", "--to", "file:out.txt", "--once")
    assert command(*arguments).text == "3 records sent\n"
    assert Path("out.txt").read_text() == "one\ntwo\nthree\n"
    assert command(*arguments).text == "0 records sent\n"
    assert command("forward", "data", "SELECT", "--to", "nowhere").status == 2


@pytest.mark.parametrize("statement", ["SELECT", "SELECT COUNT"])
@pytest.mark.parametrize(("name", "read"), [("x.parquet", pq.read_table), ("x.arrow", feather.read_table)])
def test_a_file_from_a_terminal(tmp_path, monkeypatch, statement, name, read):
    """-o FILE ignores the terminal on standard output: a file of Arrow is in the file format, not a stream."""
    with aggregator.open(tmp_path / "data") as catalog:
        catalog.write({"app": "web"}, [{"ts": 1, "msg": "hi"}])
    monkeypatch.setattr("esformat.cli.output.is_terminal", lambda _: True)
    assert run(["query", str(tmp_path / "data"), statement, "-o", str(tmp_path / name)]) == 0
    assert read(tmp_path / name).num_rows == 1
