"""The demo from the file on, and `aggregator` as processes of its own: killed, followed, terminated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from clicks import click_table

import aggregator
import esformat

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "aggregator")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "200"}


def test_demo(command, tmp_path, monkeypatch):
    """It finds everything acknowledged, appends the rest once, and leaves no trace of what it erased."""
    pytest.importorskip("rich")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "200")
    output = tmp_path / "out"
    output.mkdir()
    for name, rows in (("small", 1_500), ("large", 30_000)):
        with esformat.create(output / f"{name}.esdb", indexes=["type"]) as writer:
            writer.add_table(click_table(rows))
    result = command("demo", "--output", output)
    assert (result.status, result.err) == (0, "")
    assert "killed" in result.text
    assert "every acknowledged event is there" in result.text
    assert "1,500 events, none lost and none twice" in result.text
    assert "no trace is left on disk" in result.text
    assert "problems found: 0" in result.text
    assert "histories over HTTP" in result.text
    assert "stopped with status 0: every record of the log is there" in result.text
    assert command("demo", "--output", output).status == 0  # in the place of the last one


def test_demo_without_files(command, tmp_path):
    """Says what to do first."""
    result = command("demo", "--output", tmp_path)
    assert result.status == 2
    assert "run `esdb demo` first" in result.err


def test_tail_follows(clicks):
    """Events that another process appends are printed as they come; an interrupt ends it quietly."""
    with subprocess.Popen(
        [*COMMAND, "tail", str(clicks), "clicks", "-n", "1", "-f"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as process:  # fmt: skip
        guard = threading.Timer(20, process.kill)
        guard.start()
        assert json.loads(process.stdout.readline())["space"] == "ada"
        with aggregator.open(clicks) as catalog:
            topic = catalog.topic("clicks")
            topic.append([{"space": "one", "timestamp": 5}])
            assert json.loads(process.stdout.readline())["space"] == "one"
            topic.append([{"space": "two", "timestamp": 6, "new": 1}], "a new partition")
            catalog.seal()
            found = json.loads(process.stdout.readline())
            assert (found["space"], found["partition"], found["new"]) == ("two", "a new partition", 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr.read() == b"aggregator: interrupted\n"
        guard.cancel()


def test_output_that_nobody_reads(clicks):
    """`head` has seen enough: no error."""
    line = f"{sys.executable} -m aggregator scan {clicks} clicks --format jsonl | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, env=ENVIRONMENT, timeout=30, check=True)
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"")
