"""The demo from start to end, on few generated events."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path

import matplotlib as mpl
import pyarrow as pa
import pytest
import rich
from effort import ALL, long
from rich.console import Console

import esformat
from esformat.convert import Clock, InputOptions, Roles
from examples.demo import contest, python_files
from examples.demo.errors import DemoError
from examples.demo.event_set import EventSet
from examples.demo.own_events import read_own_events
from examples.demo.run import PICTURE, run_demo

ROOT = Path(esformat.__file__).parents[1]


@pytest.fixture(autouse=True)
def _rough_figures(monkeypatch):
    """Read fewer histories for the figures than a real run does."""
    if not ALL:
        monkeypatch.setattr(contest, "POINT_READS", 30)


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=110)


def test_whole_demo(tmp_path, console, monkeypatch):
    """The demo leaves verified files, a picture and nothing else; its output names them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    few = {"stdlib": str(Path(json.__file__).parent), "purelib": str(Path(rich.__file__).parent)}
    monkeypatch.setattr(python_files.sysconfig, "get_paths", lambda: few)  # instead of tens of thousands of files
    picture = run_demo(tmp_path / "out", console, generated_events=3_000)
    assert picture == tmp_path / "out" / PICTURE
    assert mpl.image.imread(picture).shape[2] in (3, 4)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {PICTURE, "python-files.esdb", "click-stream.esdb"}
    for name in ("python-files.esdb", "click-stream.esdb"):
        assert esformat.verify(tmp_path / "out" / name).ok
    printed = console.file.getvalue()
    for expected in ("verified", "scan_index", "JSON lines, gzip", "DuckDB", "3,000 events"):
        assert expected in printed
    last_lines = printed.splitlines()[-3:]
    assert last_lines[0].strip() == str(picture)
    for command in last_lines[1:]:  # commands that it suggests work as printed
        assert (
            subprocess.run(
                command, shell=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
            ).returncode
            == 0
        )
    assert "\x1b" not in printed  # not a terminal: no colours, no progress


@long
def test_second_run_replaces_the_first(tmp_path, console):
    """The demo can be run again into the same directory."""
    table = pa.table({"space": ["a"], "timestamp": pa.array([1], pa.timestamp("us", "UTC")), "data": [b"{}"]})
    for _ in range(2):
        run_demo(tmp_path, console, EventSet("one", "one event", table, ()))
    assert {path.name for path in tmp_path.iterdir()} == {PICTURE, "one.esdb"}


@long
def test_own_file(tmp_path, console):
    """A user's own file gets the same tour, with figures from its own events."""
    lines = ["who,when,what,price"] + [
        f"p{at % 7},2024-01-{at % 28 + 1:02},{'buy' if at % 3 else 'look'},{at}" for at in range(500)
    ]
    (tmp_path / "own.csv").write_text("\n".join(lines) + "\n")
    roles = Roles(space="who", timestamp="when", indexes=("what",), clock=Clock(None, "UTC"))
    own = read_own_events(tmp_path / "own.csv", roles, InputOptions())
    assert (own.name, own.num_events, own.indexes) == ("own", 500, ("what",))
    run_demo(tmp_path / "out", console, own)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {PICTURE, "own.esdb"}
    printed = console.file.getvalue()
    assert "Your events" in printed
    assert "price=" in printed


def test_no_events(tmp_path, console):
    """A file without events is refused."""
    table = pa.table({"space": pa.array([], pa.string()), "timestamp": pa.array([], pa.timestamp("us", "UTC"))})
    with pytest.raises(DemoError, match="no events"):
        run_demo(tmp_path / "out", console, EventSet("none", "no events", table, ()))
    assert list((tmp_path / "out").iterdir()) == []


def test_damage_ends_the_demo(tmp_path, console, monkeypatch):
    """A file that fails verification is not shown."""

    class Report:
        ok = False
        problems = ("block 3: checksum differs",)

    monkeypatch.setattr(esformat, "verify", lambda path: Report())
    table = pa.table({"space": ["a"], "timestamp": pa.array([1], pa.timestamp("us", "UTC")), "data": [b"{}"]})
    with pytest.raises(DemoError, match="does not verify: block 3"):
        run_demo(tmp_path, console, EventSet("one", "one event", table, ()))
