"""The examples in each verb's `--help` work as written, apart from what shells add to them."""

from __future__ import annotations

import gzip
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import aggregator
import esformat
from aggregator.cli import main
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http

SHOWN_ELSEWHERE = {"bench", "serve", "follow", "promote", "quarantine", "store", "restore", "completion"}
"""Verbs that take seconds, run until stopped, need a catalog with quarantined events, a second one or a store, or write
to a home directory.
"""
ENDLESS = " -f"
SERVER = "http://127.0.0.1:3030"


def examples(name: str) -> list[str]:
    """The commands at the end of a verb's help."""
    lines = [line.strip() for line in main.commands[name].epilog.splitlines() if "aggregator " in line]
    return [command for line in lines if ENDLESS not in line for command in line.split(" && ")]


def parts(line: str) -> tuple[list[str], bytes]:
    """The arguments of the `aggregator` command in a pipeline, and its standard input."""
    stdin = b""
    for stage in line.split(" | "):
        words = shlex.split(stage)
        if words[0] == "cat":
            stdin = Path(words[1]).read_bytes()
        elif words[0] == "echo":
            stdin = words[1].encode()
        elif words[0] == "aggregator":
            return words[1:], stdin
    raise AssertionError(line)


def _logs_and_streams(path: Path) -> None:
    """Create streams to query, files to collect and statements to run."""
    with aggregator.open(path) as catalog:
        catalog.write({"app": "web"}, [{"msg": "ERROR 17"}, {"msg": "ok"}])
    Path("logs").mkdir()
    Path("logs/app.log").write_text("2026-03-01T08:00:00Z started\n")
    Path("logs/app.jsonl").write_text('{"at": "2026-03-01T08:00:00Z", "took": 3}\n')
    Path("logs/access.log").write_text('::1 - - [01/Mar/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl"\n')
    Path("pods/shop_web-1/app").mkdir(parents=True)
    Path("pods/shop_web-1/app/0.log").write_text("2026-03-01T08:00:00Z started\n")
    Path("collect.toml").write_text('into = "data"\n[[files]]\npath = "logs/*.log"\n')
    Path("statements.lql").write_text("SHOW PARTITIONS;\nSELECT COUNT;\n")


@contextmanager
def _served(path: Path, line: str) -> Iterator[str]:
    """The line, with the address of a server over the catalog if the line queries one."""
    if SERVER not in line:
        yield line
        return
    Path("token").write_text("any\n")  # a server without tokens requires none
    with aggregator.open(path) as catalog, RunningServer(catalog, Settings(http=Http(bind="127.0.0.1:0"))) as server:
        yield line.replace(SERVER, server.url)


@pytest.mark.parametrize("name", [name for name in main.commands if name not in SHOWN_ELSEWHERE])
def test_examples(command, clicks, name):
    """Each line runs, in order, and prints something."""
    table = pa.table(
        {"who": ["ann"], "at": ["2026-03-01"], "space": ["ann"], "timestamp": ["2026-03-01"], "type": [""]}
    )
    for file in ("monday.parquet", "activity.parquet"):
        pyarrow.parquet.write_table(table, file)
    Path("tuesday.csv.gz").write_bytes(gzip.compress(b"who,at\nann,2026-03-02\n"))
    with esformat.create("activity.esdb", indexes=["type"]) as writer:
        writer.add("ann", b"", timestamp=1, indexes={"type": "page"})
    if name in ("query", "shell", "tail", "collect", "forward", "sql"):
        _logs_and_streams(clicks)
    if name == "init":
        shutil.rmtree(clicks)
    lines = examples(name)
    assert len(lines) >= 2
    for line in lines:
        with _served(clicks, line) as asked:
            arguments, stdin = parts(asked)
            done = command(*arguments, stdin=stdin)
        assert (done.status, done.err) == (0, ""), line
        assert done.text or "-o" in arguments or "file:web.txt" in arguments, line
