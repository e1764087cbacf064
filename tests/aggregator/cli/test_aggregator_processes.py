"""`aggregator` as a process: on terminals with few characters, and when interrupted."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import aggregator

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "aggregator"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}


def test_characters_that_a_terminal_lacks(tmp_path):
    """Characters that a terminal lacks are printed as escapes, and the table still prints."""
    with aggregator.open(tmp_path / "data") as catalog:
        catalog.create_topic("t").append([{"space": "caf\u00e9 \U0001f600", "timestamp": 1}])
    done = subprocess.run(
        [*COMMAND, "scan", "data", "t", "--format", "table"], cwd=tmp_path, capture_output=True, timeout=60,
        env=ENVIRONMENT | {"PYTHONIOENCODING": "latin-1"}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert "caf\u00e9 \\U0001f600" in done.stdout.decode("latin-1")


def test_an_interrupted_bench(tmp_path):
    """An interrupted `bench` stops its threads, removes its directory and prints one line."""
    with subprocess.Popen(
        [*COMMAND, "bench", "--seconds", "300", "--directory", str(tmp_path)], env=ENVIRONMENT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("*/data/log/*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3)  # most likely appends are under way; the end is the same without them
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (130, b"aggregator: interrupted\n")
    assert not list(tmp_path.iterdir())


def test_lines_are_appended_as_they_come(tmp_path):
    """Each line that a program writes to the pipe is acknowledged while the pipe is open."""
    with aggregator.open(tmp_path / "data") as catalog:
        catalog.create_topic("t")
    with subprocess.Popen(
        [*COMMAND, "append", "data", "t", "-", "--receipts"], cwd=tmp_path, env=ENVIRONMENT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(2):
            process.stdin.write(b'{"space":"a","timestamp":%d}\n' % number)
            assert select.select([process.stdout], [], [], 60)[0], "nothing was stored while the pipe was open"
            assert json.loads(process.stdout.readline())["last"] == number
        process.stdin.close()
        assert process.wait(60) == 0
