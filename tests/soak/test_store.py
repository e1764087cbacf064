"""A few points of the campaign over catalogs with a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_kills_and_take_overs():
    """Nothing that was acknowledged is lost or doubled, nothing erased comes back, an old writer changes nothing."""
    command = [
        sys.executable,
        "-m",
        "tests.soak.store",
        "--points",
        "3",
        "--seed",
        "7",
        "--modes",
        "same,restore,stop",
        "--faults",
        "breaking",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 batches acknowledged" not in done.stdout
