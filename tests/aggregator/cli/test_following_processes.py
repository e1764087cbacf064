"""`aggregator` as separate processes that follow a catalog and are terminated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from waiting import PATIENCE_S

import aggregator

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "aggregator")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "200"}


def test_tail_follows(clicks):
    """Events appended by another process are printed as they arrive; an interrupt ends the tail quietly."""
    with subprocess.Popen(
        [*COMMAND, "tail", str(clicks), "clicks", "-n", "1", "-f"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as process:  # fmt: skip
        guard = threading.Timer(PATIENCE_S, process.kill)
        guard.start()
        assert json.loads(process.stdout.readline())["space"] == "ada"
        with aggregator.open(clicks) as catalog:
            topic = catalog.topic("clicks")
            topic.append([{"space": "one", "timestamp": 5}])
            assert json.loads(process.stdout.readline())["space"] == "one"
            topic.append([{"space": "two", "timestamp": 6, "new": 1}], "a new partition")
            catalog.seal()
            found = json.loads(process.stdout.readline())
            assert (found["space"], found["partition"], found["new"]) == ("two", "a new partition", 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        assert process.stderr.read() == b"aggregator: interrupted\n"
        guard.cancel()


def test_output_that_nobody_reads(clicks):
    """A reader that stops early, such as `head`, causes no error."""
    line = f"{sys.executable} -m aggregator scan {clicks} clicks --format jsonl | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, env=ENVIRONMENT, timeout=120, check=True)
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"")
