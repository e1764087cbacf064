"""`Commits` agrees with a model in plain Python: on files, pipes, a full disk, removed names, and when interrupted."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
import time
from math import inf, nan

import pytest
from plain_commits import PlainCommits

from esformat.core.commits import (
    CHECKING,
    CHECKING_TIME,
    MARKED,
    MARKING,
    RECHECKING,
    SYNCING,
    WRITING,
    Commits,
    now_s,
    sync_file,
)

BOTH = (Commits, PlainCommits)


@pytest.fixture
def files(tmp_path):
    """Open files below a directory, and close them afterwards."""
    opened = []

    def of(path, flags=os.O_RDWR | os.O_CREAT):
        opened.append(os.open(path, flags))
        return opened[-1]

    yield of
    for descriptor in opened:
        os.close(descriptor)


def lock_of(path):
    found = path.stat()
    return os.fsencode(path), found.st_dev, found.st_ino


def come_of(kind, *arguments):
    """The result of a commit, the step that it reached, and what it marked."""
    commits = kind()
    number = commits.commit(*arguments)
    assert commits.failed == number
    return number, commits.reached, commits.marked


@pytest.mark.parametrize("count", [0, 1, 3, 511, 512, 513, 2000])
@pytest.mark.parametrize("sync", [True, False])
def test_all_that_is_given_is_written(tmp_path, files, count, sync):
    """All buffers, however many and even if empty, are appended to the file."""
    buffers = [bytes([number % 256]) * (number * 7 % 13) for number in range(count)]
    lock = tmp_path / "lock"
    lock.touch()
    for kind in BOTH:
        log, mark = tmp_path / f"{kind.__name__}.log", tmp_path / f"{kind.__name__}.mark"
        descriptors = files(log), files(mark)
        os.write(descriptors[0], b"before")
        assert come_of(kind, descriptors, buffers, b"the mark", 99, sync, lock_of(lock), inf) == (0, MARKED, 99)
        assert (log.read_bytes(), mark.read_bytes()) == (b"before" + b"".join(buffers), b"the mark")


CASES = {
    "no log": (-1, 1, 0, CHECKING),
    "a log without a name": ("unlinked", 1, 0, CHECKING),
    "a full disk": ("/dev/full", 1, errno.ENOSPC, WRITING),
    "a log that is read only": ("read only", 1, errno.EBADF, WRITING),
    "what cannot be synced": ("pipe", 1, errno.EINVAL, SYNCING),
    "no mark": ("log", -1, errno.EBADF, MARKING),
    "a full disk for the mark": ("log", "/dev/full", errno.ENOSPC, MARKING),
}


@pytest.mark.parametrize("case", CASES)
def test_where_it_stops(tmp_path, files, case):
    """A step that fails is the last one and is reported; nothing is marked."""
    log, mark, number, reached = CASES[case]
    reading, writing = os.pipe()
    made = {
        "unlinked": lambda: files(tmp_path / "gone"), "log": lambda: files(tmp_path / "log"), "pipe": lambda: writing,
        "read only": lambda: files(tmp_path / "only", os.O_RDONLY | os.O_CREAT),
        "/dev/full": lambda: files("/dev/full"),
    }  # fmt: skip
    for kind in BOTH:
        descriptors = [
            made[each]() if isinstance(each, str) else files(tmp_path / "mark") if each == 1 else each
            for each in (log, mark)
        ]
        if log == "unlinked":
            (tmp_path / "gone").unlink()
        assert come_of(kind, tuple(descriptors), [b"ab", b"c"], b"mark", 5, True, None, inf) == (number, reached, -1)
    os.close(reading)
    os.close(writing)


def test_a_lock_that_is_not_there(tmp_path, files):
    """If the lock's name leads to another file or to none, nothing is written."""
    lock, other = tmp_path / "lock", tmp_path / "other"
    lock.touch()
    other.touch()
    descriptors = files(tmp_path / "log"), files(tmp_path / "mark")
    path, device, number = lock_of(lock)
    for wrong in (
        (os.fsencode(other), device, number),
        (os.fsencode(tmp_path / "none"), device, number),
        (path, device + 1, number),
        (path, device, number + 1),
    ):
        for kind in BOTH:
            assert come_of(kind, descriptors, [b"abc"], b"mark", 5, True, wrong, inf) == (0, CHECKING, -1)
    assert (tmp_path / "log").read_bytes() == (tmp_path / "mark").read_bytes() == b""


def test_a_lock_that_goes_meanwhile(tmp_path, files):
    """If the lock disappears during the write, nothing is marked: the second check follows the sync."""
    lock = tmp_path / "lock"
    size = 64 << 20
    for kind in BOTH:
        found = (0, MARKED, 5)
        tries = iter(range(100))
        while found == (0, MARKED, 5):  # on a busy machine the lock may disappear too late
            path = tmp_path / f"{kind.__name__}-{next(tries)}.log"
            lock.touch()
            known, log = lock_of(lock), files(path)
            watch = threading.Thread(target=_unlink_when_written, args=(lock, log))
            watch.start()
            descriptors, buffers = (log, files(tmp_path / "mark")), [bytes(1 << 16)] * (size >> 16)
            found = come_of(kind, descriptors, buffers, b"mark", 5, True, known, inf)
            watch.join()
            assert os.fstat(log).st_size == size
            os.truncate(path, 0)
        assert found == (0, RECHECKING, -1)


