"""In ESDB a crash before the end left a partial file under the final name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import esformat

CRASH = """
import os, signal, sys
import esformat
from esformat.parts import hide_pandas
hide_pandas()
path, overwrite = sys.argv[1], sys.argv[2] == "overwrite"
with esformat.create(path, overwrite=overwrite) as writer:
    for n in range(3_000):
        writer.add(f"s{n % 50}", b"new" * 30, timestamp=n)
    link, replace = os.link, type(writer._publication.path).replace
    def crash(*arguments, **options):
        os.kill(os.getpid(), signal.SIGKILL)
    os.link = os.replace = os.rename = crash
    type(writer._publication.path).replace = type(writer._publication.path).rename = crash
"""


@pytest.mark.parametrize("how", ["new", "overwrite"])
def test_killed_at_the_last_moment(tmp_path, how):
    """A process killed after all bytes are written, but before the rename, leaves no file or the old one."""
    path = tmp_path / "a.esdb"
    if how == "overwrite":
        with esformat.create(path) as writer:
            writer.add("old", timestamp=1)
    environment = os.environ | {"PYTHONPATH": str(Path(esformat.__file__).parents[1])}
    killed = subprocess.run([sys.executable, "-c", CRASH, str(path), how], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    visible = [file.name for file in tmp_path.iterdir() if not file.name.startswith(".")]
    if how == "new":
        assert visible == []
        return
    assert visible == ["a.esdb"]
    with esformat.open(path) as segment:
        assert list(segment.spaces()) == ["old"]
