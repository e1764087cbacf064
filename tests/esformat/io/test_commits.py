"""Commits of several files: readers see all or none of them, at any time and wherever a writer dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from esformat import UsageError
from esformat.io import commit_folder, commits
from esformat.io.commit_folder import LocalFolder
from esformat.io.commits import Write, committed, sweep

OLD, NEW = (
    {"part-00000-oldjob00.bin": b"old 0", "part-00001-oldjob00.bin": b"old 1"},
    {
        "part-00000-newjob00.bin": b"new 0",
        "part-00001-newjob00.bin": b"new 1",
    },
)


def seen(folder):
    """The names and contents that a reader sees."""
    paths = committed(lambda: sorted(str(path) for path in Path(folder).rglob("[!.]*.bin")), [folder])
    return {str(Path(path).relative_to(folder)): Path(path).read_bytes() for path in paths}


def staged(write, contents):
    """Stage the files of tasks."""
    paths = []
    for number, content in enumerate(contents):
        paths.append(write.staged(f"{number}-{os.urandom(2).hex()}"))
        Path(write.place(paths[-1])).write_bytes(content)
    return paths


def make(folder, job, contents, **options):
    """Begin a write; return it, and a function that stages and commits its files."""
    write = Write(LocalFolder(str(folder)), job, ".bin")
    write.begin()
    return write, lambda: write.commit(staged(write, contents), **options)


@pytest.fixture
def folder(tmp_path):
    """A directory with the files of one write."""
    make(tmp_path, "oldjob00", OLD.values())[1]()
    assert seen(tmp_path) == OLD
    return tmp_path


def left(folder):
    """The names of everything in the directory."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))


def test_append(folder):
    """An append adds its files and a record; nothing else remains."""
    make(folder, "newjob00", NEW.values(), facts={"events": 2})[1]()
    assert seen(folder) == OLD | NEW
    assert left(folder) == sorted([*OLD, *NEW, "_committed-newjob00", "_committed-oldjob00"])
    assert commits.commits(LocalFolder(str(folder)))["newjob00"]["facts"] == {"events": 2}


def test_overwrite(folder):
    """An overwrite leaves only its files and its record."""
    make(folder, "newjob00", NEW.values(), removed=list(OLD), forget=True)[1]()
    assert seen(folder) == NEW
    assert left(folder) == sorted([*NEW, "_committed-newjob00"])


def test_abort(folder):
    """An aborted write leaves nothing, not even its tasks' files."""
    before = left(folder)
    write = Write(LocalFolder(str(folder)), "newjob00", ".bin")
    write.begin()
    staged(write, NEW.values())
    assert seen(folder) == OLD
    write.abort()
    assert left(folder) == before
    with pytest.raises(FileNotFoundError):  # a task that continues nevertheless
        staged(write, NEW.values())


class _Died(BaseException):
    pass


def die_at(monkeypatch, step):
    """Let the process of a write die at its n-th change of the disk."""
    calls = 0

    def counted(real):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls > step:
                raise _Died
            return real(*arguments, **options)

        return call

    for owner, name in [
        (commit_folder, "_write_synced"), (Path, "rename"), (Path, "replace"), (Path, "unlink"),
        (commit_folder, "sync_directory"), (commit_folder.shutil, "rmtree"),
    ]:  # fmt: skip
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


@pytest.mark.parametrize("step", range(16))
def test_died_at_every_step(folder, step, monkeypatch):
    """Wherever the process dies, readers see all old or all new files, before and after the next write's sweep."""
    write = Write(LocalFolder(str(folder)), "newjob00", ".bin")
    write.begin()
    paths = staged(write, NEW.values())
    finished = False
    with monkeypatch.context() as patch:
        die_at(patch, step)
        try:
            write.commit(paths, removed=list(OLD), forget=True)
            finished = True
        except _Died:
            pass
    found = seen(folder)
    assert found == (OLD if step < 6 else NEW)  # the sixth change renames the pending record
    monkeypatch.setattr(commits, "lives", lambda owner, changed: False)
    sweep(LocalFolder(str(folder)))
    assert seen(folder) == found
    record = "oldjob00" if found == OLD else "newjob00"
    assert left(folder) == sorted([*found, f"_committed-{record}"])
    assert finished == (step >= 14)


