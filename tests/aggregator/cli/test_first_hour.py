"""What users see when they first collect and query their own logs."""

from __future__ import annotations

import gzip

import pytest

LINES = "2026-03-01T08:00:00Z GET /a 12\n2026-03-01T08:00:01Z GET /b 30\n"


@pytest.fixture
def logs(command, tmp_path):
    """A folder of logs, and an empty catalog."""
    (tmp_path / "logs/deep").mkdir(parents=True)
    (tmp_path / "logs/a.log").write_text(LINES)
    (tmp_path / "logs/deep/b.log").write_text(LINES)
    assert command("init", "data").status == 0
    return tmp_path / "logs"


def collected(command, *paths: str) -> str:
    arguments = [argument for path in paths for argument in ("--path", path)]
    result = command("collect", *arguments, "--into", "data", "--once")
    assert (result.status, result.err) == (0, "")
    return result.text.strip()


def test_another_pattern_collects_nothing_twice(command, logs):
    """Lines collected by one pattern are not collected again by another."""
    assert collected(command, "logs/*.log").startswith("2 lines")
    assert collected(command, "logs/**/*.log").startswith("2 lines")
    assert command("query", "data", "SELECT COUNT").rows == [{"count": 4}]


def test_a_folder(command, logs, caplog):
    """A folder means all files below it; a folder without files is reported like a pattern without a match."""
    assert collected(command, "logs/").startswith("4 lines")
    (logs / "empty").mkdir()
    nothing = command("collect", "--path", "logs/empty", "--into", "data", "--once")
    assert (nothing.status, "no file matches logs/empty" in caplog.text) == (1, True)


def test_mistyped_names_are_told(command, logs):
    """A key or measure that no record has is reported next to the answer."""
    collected(command, "logs/*.log")
    for statement in ("SELECT SUM(size)", "SELECT COUNT GROUP BY size", "SELECT DISTINCT size"):
        answer = command("query", "data", statement)
        assert answer.status == 0
        assert "size" in answer.err
        assert "no record that was read has a" in answer.err


@pytest.mark.parametrize("statement", ["SELECT msg LIMIT 1", "SELECT * LIMIT 1"])
def test_columns_behind_select(command, logs, statement):
    """Column names after SELECT, as in SQL, are refused with an explanation of what SELECT expects."""
    answer = command("query", "data", statement)
    assert answer.status == 2
    assert "SELECT" in answer.err.partition("\n")[0]


def test_compressed_files_are_told(command, logs, caplog):
    """Compressed files are skipped unless requested, and the skip is reported."""
    (logs / "old.log.gz").write_bytes(gzip.compress(LINES.encode()))
    result = command("collect", "--path", "logs/old*", "--into", "data", "--once")
    assert result.text.startswith("0 lines")
    assert "logs/old*: skipped 1 compressed files (.gz); --compressed once reads them" in caplog.text
    again = command("collect", "--path", "logs/old*", "--into", "data", "--once", "--compressed", "once")
    assert again.text.startswith("2 lines")


def test_an_import_with_indexes_runs_twice(command, tmp_path):
    """`import` accepts an existing topic that already has the requested indexes and kind of keys."""
    (tmp_path / "x.csv").write_text("who,at,type\nada,2026-03-01,page\n")
    words = ["import", "data", "t", "x.csv", "--space", "who", "--timestamp", "at", "--index", "type", "--keys", "text"]
    assert command("init", "data").status == 0
    for count in (1, 2):
        assert command(*words).status == 0
        assert len(command("scan", "data", "t", "--index", "type=page").rows) == count


@pytest.mark.parametrize("line_count", [2, 10_000])
@pytest.mark.parametrize("kept", [0.5, -1])
def test_compressed_files_that_are_cut_off(command, logs, caplog, line_count, kept):
    """A .gz file that ends too early is reported, however short it is, and the exit status is 1."""
    packed = gzip.compress(b"".join(b"%d %s\n" % (at, LINES.encode()) for at in range(line_count)))
    (logs / "old.log.gz").write_bytes(packed[: int(len(packed) * kept)] if kept > 0 else packed[:kept])
    words = ["collect", "--path", "logs/old*", "--into", "data", "--once", "--compressed", "once"]
    result = command(*words)
    assert (result.status, result.text) == (1, "0 lines, 1 file not read\n")
    assert "old.log.gz" in caplog.text
    assert "its compressed data ends too early: it is cut off, or still being written" in caplog.text
    (logs / "old.log.gz").write_bytes(packed)
    again = command(*words)
    assert (again.status, again.text) == (0, f"{2 * line_count:,} lines\n")


@pytest.mark.parametrize("line_count", [2, 10_000])
@pytest.mark.parametrize("damage", ["checksum", "size", "rest"])
def test_compressed_files_that_are_damaged(command, logs, caplog, line_count, damage):
    """A .gz file whose checksum or size is wrong, or that has other bytes after its end, is damaged, however short."""
    packed = gzip.compress(b"".join(b"%d %s\n" % (at, LINES.encode()) for at in range(line_count)))
    made = {"checksum": packed[:-8] + bytes(4) + packed[-4:], "size": packed[:-4] + bytes(4), "rest": packed + b"rest"}
    (logs / "old.log.gz").write_bytes(made[damage])
    result = command("collect", "--path", "logs/old*", "--into", "data", "--once", "--compressed", "once")
    assert (result.status, result.text) == (1, "0 lines, 1 file not read\n")
    assert (
        "bytes after its compressed data" if damage == "rest" else "its compressed data is damaged: "
    ) in caplog.text
