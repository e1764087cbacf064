"""`esdb convert`: formats by name or as asked, and one line for whatever goes wrong."""

from __future__ import annotations

import shutil

import pytest

import esformat
from esformat.cli import run

from .conftest import ROOT

GO = ROOT / "fixtures" / "go_esdb"


@pytest.fixture
def segment(tmp_path):
    """A segment with a payload that is no text, in a directory of its own."""
    path = tmp_path / "a.esdb"
    with esformat.create(path, indexes=["type"]) as writer:
        writer.add("s", b"\xff\x00", timestamp=1_000_000, indexes={"type": ""})
        writer.add("s", b"", timestamp=2_000_000)
    return path


@pytest.mark.parametrize("extension", ["parquet", "arrow", "feather", "csv", "jsonl"])
def test_there_and_back(segment, tmp_path, capsys, extension):
    """The segment that comes back has the same bytes."""
    between, back = tmp_path / f"b.{extension}", tmp_path / "c.esdb"
    assert run(["convert", str(segment), str(between)]) == 0
    assert run(["convert", str(between), str(back), "--schema", str(segment)]) == 0
    assert back.read_bytes() == segment.read_bytes()
    out = capsys.readouterr()
    assert out.out.startswith(f"{between}: 2 events in ")
    assert out.err == ""


def test_go_files(tmp_path, capsys):
    """A file of the Go ESDB is known by its bytes, whatever it is called; --to names the one to write."""
    source, between, back = (tmp_path / name for name in ("old.esdb", "new.esdb", "again.esdb"))
    shutil.copy(GO / "small.esdb", source)
    assert run(["convert", str(source), str(between)]) == 0
    assert run(["convert", str(between), str(back), "--to", "go-esdb"]) == 0
    assert back.read_bytes() == source.read_bytes()
    assert run(["convert", str(GO / "stream_torn.esdbstream"), str(tmp_path / "s.jsonl")]) == 0
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 300
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["a.esdb", "b.xyz"], 2, "does not tell a format"),
        (["missing.esdb", "b.csv"], 1, "no such file"),
        (["a.esdb", "a.esdb"], 2, "exists"),
        (["a.esdb", "b.esdb", "--to", "go-esdb"], 1, "empty data"),
        (["a.esdb", "b.esdbstream"], 1, "keeps no space"),
        (["broken.esdb", "b.csv"], 1, "Go ESDB"),
        (["a.esdb", "b.csv", "--from", "go-esdb"], 2, "segment of esformat"),
    ],
)
def test_refusals(segment, tmp_path, monkeypatch, capsys, arguments, status, message):
    """One line on stderr, and nothing written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.esdb").write_bytes(b"nothing of the kind")
    before = sorted(tmp_path.iterdir())
    assert run(["convert", *arguments]) == status
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_force(segment, tmp_path):
    """--force replaces a target."""
    target = tmp_path / "b.csv"
    target.write_text("old")
    assert run(["convert", str(segment), str(target)]) == 2
    assert run(["convert", str(segment), str(target), "--force"]) == 0
    assert target.read_text().startswith('"space"')
