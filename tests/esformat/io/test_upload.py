"""A segment written to a store appears whole or not at all."""

from __future__ import annotations

import signal
import sys
import threading
import time
import traceback

import fsspec
import pyarrow.fs
import pytest
from clicks import click_table
from effort import share_of
from object_store import arrow_filesystem, keys, uploads
from waiting import until

import esformat
from esformat.io import retry, store


@pytest.fixture(params=share_of(["uri", "arrow", "fsspec"], 2))
def target(request, s3, bucket):
    """The same location as a URI, with Arrow's filesystem and with fsspec."""
    if request.param == "uri":
        return f"s3://{bucket}/deep/events.esdb"
    if request.param == "arrow":
        return arrow_filesystem(s3), f"{bucket}/deep/events.esdb"
    return fsspec.filesystem("s3", endpoint_url=s3.url, key="testing", secret="testing"), f"{bucket}/deep/events.esdb"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(retry._retrying(), "sleep", lambda seconds: None)


def write(target, spaces="ab", **options):
    with esformat.create(target, **options) as writer:
        for number, space in enumerate(spaces):
            writer.add(space, b"x", timestamp=number)


def test_the_same_bytes_as_on_disk(s3, bucket, target, tmp_path):
    """A file in a store has the same bytes as one on disk, and can be read immediately."""
    table = click_table(3_000)
    for where in (target, tmp_path / "events.esdb"):
        with esformat.create(where, indexes=["type"]) as writer:
            writer.add_table(table)
    stored = s3.client.get_object(Bucket=bucket, Key="deep/events.esdb")["Body"].read()
    assert stored == (tmp_path / "events.esdb").read_bytes()
    with esformat.open(target) as segment:
        assert segment.scan().count() == 3_000


def test_nothing_before_it_is_complete(s3, bucket, target):
    """While events are added and the file is uploaded, no object is visible."""
    seen = []

    def watch(method, path, query):
        if method in ("PUT", "POST"):
            seen.append(keys(s3, bucket))

    writer = esformat.create(target)
    writer.add("a", b"x", timestamp=1)
    assert keys(s3, bucket) == []
    s3.refuse = watch
    writer.finish()
    s3.refuse = lambda method, path, query: None
    assert seen
    assert not any(seen)
    assert keys(s3, bucket) == ["deep/events.esdb"]
    assert uploads(s3, bucket) == []


def test_abort_leaves_nothing(s3, bucket, target):
    """An aborted write leaves neither an object nor an unfinished upload."""
    with pytest.raises(esformat.InvalidEventError), esformat.create(target) as writer:
        writer.add("a", b"x", timestamp="never")
    esformat.create(target).abort()
    assert keys(s3, bucket) == uploads(s3, bucket) == []


def test_existing_objects_stay(s3, bucket, target):
    """An existing object is not replaced without `overwrite`, even if it appears during the write."""
    writer = esformat.create(target)
    write(target, "abc")
    with pytest.raises(esformat.UsageError, match=r"events\.esdb: the object exists; .*overwrite=True"):
        esformat.create(target)
    with pytest.raises(esformat.UsageError, match="the object exists"):
        writer.finish()
    with esformat.open(target) as segment:
        assert segment.num_events == 3
    write(target, "abcd", overwrite=True)
    with esformat.open(target) as segment:
        assert segment.num_events == 4


def test_an_upload_that_fails_now_and_then(s3, bucket, target):
    """A failed upload request is retried."""
    refused = []

    def refuse(method, path, query):
        if method in ("PUT", "POST") and len(refused) < 2:
            refused.append(query)
            return 503
        return None

    s3.refuse = refuse
    write(target)
    assert len(refused) == 2
    with esformat.open(target) as segment:
        assert segment.num_events == 2


