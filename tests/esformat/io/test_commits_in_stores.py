"""Commits of several objects in stores that cannot rename: readers see all or none, wherever a writer dies."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from itertools import count

import fsspec
import pytest
from effort import long
from object_store import keys

from esformat.errors import ClosedError
from esformat.io import commit_folder, commits
from esformat.io.commit_folder import StoredFolder
from esformat.io.commits import Write, commit_of, committed_objects, sweep
from esformat.io.location import locate
from esformat.io.store import FsspecStore

OLD = {"part-00000-oldjob00.bin": b"old 0", "part-00001-oldjob00.bin": b"old 1"}
NEW = {"part-00000-newjob00.bin": b"new 0", "part-00001-newjob00.bin": b"new 1"}
_numbers = count()


class _Died(BaseException):
    pass


class Watched:
    """A store with a hook before each change and one in the middle of each listing."""

    def __init__(self, store):
        self.store = store
        self.before_change = lambda: None
        self.while_listing = lambda: None

    def __getattr__(self, name):
        real = getattr(self.store, name)
        if name not in ("put", "copy", "delete", "delete_below"):
            return real

        def changing(*arguments):
            self.before_change()
            return real(*arguments)

        return changing

    def list(self, directory):
        """List in two pages with time between them: half of the names, then those that sort after them by then."""
        first = sorted(self.store.list(directory))
        first = first[: len(first) // 2]
        self.while_listing()
        return first + [path for path in sorted(self.store.list(directory)) if not first or path > first[-1]]


def put(store, path, content):
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        store.put(path, file)


@pytest.fixture
def in_memory():
    """A prefix of a store in memory."""
    prefix = f"/commits-{next(_numbers)}/lake"
    yield StoredFolder(Watched(FsspecStore(fsspec.filesystem("memory"))), prefix)
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def in_bucket(s3, bucket):
    """A prefix of a bucket at a real S3 endpoint."""
    place = locate(f"s3://{bucket}/lake")
    return StoredFolder(Watched(place.store), place.path)


@pytest.fixture(params=[pytest.param("memory", marks=long), "s3"])
def folder(request):
    """A prefix with the objects of one write."""
    made = request.getfixturevalue("in_memory" if request.param == "memory" else "in_bucket")
    make(made, "oldjob00", OLD.values())
    return made


def staged(write, contents):
    """Upload the objects of tasks."""
    names = [write.staged(f"{number}-{os.urandom(2).hex()}") for number in range(len(contents))]
    for name, content in zip(names, contents, strict=True):
        put(write.folder.store, write.place(name).path, content)
    return names


def make(folder, job, contents, **options):
    """Begin and commit a write."""
    write = Write(folder, job, ".bin")
    write.begin()
    write.commit(staged(write, contents), **options)


def seen(folder):
    """The names and contents that a reader sees."""
    paths = committed_objects(folder.store, folder.prefix, lambda path: path.endswith(".bin"))
    return {path.removeprefix(folder.prefix + "/"): _bytes(folder.store, path) for path in paths}


def _bytes(store, path):
    facts, read = store.open(path)
    return read(0, facts.size)


def left(folder):
    """The names of all objects."""
    return sorted(path.removeprefix(folder.prefix + "/") for path in folder.store.store.list(folder.prefix))


def test_append_and_overwrite(folder):
    """An append adds its objects to the existing ones; an overwrite leaves only its objects and record."""
    make(folder, "newjob00", NEW.values(), facts={"events": 2})
    assert seen(folder) == OLD | NEW
    assert left(folder) == sorted([*OLD, *NEW, "_committed-newjob00", "_committed-oldjob00"])
    assert commit_of(folder, "newjob00")["facts"] == {"events": 2}
    make(folder, "lastjob0", [b"x"], removed=[*OLD, *NEW], forget=True)
    assert seen(folder) == {"part-00000-lastjob0.bin": b"x"}
    assert left(folder) == ["_committed-lastjob0", "part-00000-lastjob0.bin"]


def test_abort(folder):
    """An aborted write leaves nothing; objects that a task uploads afterwards are not seen, and are swept."""
    before = left(folder)
    write = Write(folder, "newjob00", ".bin")
    write.begin()
    staged(write, NEW.values())
    assert seen(folder) == OLD
    write.abort()
    assert left(folder) == before
    staged(write, NEW.values())
    assert seen(folder) == OLD


def test_a_task_that_outlives_its_write(folder):
    """Objects that a task uploads before the end of the write are kept; later ones are removed immediately."""
    before = left(folder)
    write = Write(folder, "newjob00", ".bin")
    write.begin()
    for name in staged(write, NEW.values()):
        write.keep(name)
    assert len(left(folder)) == len(before) + len(NEW) + 1
    write.abort()
    for name in staged(write, NEW.values()):
        with pytest.raises(ClosedError):
            write.keep(name)
    assert left(folder) == before


@pytest.mark.parametrize("step", range(14))
def test_died_at_every_step(in_memory, step, monkeypatch):
    """Wherever the driver dies, readers see all old or all new objects, before and after the next write's sweep."""
    make(in_memory, "oldjob00", OLD.values())
    write = Write(in_memory, "newjob00", ".bin")
    write.begin()
    names = staged(write, NEW.values())
    steps = count()

    def die():
        if next(steps) >= step:
            raise _Died

    in_memory.store.before_change = die
    finished = False
    try:
        write.commit(names, removed=list(OLD), forget=True)
        finished = True
    except _Died:
        pass
    in_memory.store.before_change = lambda: None
    found = seen(in_memory)
    assert found == (OLD if step < 4 else NEW)
    monkeypatch.setattr(commits, "lives", lambda owner, changed: False)
    sweep(in_memory)
    assert seen(in_memory) == found
    assert left(in_memory) == sorted([*found, f"_committed-{'oldjob00' if found == OLD else 'newjob00'}"])
    assert finished == (step >= 13)


