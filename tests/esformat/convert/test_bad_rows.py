"""Bad rows stop the conversion, are skipped, or are collected."""

from __future__ import annotations

import json

import pytest

from esformat.convert.bad_rows import Collect, Skip, Stop
from esformat.convert.errors import BadRowError
from esformat.convert.rows import BadRow

ROWS = [BadRow("in.csv", "line", 7, "no space: 'u' has no value", ",é"), BadRow("in.csv", "line", 9, "broken", "x")]


def test_stop():
    """The first bad row stops the conversion with its place, the fault and a fix; without one, nothing happens."""
    policy = Stop()
    policy.take([])
    with pytest.raises(BadRowError) as caught:
        policy.take(ROWS)
    assert str(caught.value) == (
        "in.csv: line 7: no space: 'u' has no value; "
        "correct it, or leave bad rows out with --on-error skip or --on-error collect FILE"
    )


def test_skip():
    """Bad rows are counted since the start of the last pass."""
    policy = Skip()
    policy.take(ROWS)
    policy.take(ROWS[:1])
    assert policy.count == 3
    policy.begin()
    assert policy.count == 0


def test_collect(tmp_path):
    """Bad rows are written to a file; a new pass starts the file again."""
    policy = Collect(tmp_path / "bad.jsonl")
    policy.take(ROWS)
    policy.begin()
    policy.take(ROWS[:1])
    policy.close()
    assert policy.count == 1
    (line,) = (tmp_path / "bad.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line) == {"file": "in.csv", "line": 7, "reason": "no space: 'u' has no value", "text": ",é"}


def test_collect_nowhere(tmp_path):
    """A path that cannot be written is refused immediately."""
    with pytest.raises(FileNotFoundError):
        Collect(tmp_path / "nowhere" / "bad.jsonl")


def test_bad_row_is_one_line():
    """A bad row is described in one line."""
    assert str(ROWS[1]) == "in.csv: line 9: broken"