@pytest.mark.parametrize("step", ["uploads", "partNumber", "complete"])
def test_an_upload_that_fails_for_good(s3, bucket, step):
    """An upload that keeps failing is an error; no new object appears, an old one stays."""
    target = arrow_filesystem(s3), f"{bucket}/deep/events.esdb"
    write(target, "abc")

    def refuse(method, path, query):
        steps = {"uploads": "uploads" in query, "partNumber": "partNumber" in query}
        steps["complete"] = method == "POST" and not steps["uploads"]
        return 503 if method in ("PUT", "POST") and steps[step] else None

    s3.refuse = refuse
    with pytest.raises(OSError, match=r"events\.esdb"):
        write(target, "abcd", overwrite=True)
    s3.refuse = lambda method, path, query: None
    with esformat.open(target) as segment:
        assert segment.num_events == 3
    assert keys(s3, bucket) == ["deep/events.esdb"]


def test_no_such_bucket(s3):
    """A missing bucket is an error that names it."""
    with pytest.raises(OSError, match="no-such-bucket"):
        write("s3://no-such-bucket/events.esdb")


def test_a_spool_that_cannot_be_read_back(s3, bucket, monkeypatch):
    """A disk error during the upload leaves no partial object."""
    filesystem = arrow_filesystem(s3)
    monkeypatch.setattr(store, "_COPY_BYTES", 50)

    class Failing:
        reads = 0

        def read(self, size):
            self.reads += 1
            if self.reads == 3:
                raise OSError(5, "disk error")
            return b"x" * size

    with pytest.raises(OSError, match="disk error"):
        store.ArrowStore(filesystem).put(f"{bucket}/half.esdb", Failing())
    assert keys(s3, bucket) == []


def test_filesystems_that_show_files_as_they_grow(tmp_path):
    """On filesystems that show unfinished files, the file gets another name and is moved; a failure leaves nothing."""
    base = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    growing = pyarrow.fs.PyFileSystem(Handler(base))
    write((growing, "events.esdb"))
    assert [path.name for path in tmp_path.iterdir()] == ["events.esdb"]
    with esformat.open((growing, "events.esdb")) as segment:
        assert segment.num_events == 2
    growing.handler.fail = True
    with pytest.raises(OSError, match="no move"):
        write((growing, "events.esdb"), "abc", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["events.esdb"]
    with esformat.open((growing, "events.esdb")) as segment:
        assert segment.num_events == 2


class Handler(pyarrow.fs.FileSystemHandler):
    """A custom filesystem that passes the calls it receives to another one."""

    fail = False

    def __init__(self, base):
        self._base = base

    def get_type_name(self):
        return "own"

    def move(self, src, dest):
        if self.fail:
            raise OSError("no move")
        self._base.move(src, dest)

    def open_input_file(self, path):
        return self._base.open_input_file(path)

    def open_output_stream(self, path, metadata):
        return self._base.open_output_stream(path)

    def get_file_info(self, paths):
        return self._base.get_file_info(paths)

    def delete_file(self, path):
        self._base.delete_file(path)

    def _unused(self, *arguments):
        raise NotImplementedError

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__
    copy_file = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _unused
    get_file_info_selector = normalize_path = open_append_stream = open_input_stream = _unused


def test_memory_filesystem():
    """A store in the memory of the process is supported."""
    memory = fsspec.filesystem("memory")
    write((memory, "/written/events.esdb"))
    with esformat.open("memory://written/events.esdb") as segment:
        assert segment.num_events == 2


def test_interrupted_while_it_uploads(s3, bucket, monkeypatch):
    """An interrupt of the caller does not cut an upload short: it is raised once the object is whole."""
    names = []
    put = store.ArrowStore.put

    def main_is_in(name):
        frames = traceback.walk_stack(sys._current_frames()[threading.main_thread().ident])
        return name in [frame.f_code.co_name for frame, _ in frames]

    def interrupting(self, path, file):
        names.append(threading.current_thread().name)
        until(lambda: main_is_in("result"))
        time.sleep(0.1)  # until it blocks: an interrupt while `result` takes its lock can leave that lock taken
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        until(lambda: not main_is_in("result"))
        put(self, path, file)

    address = f"s3://{bucket}/events.esdb"
    monkeypatch.setattr(store.ArrowStore, "put", interrupting)
    with pytest.raises(KeyboardInterrupt):
        write(address)
    assert names == ["esformat-upload_0"]
    with esformat.open(address) as segment:
        assert segment.scan().count() == 2
