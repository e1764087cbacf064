"""Read events from a git repository: one for each file that a commit changed.

This module contains the git command line and the parser of its output, not the use of the events.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

from examples.demo.event_set import EventSet

INDEXES = ("change", "author", "suffix")
CHANGES = {"A": "added", "M": "modified", "D": "deleted", "T": "type changed"}
COMMITS_AT_MOST = 5_000  # git diffs each of them; this takes only seconds, even in a very large repository
EVENTS_AT_LEAST = 300  # fewer make no interesting history
COMMITS_AT_LEAST = 10  # in a shallow clone, one commit adds all files
GIT_SECONDS_AT_MOST = 30

_COMMIT_MARK = "\x01"
_FIELD_MARK = "\x02"
_LOG = (
    "log", f"--max-count={COMMITS_AT_MOST}", "-z", "--raw", "--numstat", "--format=%x01%h%x02%ct%x02%an%x02%s",
    # Override settings of the user that `parse_log` does not support:
    "--no-renames", "--no-color", "--no-show-signature", "--no-ext-diff", "--no-relative",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Commit:
    id: str
    timestamp_us: int
    author: str
    subject: str

    @classmethod
    def parse(cls, token: str) -> Self:
        commit_id, seconds, author, subject = token.removeprefix(_COMMIT_MARK).split(_FIELD_MARK, 3)
        return cls(commit_id, int(seconds) * 1_000_000, author, subject)


def read_git_history(directory: Path) -> EventSet | None:
    """Read the history of the checkout that contains `directory`; None without git, a checkout or enough history."""
    output = _git_log(directory)
    if output is None:
        return None
    rows = list(parse_log(output))
    commits = {row["timestamp"] for row in rows}
    if len(rows) < EVENTS_AT_LEAST or len(commits) < COMMITS_AT_LEAST:
        return None
    return EventSet.from_rows("git-history", "the git history of this checkout, one per file and commit", rows, INDEXES)


def _git_log(directory: Path) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    environment = os.environ | {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}  # no network, no writing
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments, no shell
            [git, *_LOG],
            cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_SECONDS_AT_MOST,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def parse_log(output: str) -> Iterator[dict[str, Any]]:
    """Convert the output of `git log` with the options of `_LOG` to rows of an event set, newest commit first."""
    commit: _Commit | None = None
    changes: dict[str, str] = {}
    tokens = iter(output.split("\0"))
    for padded in tokens:
        token = padded.removeprefix("\n")
        if token.startswith(_COMMIT_MARK):
            commit, changes = _Commit.parse(token), {}
        elif token.startswith(":"):  # :mode mode id id STATUS, and the path as the next token
            changes[next(tokens)] = CHANGES.get(token[-1], "changed")
        elif token and commit is not None:  # added TAB removed TAB path
            added, removed, path = token.split("\t", 2)
            yield _row(commit, path, changes.get(path, "changed"), added, removed)


def _row(commit: _Commit, path: str, change: str, added: str, removed: str) -> dict[str, Any]:
    payload: dict[str, Any] = {"commit": commit.id, "subject": commit.subject}
    if added != "-":  # git counts no lines in binary files
        payload |= {"added": int(added), "removed": int(removed)}
    return {
        "space": path,
        "grouping": commit.author,
        "timestamp": commit.timestamp_us,
        "data": json.dumps(payload, ensure_ascii=False).encode(),
        "change": change,
        "author": commit.author,
        "suffix": PurePosixPath(path).suffix or None,
    }