@pytest.mark.parametrize("late", [True, False])
def test_a_mark_that_comes_too_late(tmp_path, files, late):
    """If the deadline has passed, all is written and synced but not marked; before it, it is marked."""
    for kind in BOTH:
        log, mark = tmp_path / f"{kind.__name__}.log", tmp_path / f"{kind.__name__}.mark"
        until = now_s() + (-0.001 if late else 3600)
        found = come_of(kind, (files(log), files(mark)), [b"ab", b"c"], b"mark", 5, True, None, until)
        assert found == ((0, CHECKING_TIME, -1) if late else (0, MARKED, 5))
        assert (log.read_bytes(), mark.read_bytes()) == (b"abc", b"" if late else b"mark")


def test_the_time_may_run_out_meanwhile(tmp_path, files):
    """The deadline is checked after the sync."""
    for kind in BOTH:
        descriptors = files(tmp_path / f"{kind.__name__}.log"), files(tmp_path / "mark")
        buffers = [bytes(1 << 16)] * (64 << 4)
        found = come_of(kind, descriptors, buffers, b"mark", 5, True, None, now_s() + 0.001)
        assert found == (0, CHECKING_TIME, -1)
        assert os.fstat(descriptors[0]).st_size == 64 << 20


def test_no_time_at_all(tmp_path, files):
    """NaN counts as too late, like a time long past."""
    for until in (nan, -inf):
        found = come_of(
            Commits, (files(tmp_path / "log"), files(tmp_path / "mark")), [b"a"], b"m", 5, False, None, until
        )
        assert found == (0, CHECKING_TIME, -1)


def test_the_clock():
    """The clock continues while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before = time.clock_gettime(clock)
    assert before - 1e-6 <= now_s() <= time.clock_gettime(clock) + 1e-6


def _unlink_when_written(lock, log):
    while not os.fstat(log).st_size:
        time.sleep(0.0001)
    lock.unlink()


def test_a_write_that_ends_in_the_middle(tmp_path, files):
    """If the kernel accepts only part of a buffer, that part is written, the error reported, and nothing marked."""
    held = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        for kind in BOTH:
            path = tmp_path / f"{kind.__name__}.log"
            descriptors = files(path), files(tmp_path / "mark")
            resource.setrlimit(resource.RLIMIT_FSIZE, (700, before[1]))
            found = come_of(kind, descriptors, [b"x" * 300, b"y" * 500, b"z"], b"mark", 5, True, None, inf)
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert found == (errno.EFBIG, WRITING, -1)
            assert path.read_bytes() == b"x" * 300 + b"y" * 400
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, held)


@pytest.mark.parametrize("wrong", [[b"a", None], [b"a", "b"], [bytearray(b"a")], [memoryview(b"a")], [1]])
def test_buffers_are_bytes(tmp_path, files, wrong):
    """Buffers other than bytes, whose memory may move, are refused; nothing is written."""
    commits, log = Commits(), files(tmp_path / "log")
    with pytest.raises(TypeError):
        commits.commit((log, files(tmp_path / "mark")), wrong, b"mark", 5, True, None, inf)
    assert (commits.marked, os.fstat(log).st_size) == (-1, 0)


def test_arguments_of_other_kinds(tmp_path, files):
    """Wrong arguments are refused before anything is written."""
    commits, log, mark = Commits(), files(tmp_path / "log"), files(tmp_path / "mark")
    for arguments in (
        ((log,), [b"a"], b"mark", 5, True, None, inf),
        ((log, mark), [b"a"], None, 5, True, None, inf),
        ((log, mark), [b"a"], "mark", 5, True, None, inf),
        ((log, mark), [b"a"], b"mark", 1 << 63, True, None, inf),
        ((log, mark), [b"a"], b"mark", 5, True, (b"", 1), inf),
        ((log, mark), [b"a"], b"mark", 5, True, ("text", 1, 1), inf),
        ((log, mark), [b"a"], b"mark", 5, True, (None, 1, 1), inf),
        ((log, mark), [b"a"], b"mark", 5, True, (b"x", -1, 1), inf),
        ((log, mark), [b"a"], b"mark", 5, True, None, None),
        ((1 << 31, mark), [b"a"], b"mark", 5, True, None, inf),
    ):
        with pytest.raises((TypeError, ValueError, OverflowError, IndexError)):
            commits.commit(*arguments)
    assert (commits.marked, os.fstat(log).st_size) == (-1, 0)


def test_others_run_meanwhile(tmp_path, files):
    """The interpreter's lock is released: a write that waits for a pipe does not block the pipe's reader."""
    reading, writing = os.pipe()
    taken = []
    reader = threading.Thread(target=lambda: taken.append(sum(len(os.read(reading, 1 << 16)) for _ in range(64))))
    reader.start()
    commits = Commits()
    assert commits.commit((writing, files(tmp_path / "mark")), [bytes(1 << 20)], b"mark", 5, False, None, inf) == 0
    os.close(writing)
    reader.join()
    os.close(reading)
    assert taken[0] > 0


def test_a_file_is_synced(tmp_path, files):
    """A file is synced, or the error is raised."""
    sync_file(files(tmp_path / "file"))
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        sync_file(-1)
    assert caught.value.errno == errno.EBADF
