"""Paths of globs: those that Python's `glob` finds, except for circular links."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pytest

from aggregator.collect import globs
from aggregator.collect.globs import paths_of

NAMES = ["f.log", "a/f.log", "a/b/f.log", "a/b/.g.log", ".h/f.log", "b/a/x[1].log", "b/c d/z.txt", "x[1]/f.log"]
PATTERNS = [
    "**", "**/*", "**/*.log", "a/**", "a/**/*.log", "**/a/*", "*/**/f.log", "**/b/**/*.log", "**/**", "*", "?/f.log",
    "**/.g.log", "**/", "**.log", "x[[]1]/**", "nothing/**", ".h/**",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("absolute", [False, True])
def test_as_glob_finds_them(tmp_path, monkeypatch, pattern, absolute):
    """Hidden files, names with brackets, and relative and absolute patterns match as in `glob`."""
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    asked = f"{glob.escape(str(tmp_path))}/{pattern}" if absolute else pattern
    found = glob.iglob(asked, recursive=True)  # noqa: PTH207 - the reference
    expected = {path for path in found if Path(path).is_file()}
    assert {path for path in paths_of(asked) if Path(path).is_file()} == expected


def test_a_circle(tmp_path):
    """With two links that lead back, files are found once on each path without a circle."""
    (tmp_path / "a").mkdir()
    (tmp_path / "f.log").touch()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path / "a")
    assert [*paths_of(f"{tmp_path}/**/*.log")] == [f"{tmp_path}/f.log"]


def test_paths_without_links(tmp_path, monkeypatch):
    """Links to folders and files are resolved, relative paths too, and each folder only once."""
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / name).touch()
    (tmp_path / "link").symlink_to("in")
    (tmp_path / "in" / "c").symlink_to("a")
    monkeypatch.chdir(tmp_path)
    real = os.path.realpath
    resolved = []
    monkeypatch.setattr(globs.os.path, "realpath", lambda path: resolved.append(path) or real(path))
    paths = ["in/a", "in/b", "in/c", "link/a", str(tmp_path / "link/c")]
    assert [(path, place.rpartition("/")[2]) for path, place in globs.real_paths(paths)] == [
        *zip(paths, ("a", "b", "a", "a", "a"), strict=True)
    ]
    assert all(os.path.samefile(path, place) for path, place in globs.real_paths(paths))  # noqa: PTH121
    assert resolved.count("in") == 2
