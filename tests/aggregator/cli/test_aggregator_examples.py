"""The examples that `--help` of each verb shows work as they are written, but for what shells add to them."""

from __future__ import annotations

import gzip
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import esformat
from aggregator.cli import main

SHOWN_ELSEWHERE = {"demo", "bench"}  # which take seconds
ENDLESS = " -f"


def examples(name: str) -> list[str]:
    """Take the commands from the end of a verb's help."""
    lines = [line.strip() for line in main.commands[name].epilog.splitlines() if "aggregator " in line]
    return [command for line in lines if ENDLESS not in line for command in line.split(" && ")]


def parts(line: str) -> tuple[list[str], bytes]:
    """The arguments of the `aggregator` in a pipeline, and its standard input."""
    stdin = b""
    for stage in line.split(" | "):
        words = shlex.split(stage)
        if words[0] == "cat":
            stdin = Path(words[1]).read_bytes()
        elif words[0] == "aggregator":
            return words[1:], stdin
    raise AssertionError(line)


@pytest.mark.parametrize("name", [name for name in main.commands if name not in SHOWN_ELSEWHERE])
def test_examples(command, clicks, name):
    """Each line runs, one after the other, and prints something."""
    table = pa.table(
        {"who": ["ann"], "at": ["2026-03-01"], "space": ["ann"], "timestamp": ["2026-03-01"], "type": [""]}
    )
    for file in ("monday.parquet", "activity.parquet"):
        pyarrow.parquet.write_table(table, file)
    Path("tuesday.csv.gz").write_bytes(gzip.compress(b"who,at\nann,2026-03-02\n"))
    with esformat.create("activity.esdb", indexes=["type"]) as writer:
        writer.add("ann", b"", timestamp=1, indexes={"type": "page"})
    if name == "init":
        shutil.rmtree(clicks)
    lines = examples(name)
    assert len(lines) >= 2
    for line in lines:
        arguments, stdin = parts(line)
        done = command(*arguments, stdin=stdin)
        assert (done.status, done.err) == (0, ""), line
        assert done.text or "-o" in arguments, line
