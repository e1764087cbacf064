"""A few points of the campaign over catalogs with a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from effort import long

ROOT = Path(__file__).parents[2]


@long
def test_kills_and_take_overs():
    """Nothing acknowledged is lost or duplicated, nothing erased returns, and an old writer changes nothing."""
    command = [sys.executable, "-m", "tests.soak.store", "--points", "12", "--seed", "7", "--faults", "breaking"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 batches acknowledged" not in done.stdout
