"""The start of a command as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from esformat.base import launch

TASKS = Path("/proc/self/task")


@pytest.mark.skipif(not TASKS.exists(), reason="counts threads, where the system tells")
def test_numpy_starts_no_threads(tmp_path):
    """NumPy starts no threads: they would spin on other processors, and nothing here needs them."""
    assert launched(tmp_path, f"import numpy, os; print(len(os.listdir('{TASKS}')))") == "1\n"


def test_arrays_load_no_pandas(tmp_path):
    """The first array does not load pandas, as pyarrow would: commands do not need it, and it loads slowly."""
    told = launched(
        tmp_path, "import pyarrow, sys; pyarrow.array([1]); pyarrow.array([2]); print('pandas' in sys.modules)"
    )
    assert told == "False\n"


def launched(folder: Path, code: str) -> str:
    """The output of a command that runs this code."""
    (folder / "command.py").write_text(f"def run(arguments):\n    {code}\n    return 0\n")
    program = "from esformat.base.launch import launch; launch('command', 'command')"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_interrupts_that_come_together(monkeypatch):
    """Interrupts within a moment count once; one that follows a second later counts again."""
    now = [100.0]
    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    handler = launch.Interrupts()
    with pytest.raises(KeyboardInterrupt):
        handler(signal.SIGINT, None)
    now[0] += 0.003
    handler(signal.SIGINT, None)
    now[0] += 1.5
    with pytest.raises(KeyboardInterrupt):
        handler(signal.SIGINT, None)
