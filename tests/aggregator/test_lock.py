"""The lock of a writer, where processes are forked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORKING = """
import os, sys, time
from pathlib import Path
from aggregator.lock import WriterLock, is_held

path = Path(sys.argv[1])
lock = WriterLock(path)
ready, done = os.pipe(), os.pipe()
child = os.fork()
if not child:
    os.close(done[1])
    os.write(ready[1], b"x")
    os.read(done[0], 1)  # until the parent ends
    os._exit(0)
os.read(ready[0], 1)
assert is_held(path)
lock.release()
print(is_held(path))
WriterLock(path).release()
"""


def test_a_forked_process_does_not_keep_it(tmp_path):
    """When the catalog is closed another can open it, though a process that was forked meanwhile lives on."""
    command = [sys.executable, "-c", FORKING, str(tmp_path / "lock")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr
