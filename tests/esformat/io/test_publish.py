"""A file appears under its name only when complete and synced; nothing else remains."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from effort import long

import esformat
from esformat.errors import UsageError
from esformat.io.publish import Publication


def names(directory: Path) -> list[str]:
    """The names of everything in a directory."""
    return sorted(path.name for path in directory.iterdir())


def test_invisible_until_committed(tmp_path):
    """Until the commit there is only a hidden file with another name."""
    publication = Publication(tmp_path / "a.esdb", overwrite=False)
    publication.file.write(b"content")
    (hidden,) = names(tmp_path)
    assert hidden.startswith(".a.esdb.")
    assert hidden.endswith(".partial")
    publication.commit()
    assert names(tmp_path) == ["a.esdb"]
    assert (tmp_path / "a.esdb").read_bytes() == b"content"


def test_abort_leaves_nothing(tmp_path):
    """An abort leaves nothing; a second one has no effect."""
    publication = Publication(tmp_path / "a.esdb", overwrite=False)
    publication.file.write(b"content")
    publication.abort()
    publication.abort()
    assert names(tmp_path) == []


def test_existing_file_is_refused_at_once(tmp_path):
    """An existing file is refused before anything is written, and stays unchanged."""
    (tmp_path / "a.esdb").write_bytes(b"old")
    with pytest.raises(UsageError, match=r"a.esdb: the file exists; choose another name, or overwrite=True"):
        Publication(tmp_path / "a.esdb", overwrite=False)
    assert names(tmp_path) == ["a.esdb"]
    assert (tmp_path / "a.esdb").read_bytes() == b"old"


def test_overwriting_replaces_at_the_end(tmp_path):
    """With `overwrite` the old file stays until the new one is complete."""
    (tmp_path / "a.esdb").write_bytes(b"old")
    publication = Publication(tmp_path / "a.esdb", overwrite=True)
    publication.file.write(b"new")
    assert (tmp_path / "a.esdb").read_bytes() == b"old"
    publication.commit()
    assert (tmp_path / "a.esdb").read_bytes() == b"new"
    assert names(tmp_path) == ["a.esdb"]


def test_two_writers_of_one_name(tmp_path):
    """Of two writers with the same name the first to finish succeeds; the other fails and removes its file."""
    first, second = (Publication(tmp_path / "a.esdb", overwrite=False) for _ in range(2))
    first.file.write(b"first")
    second.file.write(b"second")
    first.commit()
    with pytest.raises(UsageError, match="the file exists"):
        second.commit()
    assert names(tmp_path) == ["a.esdb"]
    assert (tmp_path / "a.esdb").read_bytes() == b"first"


@pytest.mark.parametrize("taken", [False, True])
def test_file_systems_without_hard_links(tmp_path, monkeypatch, taken):
    """Without hard links the file is renamed, after another check that the name is free."""

    def no_links(*_):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    publication = Publication(tmp_path / "a.esdb", overwrite=False)
    publication.file.write(b"new")
    if taken:
        (tmp_path / "a.esdb").write_bytes(b"other")
        with pytest.raises(UsageError, match="the file exists"):
            publication.commit()
    else:
        publication.commit()
    assert names(tmp_path) == ["a.esdb"]
    assert (tmp_path / "a.esdb").read_bytes() == (b"other" if taken else b"new")


@pytest.mark.parametrize("overwrite", [False, True])
def test_synced_before_it_is_visible(tmp_path, monkeypatch, overwrite):
    """The file is synced first, then its name appears, then the directory is synced."""
    path = tmp_path / "a.esdb"
    synced = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(("directory" if target.is_dir() else "file", path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    publication = Publication(path, overwrite=overwrite)
    publication.file.write(b"content")
    publication.commit()
    assert synced == [("file", False), ("directory", True)]


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "a.esdb" + "\U0001f600" * 62, "-", "a b\n"])
def test_names_that_fill_the_file_system(tmp_path, name):
    """The hidden name is never too long nor invalid text, whatever the name."""
    publication = Publication(tmp_path / name, overwrite=False)
    publication.file.write(b"content")
    publication.commit()
    assert names(tmp_path) == [name]


def test_directory_that_is_not_there(tmp_path):
    """A missing directory is an OSError, as for any file."""
    with pytest.raises(FileNotFoundError):
        Publication(tmp_path / "nowhere" / "a.esdb", overwrite=False)


def python(code: str, *arguments: object, **options: object) -> subprocess.Popen:
    """Another Python process with this package."""
    environment = os.environ | {"PYTHONPATH": str(Path(esformat.__file__).parents[1])}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


KILLED = """
import os, sys, time
import esformat
from esformat.parts import hide_pandas
hide_pandas()
real = os.fsync
def stop(descriptor):
    print("finishing", flush=True)
    time.sleep(60)
if sys.argv[2] == "finishing":
    os.fsync = stop
with esformat.create(sys.argv[1]) as writer:
    for n in range(5000):
        writer.add("a", b"x" * 100, timestamp=n)
    if sys.argv[2] == "adding":
        print("adding", flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("moment", ["adding", "finishing"])
def test_killed_while(tmp_path, moment):
    """A killed process leaves only a hidden file, which the next writer removes."""
    path = tmp_path / "a.esdb"
    with python(KILLED, path, moment) as process:
        assert process.stdout.readline().strip() == moment
        process.send_signal(signal.SIGKILL)
        process.wait()
    (hidden,) = names(tmp_path)
    assert hidden.startswith(".a.esdb.")
    with esformat.create(path) as writer:
        writer.add("b", b"", timestamp=1)
    assert names(tmp_path) == ["a.esdb"]
    with esformat.open(path) as segment:
        assert [event.space for event in segment.scan()] == ["b"]


DISK_FULL = """
import resource, sys
import esformat
from esformat.parts import hide_pandas
hide_pandas()
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    with esformat.create(sys.argv[1], codec="none") as writer:
        for n in range(int(sys.argv[2])):
            writer.add("a", bytes(1000), timestamp=n)
except OSError as error:
    print(type(error).__name__, error.errno)
"""


@pytest.mark.parametrize("events", [pytest.param(60, marks=long), 5000])
def test_disk_full(tmp_path, events):
    """A full disk is an OSError, at the last flush or before; nothing remains."""
    with python(DISK_FULL, tmp_path / "a.esdb", events) as process:
        out, err = process.communicate(timeout=60)
    assert (out.strip(), err) == (f"OSError {errno.EFBIG}", "")
    assert names(tmp_path) == []
