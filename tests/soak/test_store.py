"""A few points of the campaign over catalogs with a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from effort import ALL

ROOT = Path(__file__).parents[2]


def test_kills_and_take_overs():
    """Nothing that was acknowledged is lost or doubled, nothing erased comes back, an old writer changes nothing."""
    points, modes = ("12", "same,restore,kill,stop,cut,clock") if ALL else ("1", "stop")
    command = [
        sys.executable, "-m", "tests.soak.store", "--points", points, "--seed", "7", "--modes", modes,
        "--faults", "breaking",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 batches acknowledged" not in done.stdout
