"""The progress that jobs show, without Spark."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from esformat.cli.job_display import JobDisplay, displayed, quiet


def test_line():
    """The line has files, events, bytes, tasks and the remaining time, as far as they are known."""
    now, tasks = [0.0], [(0, 0)]
    display = JobDisplay("converting", lambda: tasks[0], lambda: now[0])
    assert display.line() == "converting: starting"
    display.watch(SimpleNamespace(files=3, events=1_200_000))
    display(2_000_000_000, 8_000_000_000)
    now[0], tasks[0] = 120.0, (45, 200)
    assert display.line() == (
        "converting: 3 files, 1,200,000 events, 2.0 GB of 8.0 GB, 45 of 200 tasks done, about 6 min left"
    )
    display(7_900_000_000, 8_000_000_000)
    assert display.line().endswith("about 2 s left")


def test_lines_in_a_log(capfd):
    """If stderr is not a terminal, a line is printed from time to time."""
    with displayed("merging", lambda: (1, 2), log_seconds=0.001) as display:
        display(1, 10)
        while "1 of 2 tasks" not in (said := capfd.readouterr().err):
            pass
    assert said.startswith("merging: ")
    assert "\r" not in said


def test_noise_is_kept_and_told_with_a_failure(capfd):
    """Java's output at its start is hidden, unless Java fails to start."""
    with quiet():
        os.write(2, b"WARNING: Using incubator modules")
    assert capfd.readouterr().err == ""
    with pytest.raises(OSError, match="no Java"), quiet():
        _fail()
    assert capfd.readouterr().err == "no memory"
    os.write(2, b"on again")
    assert capfd.readouterr().err == "on again"


def _fail():
    os.write(2, b"no memory")
    raise OSError("no Java")
