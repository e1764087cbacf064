"""Events from git: its log is parsed whatever names and subjects contain."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from examples.demo import git_history
from examples.demo.git_history import parse_log, read_git_history

LOG = "\0".join(
    [
        "\x01aaa\x021700000000\x02Ada Ö\x02third: \"quoted\" \\ and\ttab",
        "\n:100644 100644 1 2 M", "src/ä b.py",
        ":100644 000000 1 0 D", "bin\nary", "3\t1\tsrc/ä b.py", "-\t-\tbin\nary",
        "\x01bbb\x021600000000\x02Bob\x02empty commit",
        "\x01ccc\x021500000000\x02Bob\x02",
        "\n:000000 100644 0 1 A", "Makefile", "10\t0\tMakefile", "",
    ]
)  # fmt: skip


def test_log_is_parsed():
    """There is one event per file and commit: path, author, time, kind of change, and payload."""
    rows = list(parse_log(LOG))
    assert [(row["space"], row["grouping"], row["timestamp"], row["change"], row["suffix"]) for row in rows] == [
        ("src/ä b.py", "Ada Ö", 1_700_000_000_000_000, "modified", ".py"),
        ("bin\nary", "Ada Ö", 1_700_000_000_000_000, "deleted", None),
        ("Makefile", "Bob", 1_500_000_000_000_000, "added", None),
    ]
    assert [json.loads(row["data"]) for row in rows] == [
        {"commit": "aaa", "subject": 'third: "quoted" \\ and\ttab', "added": 3, "removed": 1},
        {"commit": "aaa", "subject": 'third: "quoted" \\ and\ttab'},
        {"commit": "ccc", "subject": "", "added": 10, "removed": 0},
    ]


def test_empty_log():
    """A repository without commits has no events."""
    assert list(parse_log("")) == []


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with two commits, independent of the user's git configuration."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # a hook that runs the tests sets some
    hostile = tmp_path / "gitconfig"
    hostile.write_text("[log]\nshowSignature = true\n[diff]\nrenames = copies\nrelative = true\n[color]\nui = always\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(hostile))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ada@example.org")
        monkeypatch.setenv(f"GIT_{role}_DATE", "1700000000 +0200")
    folder = tmp_path / "checkout"
    (folder / "sub").mkdir(parents=True)
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    (folder / "ä b.txt").write_text("one\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "first"], check=True)
    (folder / "ä b.txt").rename(folder / "sub" / "c.txt")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "second"], check=True)
    return folder


def test_repository_is_read(repository, monkeypatch):
    """Real git output is read from any folder of the checkout; a move is a deletion and an addition."""
    monkeypatch.setattr(git_history, "EVENTS_AT_LEAST", 1)
    monkeypatch.setattr(git_history, "COMMITS_AT_LEAST", 1)
    events = read_git_history(repository / "sub")
    assert events is not None
    assert events.indexes == ("change", "author", "suffix")
    rows = events.table.to_pylist()
    assert {(row["space"], row["change"], row["timestamp"].timestamp()) for row in rows} == {
        ("ä b.txt", "added", 1_700_000_000),
        ("ä b.txt", "deleted", 1_700_000_000),
        ("sub/c.txt", "added", 1_700_000_000),
    }
    assert {json.loads(row["data"])["subject"] for row in rows} == {"first", "second"}


def test_too_little_history(repository):
    """A history of two commits is too short."""
    assert read_git_history(repository) is None


def test_no_repository(tmp_path, monkeypatch):
    """Outside a checkout, or without git, there is no history."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert read_git_history(tmp_path) is None
    monkeypatch.setattr(git_history.shutil, "which", lambda name: None)
    assert read_git_history(tmp_path) is None
