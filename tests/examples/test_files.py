"""The first half of the demo: its options, and one-line errors."""

from __future__ import annotations

import sys

import pytest
from effort import long

from examples.demo.__main__ import run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--space", "x"], "--space is about a file: give that with --input"),
        (["--timezone", "UTC"], "--timezone is about a file: give that with --input"),
        (["--input", "missing.csv"], "missing.csv"),
        (["--input", "own.csv", "--events", "5"], "--events is about generated events"),
        (["--events", "0"], "0 is not in the range"),
        (["--input", "own.csv", "--timezone", "Nowhere/At all"], "Nowhere/At all"),
    ],
)
def test_wrong_use(tmp_path, monkeypatch, capsys, arguments, expected):
    """Wrong usage is one line on stderr and status 2, and writes nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.csv").write_text("space,timestamp\na,2024-01-01\n")
    assert run(["files", *arguments]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not (tmp_path / "demo-output").exists()


@pytest.mark.parametrize("package", ["matplotlib", "duckdb", "pandas"])
def test_missing_extra(tmp_path, monkeypatch, capsys, package):
    """Without the extra the demo says in one line what to install."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("examples.demo")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(package), *sys.meta_path])
    assert run(["files"]) == 1
    assert capsys.readouterr().err == f'demo: the demo needs {package}: pip install "esformat[demo]"\n'


class Missing:
    """A finder that makes one package seem not installed."""

    def __init__(self, package):
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@long
def test_own_file(tmp_path, monkeypatch, capsys):
    """A user's own file is read, and the path of the picture is printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.jsonl").write_text('{"who": "ada", "at": "2024-01-01T00:00:00Z", "kind": "page"}\n')
    assert run(["files", "--input", "own.jsonl", "--space", "who", "--timestamp", "at", "--index", "kind"]) == 0
    assert "demo-output/demo.png" in capsys.readouterr().out.replace("\\", "/")
    assert (tmp_path / "demo-output" / "demo.png").stat().st_size > 10_000