def _before_a_commit(folder):
    """The objects of a write, a copied one whose name sorts before records, and the next write with its objects."""
    make(folder, "oldjob00", OLD.values())
    old = {**OLD, "A.bin": b"a"}
    put(folder.store, f"{folder.prefix}/A.bin", old["A.bin"])
    write = Write(folder, "newjob00", ".bin")
    write.begin()
    return old, write, staged(write, NEW.values())


@pytest.mark.parametrize("page", range(2))
def test_commit_during_a_listing(in_memory, page):
    """A commit between two pages of any of the reader's listings shows all old or all new objects."""
    old, write, names = _before_a_commit(in_memory)
    pages = count()

    def commit():
        if next(pages) == page:
            write.commit(names, removed=list(old), forget=True)

    in_memory.store.while_listing = commit
    assert seen(in_memory) == NEW
    assert next(pages) > page + 2  # the reader lists twice at least


@pytest.mark.parametrize("step", range(14))
def test_listings_take_time(in_memory, step, monkeypatch):
    """A commit in progress between two pages of a listing shows all old or all new objects."""
    monkeypatch.setattr(commit_folder, "REQUESTS", 1)  # no copies in parallel with the end of the write
    old, write, names = _before_a_commit(in_memory)
    steps, results = count(), []

    def look():
        if next(steps) == step:
            in_memory.store.before_change = lambda: None
            in_memory.store.while_listing = finish
            results.append(seen(in_memory))

    def finish():
        """Finish or undo the commit as another process does, after the first page."""
        in_memory.store.while_listing = lambda: None
        Write(in_memory, "newjob00", ".bin").abort()

    in_memory.store.before_change = look
    with contextlib.suppress(FileNotFoundError, ClosedError):  # the other process was faster, or undid the write
        write.commit(names, removed=list(old), forget=True)
    assert results == [old if step < 4 else NEW]


def test_a_write_that_was_taken_for_dead(in_memory, monkeypatch):
    """If another process undoes a write while its owner copies, objects copied afterwards are removed as well."""
    monkeypatch.setattr(commit_folder, "REQUESTS", 1)
    old, write, names = _before_a_commit(in_memory)
    steps, changes = count(), count()

    def at_the_first_copy():
        if next(steps) == 1:
            in_memory.store.before_change = when_the_record_goes
            Write(in_memory, "newjob00", ".bin").abort()
            in_memory.store.before_change = lambda: None

    def when_the_record_goes():
        if next(changes) == 2:
            given = f"{in_memory.prefix}/part-00001-newjob00.bin"
            in_memory.store.store.copy(f"{in_memory.prefix}/{names[1]}", given)

    in_memory.store.before_change = at_the_first_copy
    with pytest.raises(ClosedError, match="newjob00 has ended"):
        write.commit(names, removed=list(old), forget=True)
    assert seen(in_memory) == old
    assert left(in_memory) == sorted([*old, "_committed-oldjob00"])


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_readers_see_old_or_new(kind, request):
    """A reader that looks before every step of every write sees the objects of exactly one write."""
    folder = request.getfixturevalue("in_memory" if kind == "memory" else "in_bucket")
    make(folder, "oldjob00", OLD.values())
    found = []
    folder.store.before_change = lambda: found.append(set(seen(folder)))
    for number in range(2 if kind == "memory" else 1):
        removed = list(seen(folder))
        make(folder, f"job{number:06}", [b"0", b"1"], removed=removed, forget=True)
    assert len(found) > 10
    assert all(len(names) == 2 and len({name.split("-")[2] for name in names}) == 1 for names in found)


def test_dead_writers_are_swept_and_live_ones_spared(folder, monkeypatch):
    """A sweep removes writes of other machines after a day, but not those that are running."""
    for job in ("deadjob0", "livejob0"):
        Write(folder, job, ".bin").begin()
    owner = json.dumps({"host": "elsewhere", "pid": 1, "started": ""}).encode()
    put(folder.store, f"{folder.prefix}/_staging-deadjob0/owner.json", owner)
    sweep(folder)
    assert "_staging-deadjob0/owner.json" in left(folder)
    monkeypatch.setattr("esformat.io.write_owner.STALE_SECONDS", -60)
    sweep(folder)
    assert left(folder) == sorted([*OLD, "_committed-oldjob00", "_staging-livejob0/owner.json"])


def test_other_clients_see_no_more(in_bucket, s3, bucket):
    """After an overwrite the bucket has only its objects and record, and no unfinished uploads."""
    make(in_bucket, "oldjob00", OLD.values())
    make(in_bucket, "newjob00", [bytes(6 << 20), b"1"], removed=list(OLD), forget=True)
    names = ["_committed-newjob00", "part-00000-newjob00.bin", "part-00001-newjob00.bin"]
    assert [key for key in keys(s3, bucket) if not key.endswith("/")] == [f"lake/{name}" for name in names]
    assert _bytes(in_bucket.store, f"{bucket}/lake/{names[1]}") == bytes(6 << 20)
