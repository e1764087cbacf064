"""Temporary files: unnamed, verified when read, with a clear error if the disk fails."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from effort import long
from noise import noise

import esformat
from esformat.io.temp_file import SpillFile


def test_frames_come_back(tmp_path):
    """Any number of parts is read back, in any order and even if empty; the directory shows no file."""
    file = SpillFile(tmp_path)
    file.append(b"one", b"", pa.py_buffer(b"three"))
    file.append(memoryview(np.arange(3)))
    assert len(file) == 2
    assert list(tmp_path.iterdir()) == []
    assert np.frombuffer(file.read(1, 0), np.int64).tolist() == [0, 1, 2]
    assert [file.read(0, part).to_pybytes() for part in (2, 1, 0)] == [b"three", b"", b"one"]
    assert file.part_bytes(0, 2) == 5
    file.close()


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_disk_that_errs(tmp_path, damage):
    """Bytes that differ from those written are an error."""
    file = SpillFile(tmp_path)
    file.append(b"x" * 1000)
    descriptor = os.open(f"/proc/self/fd/{file._file.fileno()}", os.O_RDWR)
    if damage == "cut":
        os.ftruncate(descriptor, 999)
    else:
        os.pwrite(descriptor, b"y", 500)
    os.close(descriptor)
    with pytest.raises(OSError, match="changed after it was written") as caught:
        file.read(0, 0)
    assert caught.value.errno == errno.EIO
    file.close()


def test_no_such_directory(tmp_path):
    """A missing directory is named in the error."""
    with pytest.raises(FileNotFoundError, match=r"temporary data of the writer.*nowhere"):
        SpillFile(tmp_path / "nowhere")


@contextmanager
def small_disk(directory: Path, size: str):
    """A mounted file system of a few MiB."""
    if shutil.which("mount") is None:
        pytest.skip("nothing mounts file systems here")
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], capture_output=True)
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


def events(first: int, count: int = 20_000) -> pa.Table:
    """Unordered events that no codec can compress."""
    rng = np.random.default_rng(first)
    spaces = pa.array([f"s{n}" for n in range(99)]).take(pa.array(rng.integers(0, 99, count)))
    return pa.table({"space": spaces, "timestamp": pa.array(np.arange(count)), "data": noise(rng, count, 100)})


def test_full_disk(tmp_path):
    """A full disk is one clear error that ends the writer; nothing remains beside the output or in `temp_dir`."""
    with small_disk(tmp_path / "small", "3m"):
        writer = esformat.create(tmp_path / "a.esdb", memory="4MiB", temp_dir=tmp_path / "small")
        tables = [events(first) for first in range(6)]
        with pytest.raises(
            OSError, match=r"No space left on device \(temporary data of the writer; temp_dir="
        ) as caught:
            writer.add_table(pa.concat_tables(tables))
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(tmp_path / "small")
        with pytest.raises(ValueError, match="the writer is aborted"):
            writer.add("a", timestamp=1)
        assert list((tmp_path / "small").iterdir()) == []
        usage = os.statvfs(tmp_path / "small")
        assert usage.f_bfree == usage.f_blocks
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


LIMITED = """
import sys, resource
from esformat.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
sys.exit(main())
"""


@long
def test_files_may_not_grow(tmp_path):
    """If files may not grow further, the command says so in one line and ends with status 1; nothing remains."""
    table = events(1, 60_000)
    with (tmp_path / "in.csv").open("w") as file:
        file.write("space,timestamp,data\n")
        for space, moment, data in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
            file.write(f"{space},{moment},{data.hex()}\n")
    environment = os.environ | {"PYTHONPATH": str(Path(esformat.__file__).parents[1])}
    command = ["write", "out.esdb", "in.csv", "--timestamp-format", "us", "--memory", "2MiB"]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "file too large (temporary data of the writer; temp_dir= chooses another directory)" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv"]
