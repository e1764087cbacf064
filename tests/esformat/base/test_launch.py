"""How a command starts as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TASKS = Path("/proc/self/task")


@pytest.mark.skipif(not TASKS.exists(), reason="counts threads, where the system tells")
def test_numpy_starts_no_threads(tmp_path):
    """A command leaves the other processors to others: NumPy's threads spin, and nothing here needs them."""
    (tmp_path / "counting.py").write_text(
        f"import os\n\ndef run(arguments):\n    import numpy\n    print(len(os.listdir('{TASKS}')))\n    return 0\n"
    )
    program = "from esformat.base.launch import launch; launch('counting', 'counting')"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout == "1\n"
