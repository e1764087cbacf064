"""`esdb convert`: formats by file name or option, and one line for each error."""

from __future__ import annotations

import shutil

import pytest

import esformat
from esformat.cli import run
from esformat.convert import Conversion, convert_file
from tests.esformat.cli.conftest import ROOT

GO = ROOT / "fixtures" / "go_esdb"


@pytest.fixture
def segment(tmp_path):
    """A segment that has a payload that is not text, in a fresh directory."""
    path = tmp_path / "a.esdb"
    with esformat.create(path, indexes=["type"]) as writer:
        writer.add("s", b"\xff\x00", timestamp=1_000_000, indexes={"type": ""})
        writer.add("s", b"", timestamp=2_000_000)
    return path


@pytest.mark.parametrize("extension", ["parquet", "arrow", "feather", "csv", "jsonl"])
def test_there_and_back(segment, tmp_path, capsys, extension):
    """A segment converted there and back has the same bytes."""
    between, back = tmp_path / f"b.{extension}", tmp_path / "c.esdb"
    assert run(["convert", str(segment), str(between)]) == 0
    assert run(["convert", str(between), str(back), "--schema", str(segment)]) == 0
    assert back.read_bytes() == segment.read_bytes()
    out = capsys.readouterr()
    assert out.out.startswith(f"{between}: 2 events in ")
    assert out.err == ""


def test_go_files(tmp_path, capsys):
    """A file of the Go ESDB is recognised by its bytes, whatever its name; `--format` writes one."""
    source, between, back = (tmp_path / name for name in ("old.esdb", "new.esdb", "again.esdb"))
    shutil.copy(GO / "small.esdb", source)
    assert run(["convert", str(source), str(between)]) == 0
    assert run(["convert", str(between), str(back), "--format", "go-esdb"]) == 0
    assert back.read_bytes() == source.read_bytes()
    assert run(["convert", str(GO / "stream_torn.esdbstream"), str(tmp_path / "s.jsonl")]) == 0
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 300
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["a.esdb", "b.xyz"], 2, "cannot tell a format"),
        (["missing.esdb", "b.csv"], 1, "no such file"),
        (["a.esdb", "a.esdb"], 2, "exists"),
        (["a.esdb", "b.esdb", "--format", "go-esdb"], 1, "empty data"),
        (["a.esdb", "b.esdbstream"], 1, "keeps no space"),
        (["broken.esdb", "b.csv"], 1, "Go ESDB"),
        (["a.esdb", "b.csv", "--input-format", "go-esdb"], 2, "segment of esformat"),
    ],
)
def test_refusals(segment, tmp_path, monkeypatch, capsys, arguments, status, message):
    """A refused conversion prints one line on stderr and writes nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.esdb").write_bytes(b"nothing of the kind")
    before = sorted(tmp_path.iterdir())
    assert run(["convert", *arguments]) == status
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_force(segment, tmp_path):
    """`--force` replaces the target."""
    target = tmp_path / "b.csv"
    target.write_text("old")
    assert run(["convert", str(segment), str(target)]) == 2
    assert run(["convert", str(segment), str(target), "--force"]) == 0
    assert target.read_text().startswith('"space"')


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["a.csv", "b.parquet"], "give --schema FILE, the segment that it came from"),
        (["a.csv", "b.esdb", "--schema", "a.csv"], "--schema takes a segment"),
        (["u.csv", "b.esdb", "--schema", "a.esdb"], "no column 'space', which the schema has; without --schema"),
        (["u.csv", "b.esdb"], "choose the columns with --space and --timestamp"),
        (["a.csv", "b.esdb", "--schema", "a.esdb", "--index", "type"], "--index does not apply"),
        (["a.esdb", "b.esdb", "--space", "who"], "--space does not apply: a.esdb defines its own columns"),
        (["n.jsonl", "b.esdb"], "--on-error collect FILE (with `esdb write`)"),
        (["n.jsonl", "b.esdb", "--schema", "a.esdb"], "no member 'grouping'; without --schema"),
        (["a.esdb", "a.csv"], "choose another name, or --force"),
    ],
)
def test_what_to_do(segment, tmp_path, monkeypatch, capsys, arguments, hint):
    """Each refusal suggests a fix, with the option names of this command."""
    monkeypatch.chdir(tmp_path)
    assert run(["convert", "a.esdb", "a.csv", "--allow-loss"]) == 0
    (tmp_path / "u.csv").write_text("user,when\nann,2024-01-01\n")
    (tmp_path / "n.jsonl").write_text('{"space": "a", "timestamp": "soon", "data": "x"}\n')
    assert run(["convert", *arguments]) != 0
    assert hint in capsys.readouterr().err


def test_notes(tmp_path, monkeypatch, capsys):
    """A conversion without the original schema prints a note."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("space,grouping,timestamp,type\na,g,2024-01-01T00:00:00Z,page\n")
    assert run(["convert", "a.csv", "a.esdb"]) == 0
    out = capsys.readouterr().out
    assert "name that with --schema" in out
    assert run(["convert", "a.csv", "b.esdb", "--grouping", "grouping", "--index", "type"]) == 0
    assert "note" not in capsys.readouterr().out
    (tmp_path / "n.jsonl").write_text('{"space": "a", "timestamp": 1700000000}\n')
    assert run(["convert", "n.jsonl", "n.esdb"]) == 0
    out = capsys.readouterr().out
    assert "--timestamp-format changes that (with `esdb write`)\n" in out
    assert "name that with --schema\n" in out


@pytest.mark.parametrize("between", ["b.parquet", "b.arrow", "b.arrows", "b.csv", "b.jsonl", "b-go.esdb"])
def test_progress(tmp_path, between):
    """Progress reports how much of the source has been read; at the end that is nearly all of it."""
    path, other = tmp_path / "a.esdb", tmp_path / between
    with esformat.create(path, indexes=["type"]) as writer:
        for i in range(3000):
            writer.add("s", b"payload %d" % i, timestamp=i * 1_000_000, indexes={"type": "t"})
    for source, target in ((path, other), (other, tmp_path / "c.esdb")):
        told = []
        kind = "go-esdb" if target.name == "b-go.esdb" else None
        how = Conversion(schema=str(path), target_format=kind)
        convert_file(str(source), str(target), how, progress=lambda *pair, told=told: told.append(pair))
        assert told
        assert told == sorted(told)
        size = source.stat().st_size
        assert {total for _, total in told} == {size}
        assert 0.9 * size <= told[-1][0] <= size


def test_stores(segment, s3, bucket, tmp_path, capsys):
    """Segments are read from a store, and files of other formats are written to one."""
    place = f"s3://{bucket}/{{}}".format
    assert run(["convert", str(segment), place("a.parquet")]) == 0
    s3.client.upload_file(str(segment), bucket, "a.esdb")
    assert run(["convert", place("a.esdb"), str(tmp_path / "b.parquet")]) == 0
    s3.client.download_file(bucket, "a.parquet", str(tmp_path / "a.parquet"))
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert capsys.readouterr().err == ""


def test_columns_that_go_lacks(tmp_path, monkeypatch, capsys):
    """The error for a column without an index names commands that can help; `convert` has no option for that."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("space,timestamp,n\na,2026-01-01,1\n")
    assert run(["write", "in.esdb", "in.csv"]) == 0
    assert run(["convert", "in.esdb", "go.esdb", "--format", "go-esdb"]) == 1
    assert capsys.readouterr().err.endswith("select other columns with `esdb scan`, or index it with `esdb reindex`\n")
