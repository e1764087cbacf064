"""The second half of the demo: a catalog, from the files on."""

from __future__ import annotations

from pathlib import Path

import effort
import pytest
from clicks import click_table

import esformat
from examples.demo import crash
from examples.demo.__main__ import run

ROOT = Path(__file__).parents[2]


def test_demo(capsys, tmp_path, monkeypatch):
    """It finds everything acknowledged, appends the rest once, and leaves no trace of what it erased."""
    pytest.importorskip("rich")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "200")
    if not effort.ALL:
        monkeypatch.setattr(crash, "HISTORIES", 20)
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
    assert "1,500 events, none lost and none twice" in shown
    assert "no trace is left on disk" in shown
    assert "problems found: 0" in shown
    assert "histories over HTTP" in shown
    assert "stopped with status 0: every record of the log is there" in shown
    if effort.ALL:
        assert run(["catalog", "--output", str(output)]) == 0  # in the place of the last one


def test_demo_without_files(capsys, tmp_path):
    """Says what to do first."""
    assert run(["catalog", "--output", str(tmp_path)]) == 1
    assert "run `python -m examples.demo files` first" in capsys.readouterr().err
