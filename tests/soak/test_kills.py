"""A few of the kills of `python -m tests.soak.kills`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from effort import ALL

from tests.soak import tracing

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not tracing.POSSIBLE, reason="the catalogs' processes are forked, and looked at below /proc")
def test_kills(tmp_path):
    """Promises hold with several schema families, pipes, any durability and sealing, moved clocks and lost locks."""
    command = [sys.executable, "-m", "tests.soak.kills", "--kills", "8" if ALL else "4", "--seconds", "5"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "broken promises: 0;" in done.stdout
    assert "acknowledged batches: 0;" not in done.stdout
