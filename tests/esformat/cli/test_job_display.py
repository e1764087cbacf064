"""What jobs show while they work, without Spark."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from esformat.cli.job_display import JobDisplay, displayed, quiet


def test_line():
    """Files, events, bytes, tasks and the time that is left, as far as they are known."""
    now, tasks = [0.0], [(0, 0)]
    display = JobDisplay("converting", lambda: tasks[0], lambda: now[0])
    assert display.line() == "converting: looking"
    display.watch(SimpleNamespace(files=3, events=1_200_000))
    display(2_000_000_000, 8_000_000_000)
    now[0], tasks[0] = 120.0, (45, 200)
    assert display.line() == (
        "converting: 3 files, 1,200,000 events, 2.0 GB of 8.0 GB, 45 of 200 tasks at work, about 6 min left"
    )
    display(7_900_000_000, 8_000_000_000)
    assert display.line().endswith("about 2 s left")


def test_lines_in_a_log(capfd):
    """Where nobody looks at a terminal, there is a line now and then."""
    with displayed("merging", lambda: (1, 2), log_seconds=0.001) as display:
        display(1, 10)
        while "1 of 2 tasks" not in (said := capfd.readouterr().err):
            pass
    assert said.startswith("merging: ")
    assert "\r" not in said


def test_noise_is_kept_and_told_with_a_failure(capfd):
    """What Java says as it starts is not shown, unless it does not start."""
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
