"""The second half of the demo: a catalog of the files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import effort
import httpx
import pytest
from clicks import click_table

import aggregator
import esformat
from examples.demo import crash
from examples.demo.__main__ import run

ROOT = Path(__file__).parents[2]


@effort.long
def test_demo(capsys, tmp_path, monkeypatch):
    """The demo finds everything acknowledged, appends the rest once, and leaves no traces of erased events."""
    pytest.importorskip("rich")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "200")
    if not effort.ALL:
        monkeypatch.setattr(crash, "HISTORIES", 8)
    output = tmp_path / "out"
    output.mkdir()
    for name, rows in (("small", 1_500), ("large", 6_000)):
        with esformat.create(output / f"{name}.esdb", indexes=["type"]) as writer:
            writer.add_table(click_table(rows))
    assert run(["catalog", "--output", str(output)]) == 0
    shown, error = capsys.readouterr()
    assert error == ""
    assert "killed" in shown
    assert "every acknowledged event is there" in shown
    assert "1,500 events, none lost, none duplicated" in shown
    assert "no trace is left on disk" in shown
    assert "problems found: 0" in shown
    assert "histories over HTTP" in shown
    assert "stopped with status 0: every record of the log is there" in shown
    if effort.ALL:
        assert run(["catalog", "--output", str(output)]) == 0  # replaces the last one


SERVE = """
import sys
from pathlib import Path
from examples.demo.crash import COMMAND
from examples.demo.server import serve_page
serve_page(Path(sys.argv[1]), COMMAND, lambda url: print(url, flush=True))
"""


@effort.long
def test_the_page_at_the_end(tmp_path):
    """The page prints an address that browsers can open, and ends with Ctrl-C."""
    with aggregator.open(tmp_path / "data") as catalog:
        catalog.create_topic("clicks")
    command = [sys.executable, "-c", SERVE, str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        url = process.stdout.readline().strip()
        assert 'href="#/overview"' in httpx.get(url, headers={"Accept": "text/html"}).text
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_demo_without_files(capsys, tmp_path):
    """Without files the demo says what to run first."""
    assert run(["catalog", "--output", str(tmp_path)]) == 1
    assert "run `python -m examples.demo files` first" in capsys.readouterr().err
