"""Events from the files of the running Python: always enough, with any file names."""

from __future__ import annotations

import json
import os
import sys

import pytest
from effort import long

from examples.demo import python_files
from examples.demo.python_files import read_python_files


@long
def test_this_python():
    """Standard library and packages are both included, each file with its size class and its path."""
    events = read_python_files()
    assert events.num_events > 1_000
    spaces = set(events.table["space"].to_pylist())
    assert "stdlib/json" in spaces
    assert "site-packages/pyarrow" in spaces
    files = {json.loads(data)["file"] for data in events.table["data"].to_pylist()}
    assert "json/decoder.py" in files
    assert not any("__pycache__" in file for file in files)


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems refuse names that are not Unicode")
def test_odd_names(tmp_path, monkeypatch):
    """File names that are not text, and files without a suffix, become valid events."""
    library, packages = tmp_path / "lib", tmp_path / "lib" / "site-packages"
    (packages / "demo").mkdir(parents=True)
    (library / "site.py").write_bytes(b"x" * 999)
    (packages / "demo" / "README").write_bytes(b"x" * 1_000)
    (packages / "demo" / os.fsdecode(b"bad\xff.t\xff")).write_bytes(b"")
    monkeypatch.setattr(python_files.sysconfig, "get_paths", lambda: {"stdlib": library, "purelib": packages})
    rows = {(row["space"], row["suffix"], row["size"]) for row in read_python_files().table.to_pylist()}
    assert rows == {
        ("stdlib/(single files)", ".py", "under 1 kB"),
        ("site-packages/demo", None, "1 to 10 kB"),
        ("site-packages/demo", ".t�", "under 1 kB"),
    }
