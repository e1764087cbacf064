"""Which files are new to a job, decided by their content. No Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clicks import click_table, write_clicks

import esformat
from esformat import tools
from esformat.spark import identity
from esformat.spark.identity import content_identity, joined, origin_of
from esformat.spark.jobs.inputs import InputFile
from esformat.spark.jobs.ledger import ledger, not_done
from esformat.spark.jobs.summary import Summary


def look(folder, *ledgers, kind="csv"):
    """Names of the new files, the summary, and the ledger entries once they are processed."""
    summary = Summary("test")
    found = [InputFile.at(str(path)) for path in sorted(folder.rglob("*.*")) if path.is_file()]
    todo = not_done(found, kind, ledgers, "there", summary)
    return [os.path.relpath(file.path, folder) for file in todo], summary, ledger(todo)


def test_moved_and_copied(tmp_path):
    """A renamed file is recognized if its old name is not among the files; copies beside each other are two files."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("space,timestamp\n1,2\n")
    (tmp_path / "c.csv").write_text("space,timestamp\n3,4\n")
    new, _, done = look(tmp_path)
    assert new == ["a.csv", "b.csv", "c.csv"]
    assert look(tmp_path, done[:1])[0] == ["b.csv", "c.csv"]  # like a job that was stopped and resumed
    (tmp_path / "moved").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.csv").rename(tmp_path / "moved" / f"{name}.csv")
    new, summary, _ = look(tmp_path, done)
    assert (new, summary.skipped, len(summary.notes)) == ([], 3, 3)
    assert look(tmp_path, done[1:])[0] == ["moved/b.csv"]  # of two equal files, one was processed
    (tmp_path / "moved" / "d.csv").write_text("space,timestamp\n3,4\n")
    assert look(tmp_path, done)[0] == ["moved/d.csv"]
    (tmp_path / "c.csv").write_text("space,timestamp\n5,6\n")
    assert "has changed since" in look(tmp_path, done)[1].failed[0][1]


def test_large_files_by_samples(tmp_path, monkeypatch):
    """A large file is identified by its length, its ends, and samples in between."""
    monkeypatch.setattr(identity, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(identity, "_ENDS_BYTES", 100)
    monkeypatch.setattr(identity, "_SAMPLE_BYTES", 10)
    content = bytearray(os.urandom(20_000))
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    known = content_identity(str(path))
    for place in (0, 99, 105, 19_950, 19_999):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert content_identity(str(path)) != known
    path.write_bytes(content + b"x")
    assert content_identity(str(path)) != known
    path.write_bytes(content)
    assert content_identity(str(path)) == known


@pytest.fixture
def lake(tmp_path):
    """Two segments."""
    table = click_table(600)
    for number in range(2):
        write_clicks(tmp_path / f"{number}.esdb", table.slice(300 * number, 300))
    return tmp_path


def merged(lake):
    """Merge the segments of a folder, as `compact` does."""
    paths = sorted(lake.glob("*.esdb"))
    origin = joined([origin_of(str(path)) for path in paths])
    tools.merge(paths, lake / "merged.esdb", properties=origin.as_property())
    for path in paths:
        path.unlink()


def test_merged_segments(lake):
    """Merged segments are recognized by their origins, whether merged once or twice, moved, or touched."""
    _, _, done = look(lake, kind="esdb")
    merged(lake)
    assert look(lake, done, kind="esdb")[0] == []
    (lake / "merged.esdb").rename(lake / "other.esdb")
    merged(lake)
    os.utime(lake / "merged.esdb")
    assert look(lake, done, kind="esdb")[0] == []
    new, summary, _ = look(lake, done[:1], kind="esdb")
    assert new == []
    assert "1 of the 2 files that it was merged from" in summary.failed[0][1]


def test_copies_of_segments(lake):
    """The same events under two names are processed once, whether the job sees the files together or one by one."""
    (lake / "copy.esdb").write_bytes((lake / "0.esdb").read_bytes())
    new, summary, done = look(lake, kind="esdb")
    assert new == ["0.esdb", "1.esdb"]
    assert summary.skipped == 1
    assert look(lake, done[:1], kind="esdb")[0] == ["1.esdb"]


def test_parts_of_a_merged_segment(lake):
    """A part of a merged segment that still has its note of origins counts as a new file."""
    merged(lake)
    with esformat.open(lake / "merged.esdb") as whole:
        half = next(iter(whole.spaces()))
    tools.erase(lake / "merged.esdb", lake / "part.esdb", [half])
    assert len(origin_of(str(lake / "merged.esdb")).identities) == 2
    assert len(origin_of(str(lake / "part.esdb")).identities) == 1
    assert look(lake, kind="esdb")[0] == ["merged.esdb", "part.esdb"]


def test_what_cannot_be_read_fails_alone(lake):
    """A damaged file fails alone."""
    (lake / "0.esdb").write_bytes(b"no segment")
    new, summary, _ = look(lake, kind="esdb")
    assert new == ["1.esdb"]
    assert [Path(path).name for path, _ in summary.failed] == ["0.esdb"]
