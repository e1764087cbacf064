"""A new writer removes the files of dead writers, and keeps those of living ones."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest
from effort import long

import esformat
from esformat.io import stale_files as leftovers
from esformat.io.stale_files import WRITTEN_TOGETHER_BYTES, open_partial, remove_stale_files

DEAD = f".a.esdb.w{'0' * 12}.partial"


def names(directory: Path) -> list[str]:
    """The names of everything in a directory."""
    return sorted(path.name for path in directory.iterdir())


def test_dead_writers(tmp_path):
    """Stale files are removed, whatever the name of the file that they were for."""
    for name in (DEAD, f".b\n.c.w{'f' * 12}.partial", f"..w{'1' * 12}.partial"):
        (tmp_path / name).write_bytes(b"half")
    remove_stale_files(tmp_path)
    assert names(tmp_path) == []


NOT_OURS = ["a.esdb", ".a.esdb.partial", ".a.esdb.0123456789ab.partial", f"{DEAD}.bak", DEAD[1:], f".w{'0' * 12}.part"]


@pytest.mark.parametrize("name", NOT_OURS)
def test_files_that_are_not_ours(tmp_path, name):
    """A file that no writer of this kind can have made is kept."""
    (tmp_path / name).write_bytes(b"somebody's")
    remove_stale_files(tmp_path)
    assert names(tmp_path) == [name]


def test_a_living_writer(tmp_path):
    """A file that this process is writing is kept until it is closed."""
    partial, file = open_partial(tmp_path / "a.esdb")
    remove_stale_files(tmp_path)
    assert partial.exists()
    file.close()
    remove_stale_files(tmp_path)
    assert not partial.exists()


WRITER = """
import sys, esformat
from esformat.parts import hide_pandas
hide_pandas()
writer = esformat.create(sys.argv[1], indexes=["type"], memory="1MiB")
n = 0
while True:
    writer.add(f"s{n * 7919 % 1000}", b"x" * 100, timestamp=n, indexes={"type": str(n % 50)})
    n += 1
    if n == 60_000:
        print("spilled", flush=True)
"""


@long
def test_killed_writer(tmp_path):
    """A writer killed while its events are in temporary files leaves one hidden file, which the next writer removes."""
    environment = os.environ | {"PYTHONPATH": str(Path(esformat.__file__).parents[1])}
    command = [sys.executable, "-c", WRITER, str(tmp_path / "a.esdb")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"spilled\n"
        held = Path(f"/proc/{process.pid}/fd").iterdir()
        unnamed = [fd for fd in held if str(fd.readlink()).startswith(str(tmp_path)) and fd.stat().st_nlink == 0]
        assert sum(fd.stat().st_size for fd in unnamed) > 1 << 20
        alive = names(tmp_path)
        with esformat.create(tmp_path / "b.esdb") as writer:
            writer.add("b", timestamp=1)
        assert names(tmp_path) == [*alive, "b.esdb"]  # the other writer lives
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert names(tmp_path) == [*alive, "b.esdb"]
    (left,) = alive
    assert left.startswith(".a.esdb.w")
    with esformat.create(tmp_path / "c.esdb") as writer:
        writer.add("c", timestamp=1)
    assert names(tmp_path) == ["b.esdb", "c.esdb"]


def test_taken_for_a_leftover(tmp_path, monkeypatch):
    """A file that another writer removes before it is locked is created again."""
    lock, seen = leftovers._lock, []

    def late(file):
        seen.append(Path(file.name))
        if len(seen) == 1:
            seen[0].unlink()
        return lock(file)

    monkeypatch.setattr(leftovers, "_lock", late)
    partial, file = open_partial(tmp_path / "a.esdb")
    assert names(tmp_path) == [partial.name]
    assert len(seen) == 2
    file.close()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_file_systems_without_locks(tmp_path, monkeypatch, number):
    """On file systems without locks files are written, and none is removed: its writer may live."""

    def no_locks(*_):
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    (tmp_path / DEAD).write_bytes(b"half")
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add("a", timestamp=1)
    assert names(tmp_path) == [DEAD, "a.esdb"]


def test_directory_that_is_not_there(tmp_path):
    """A missing directory is not created."""
    remove_stale_files(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system has no such call")
@pytest.mark.parametrize("piece", [100_003, 3_000_017])
def test_bytes_go_to_the_disk_as_they_are_written(tmp_path, monkeypatch, piece):
    """Each written range is announced to the kernel once, in order."""
    told, real = [], os.posix_fadvise

    def advise(descriptor, offset, length, advice):
        if descriptor == file.fileno():  # otherwise it belongs to another thread
            assert os.fstat(descriptor).st_size == offset + length
            told.append((offset, length))
        real(descriptor, offset, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", advise)
    data = os.urandom(piece)
    partial, file = open_partial(tmp_path / "a.esdb")
    with file:
        for _ in range(18_000_000 // piece):
            file.write(data)
        file.flush()
        assert partial.read_bytes() == data * (18_000_000 // piece)
    assert len(told) >= 2
    assert all(length >= WRITTEN_TOGETHER_BYTES for _, length in told)
    assert [offset for offset, _ in told] == list(accumulate((length for _, length in told[:-1]), initial=0))