def test_readers_see_old_or_new(folder):
    """A reader that looks all the time sees the files of exactly one write."""
    wrong, looks, done = [], 0, threading.Event()

    def look():
        nonlocal looks
        while not done.is_set():
            names = set(committed(lambda: [str(p) for p in folder.glob("*.bin")], [folder]))
            jobs = {Path(path).name.split("-")[2] for path in names}
            looks += 1
            if len(jobs) != 1 or len(names) != 2:
                wrong.append(names)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(60):
        write = Write(LocalFolder(str(folder)), f"job{number:06}", ".bin")
        write.begin()
        removed = [Path(path).name for path in committed(lambda: [str(p) for p in folder.glob("*.bin")], [folder])]
        write.commit(staged(write, [b"0", b"1"]), removed=removed, forget=True)
    done.set()
    reader.join()
    assert wrong == []
    assert looks > 20


def test_dead_writers_are_swept_and_live_ones_spared(folder):
    """A write removes what a dead process left, but not what a running one has staged."""
    code = (
        "import sys; from esformat.io.commits import Write; from esformat.io.commit_folder import LocalFolder; "
        "w = Write(LocalFolder(sys.argv[1]), 'deadjob0', '.bin'); w.begin(); open(w.place(w.staged('0')), 'w').close()"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
    living = Write(LocalFolder(str(folder)), "livejob0", ".bin")
    living.begin()
    make(folder, "newjob00", NEW.values())[1]()
    assert not (folder / "_staging-deadjob0").exists()
    assert Path(living.place("_staging-livejob0")).exists()


def test_writers_elsewhere_get_a_day(folder):
    """The staging of another machine's writer counts as dead after a day without changes."""
    write = Write(LocalFolder(str(folder)), "farjob00", ".bin")
    write.begin()
    staging = folder / "_staging-farjob00"
    (staging / "owner.json").write_text(json.dumps({"host": "elsewhere", "pid": 1, "started": ""}))
    sweep(LocalFolder(str(folder)))
    assert staging.exists()
    os.utime(staging, (0, 0))
    sweep(LocalFolder(str(folder)))
    assert not staging.exists()


def test_files_below(folder):
    """Files in subdirectories are replaced with the rest."""
    (folder / "below").mkdir()
    (folder / "below" / "x.bin").write_bytes(b"x")
    assert len(seen(folder)) == 3
    make(folder, "newjob00", NEW.values(), removed=[*OLD, "below/x.bin"], forget=True)[1]()
    assert seen(folder) == NEW


def test_same_job_twice(folder):
    with pytest.raises(UsageError, match="under way or was committed before"):
        Write(LocalFolder(str(folder)), "oldjob00", ".bin").begin()


@pytest.mark.parametrize("job", ["short", "UPPERCASE", "../../../etc", "with space", "x" * 65])
def test_names_of_writes(tmp_path, job):
    with pytest.raises(UsageError, match="is not a valid name for a write"):
        Write(LocalFolder(str(tmp_path)), job)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"added": ["/etc/x"], "removed": [], "forgotten": [], "facts": {}}',
                                     b'{"added": ["../x"], "removed": [], "forgotten": [], "facts": {}}'])  # fmt: skip
def test_broken_record(folder, content):
    """A record that is damaged or leads out of its directory is an error, and deletes nothing."""
    (folder / "_replacing-newjob00").write_bytes(content)
    with pytest.raises(UsageError, match="the record of a write is broken"):
        seen(folder)
    with pytest.raises(UsageError, match="the record of a write is broken"):
        sweep(LocalFolder(str(folder)))
