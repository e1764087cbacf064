"""The log in use: many threads, failing disks, killed processes, damaged files."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from effort import ALL
from log_bench import Bench, read_back
from plain_commits import PlainCommits
from waiting import until

from aggregator.errors import LogFailedError
from aggregator.storage.log import log as log_module
from aggregator.storage.log.entry import DONE, Entry
from aggregator.storage.log.file import MARK_NAME, decode_mark, list_files
from aggregator.storage.log.frame import FILE_HEADER_BYTES
from aggregator.storage.log.recovery import recover
from esformat import ClosedError

WAIT_S = 60


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def plain(monkeypatch):
    """Make logs call functions of `os`, which tests can let fail."""
    monkeypatch.setattr(log_module, "Commits", PlainCommits)


@pytest.mark.parametrize("durability", ["fsync", "interval", "none"])
def test_appends_come_back(directory, durability):
    """Appends come back in order, once, with their record indexes."""
    bench = Bench(directory, durability)
    for number in range(50):
        bench.append(number % 3, bytes([number]) * (number + 1))
    bench.log.close()
    result, batches = read_back(directory)
    assert batches == bench.published
    assert not result.damages
    assert not result.torn_bytes


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_a_log_that_cannot_begin_leaves_nothing_open(directory, monkeypatch, call):
    """A log that cannot be opened leaves no descriptor open, whatever failed."""
    Bench(directory).log.close()

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log_module.os, call, fail)
        with pytest.raises(OSError, match="space"):
            Bench(directory)
    held = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    assert [path for path in held if path.startswith(f"{directory}/")] == []


def test_what_is_read_back_is_written_once_more_before_it_is_synced(directory, monkeypatch):
    """After a failed sync, pages may only seem to be on disk: the last file is written again before the sync."""
    bench = Bench(directory)
    for number in range(20):
        bench.append(0, bytes([number]) * 1000)
    bench.log.close()
    (_, path) = list_files(directory)[-1]
    stored = path.read_bytes()
    calls = []
    real = os.pwrite

    def pwrite(descriptor, data, at):
        calls.append((at, bytes(data)))
        return real(descriptor, data[: len(data) // 2 + 1], at)  # as if the disk took only a part

    def fsync(_):
        calls.append("sync")
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(log_module.os, "pwrite", pwrite)
    monkeypatch.setattr(log_module.os, "fsync", fsync)
    for _ in range(2):
        calls.clear()
        with pytest.raises(OSError, match="Input"):
            read_back(directory)
        written = bytearray(len(stored))
        for at, data in calls[:-1]:
            written[at : at + len(data)] = data
        assert (bytes(written), calls[-1]) == (stored, "sync")
    assert path.read_bytes() == stored


def test_many_threads_share_a_sync(directory, monkeypatch, plain):
    """Eight threads need far fewer syncs than appends, and every append is there once."""
    syncs = []
    monkeypatch.setattr(log_module.os, "fdatasync", lambda fd: (syncs.append(fd), time.sleep(0.02)))
    bench = Bench(directory)

    def work(partition):
        for number in range(25):
            bench.append(partition, b"%d" % number)

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.log.close()
    assert 25 <= len(syncs) < 150
    _, batches = read_back(directory)
    assert batches == bench.published
    assert len(batches) == 200


def test_published_after_sync_only(directory, monkeypatch, plain):
    """A batch is published only after its sync."""
    bench = Bench(directory)
    seen = []
    monkeypatch.setattr(log_module.os, "fdatasync", lambda fd: seen.append(list(bench.published)))
    bench.append(1, b"abc")
    assert seen == [[]]
    assert bench.published == [(1, 0, b"abc")]


def test_files_follow_each_other(directory):
    """A full file gets a successor; each defines its own partitions; sealed files are deleted, oldest first."""
    bench = Bench(directory, file_bytes=2000)
    for _ in range(10):
        bench.append(1, b"x" * 400)
        bench.append(2, b"y" * 400)
    files = list_files(directory)
    assert len(files) > 3
    for start, path in files:
        assert path.stat().st_size == FILE_HEADER_BYTES or b'{"partition": ' in path.read_bytes()
        assert start == int(path.stem, 16)
    assert bench.log.size_bytes == sum(path.stat().st_size for _, path in files)
    assert bench.log.release({1: 4000, 2: 0}) == 0
    assert bench.log.pinning({1: 4000, 2: 0}) == [2]
    assert bench.log.release({1: 1200, 2: 1200}) > 0
    _, batches = read_back(directory)
    assert batches == bench.published[-len(batches) :]
    assert {(partition, first) for partition, first, _ in batches} >= {(1, 1200), (2, 1200)}
    bench.log.release({1: 4000, 2: 4000})
    assert len(list_files(directory)) == 1
    bench.log.close()


def test_opening_again_goes_on(directory):
    """A reopened log keeps its contents and continues positions and record indexes."""
    for round_ in range(4):
        bench = Bench(directory)
        bench.append(1, b"%d" % round_)
        bench.log.close()
    _, batches = read_back(directory)
    assert batches == [(1, number, b"%d" % number) for number in range(4)]
    starts = [start for start, _ in list_files(directory)]
    assert starts == sorted(set(starts))


def test_closed(directory):
    """A closed log refuses appends; closing twice has no effect."""
    bench = Bench(directory)
    bench.log.close()
    bench.log.close()
    with pytest.raises(ClosedError):
        bench.append(1, b"x")


# ------------------------------------------------------------ disks that fail


def test_failed_sync_is_never_retried(directory, monkeypatch, plain):
    """After a failed sync, this and all later appends are refused, and the sync is not retried."""
    bench = Bench(directory)
    bench.append(1, b"kept")
    calls = []

    def fail(descriptor):
        calls.append(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(log_module.os, "fdatasync", fail)
    for _ in range(3):
        with pytest.raises(LogFailedError, match=r"could not be synced.*reopen"):
            bench.append(1, b"lost")
    assert len(calls) == 1
    assert bench.published == [(1, 0, b"kept")]
    assert decode_mark((directory / MARK_NAME).read_bytes()) < bench.log._files[-1].path.stat().st_size
    bench.log.close()
    monkeypatch.undo()
    bench = Bench(directory)  # opened again: the bytes reached the file, so the batch is whole
    assert bench.next[1] == 8
    bench.append(1, b"more")
    bench.log.close()


def test_failed_sync_reaches_those_who_wait(directory, monkeypatch, plain):
    """Appends queued behind a failing sync are refused, too, and none hangs."""
    bench = Bench(directory)

    def fail(descriptor):
        time.sleep(0.05)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(log_module.os, "fdatasync", fail)
    errors = []

    def work():
        try:
            bench.append(1, b"x")
        except LogFailedError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 8
    assert bench.published == []


def test_full_disk_is_survived(directory, monkeypatch, plain):
    """A write that fails halfway leaves nothing behind, and appends continue when there is room."""
    bench = Bench(directory)
    bench.append(1, b"before")
    real = os.writev

    def half(descriptor, buffers):
        real(descriptor, [b"".join(buffers)[:70]])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log_module.os, "writev", half)
    with pytest.raises(LogFailedError, match="no space left"):
        bench.append(1, b"refused")
    monkeypatch.undo()
    bench.append(1, b"after")
    bench.log.close()
    result, batches = read_back(directory)
    assert batches == [(1, 0, b"before"), (1, 6, b"after")]
    assert not result.damages


def test_a_mark_that_cannot_be_written(directory, monkeypatch, plain):
    """If the mark cannot be written, the batch is refused and taken back; its record indexes are used again."""
    bench = Bench(directory)
    bench.append(1, b"before")

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log_module.os, "pwrite", fail)
    with pytest.raises(LogFailedError, match="the batch was not stored"):
        bench.append(1, b"refused")
    monkeypatch.undo()
    bench.append(1, b"after")
    bench.log.close()
    _, batches = read_back(directory)
    assert batches == bench.published == [(1, 0, b"before"), (1, 6, b"after")]


def test_what_is_read_back_is_synced(directory, monkeypatch):
    """Frames read back after a crash are synced first: a reader must not lose what it saw."""
    bench = Bench(directory, "none")
    bench.append(1, b"unsynced")
    (_, path), synced = list_files(directory)[-1], []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    _, batches = read_back(directory)
    assert batches == [(1, 0, b"unsynced")]
    assert path.stat().st_ino in synced
    monkeypatch.undo()
    bench.log.close()


def test_short_writes_are_completed(directory, monkeypatch, plain):
    """Short writes are completed."""
    real = os.writev
    monkeypatch.setattr(log_module.os, "writev", lambda fd, buffers: real(fd, [b"".join(buffers)[:10]]))
    bench = Bench(directory)
    bench.append(1, b"whole")
    bench.log.close()
    _, batches = read_back(directory)
    assert batches == [(1, 0, b"whole")]


def test_short_header_is_completed(directory, monkeypatch):
    """A short write of a new file's header, as on an almost full disk, is completed."""
    real = os.write
    monkeypatch.setattr(log_module.os, "write", lambda fd, data: real(fd, data[:10]))
    bench = Bench(directory)
    monkeypatch.undo()
    bench.append(1, b"kept")
    bench.log.close()
    result, batches = read_back(directory)
    assert batches == [(1, 0, b"kept")]
    assert not result.damages


def test_no_room_for_a_new_file(directory, monkeypatch):
    """If there is no room for a new file, the append is refused, and the previous file stays in use."""
    bench = Bench(directory, file_bytes=100)
    bench.append(1, b"x" * 200)

    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log_module.os, "fsync", fail)
    with pytest.raises(LogFailedError):
        bench.append(1, b"refused")
    monkeypatch.undo()
    bench.append(1, b"after")
    bench.log.close()
    _, batches = read_back(directory)
    assert [payload for _, _, payload in batches] == [b"x" * 200, b"after"]


def test_placing_that_fails_concerns_its_own_append(directory):
    """An entry that cannot be placed raises in its own thread; the log continues."""
    bench = Bench(directory)
    entry = bench.entry(1, b"bad")

    def refuse():
        raise ValueError("not this one")

    entry.place = refuse
    with pytest.raises(ValueError, match="not this one"):
        bench.log.append(entry)
    bench.append(1, b"good")
    assert bench.published == [(1, 0, b"good")]
    bench.log.close()


def test_interval_syncs_on_demand(directory, monkeypatch):
    """With "interval" appends do not wait for the disk; the next sync covers all of them, and no sync is needless."""
    syncs = []
    monkeypatch.setattr(log_module, "sync_file", syncs.append)
    bench = Bench(directory, "interval")
    bench.append(1, b"a")
    bench.append(1, b"b")
    assert syncs == []
    bench.log.sync()
    bench.log.sync()
    assert len(syncs) == 1
    bench.log.close()


# ------------------------------------------------------------ what a crash leaves


def _written(directory):
    bench = Bench(directory)
    for number in range(6):
        bench.append(1, b"%d" % number * 20)
    bench.log.close()
    (_, path), *_ = list_files(directory)
    return path, bench.published


def test_torn_tail_at_each_length(tmp_path):
    """Cut anywhere, the log returns the whole batches, and appends continue after them."""
    path, published = _written(tmp_path / "whole")
    stored = path.read_bytes()
    for length in range(0, len(stored), 7):
        directory = tmp_path / f"cut-{length}"
        directory.mkdir()
        (directory / path.name).write_bytes(stored[:length])
        bench = Bench(directory)
        assert not bench.recovered.damages
        bench.append(1, b"more")
        bench.log.close()
        _, batches = read_back(directory)
        assert batches[:-1] == published[: len(batches) - 1]
        assert batches[-1] == (1, 20 * (len(batches) - 1), b"more")


def test_damage_in_the_middle_is_reported(directory):
    """A flipped byte in an older batch loses that batch, is reported, and is not taken for a torn tail."""
    path, published = _written(directory)
    stored = bytearray(path.read_bytes())
    at = stored.index(b"2" * 20)
    stored[at] ^= 1
    path.write_bytes(stored)
    result, batches = read_back(directory)
    assert batches == [batch for batch in published if batch[2] != b"2" * 20]
    (damage,) = result.damages
    assert damage.position < at < damage.end
    assert "checksum" in damage.message
    assert path.stat().st_size == len(stored)


def test_torn_group_is_dropped_whole(directory, monkeypatch, plain):
    """Frames of a group whose first pages never reached the disk were not acknowledged: none of them counts."""
    bench = Bench(directory)
    bench.append(1, b"first")
    acknowledged = (directory / MARK_NAME).read_bytes()
    syncing, all_wait = threading.Event(), threading.Event()
    monkeypatch.setattr(log_module.os, "fdatasync", lambda fd: (syncing.set(), all_wait.wait(WAIT_S)))
    threads = [threading.Thread(target=bench.append, args=(number, b"payload%d" % number)) for number in range(2, 8)]
    threads[0].start()
    assert syncing.wait(WAIT_S)  # an earlier arrival would be written with it
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(bench.log._queue) == len(threads) - 1, WAIT_S)
    all_wait.set()
    for thread in threads:
        thread.join()
    bench.log.close()
    (_, path), *_ = list_files(directory)
    stored = bytearray(path.read_bytes())
    _, before = read_back(directory)
    last_group = [payload for _, _, payload in before[2:]]  # the second append led alone, the others waited together
    assert len(last_group) == len(threads) - 1
    at = stored.index(last_group[0])
    stored[at] ^= 1
    path.write_bytes(stored)
    (directory / MARK_NAME).write_bytes(acknowledged)
    result, batches = read_back(directory)
    assert batches == before[:2]
    assert result.torn_bytes
    assert not result.damages


def test_missing_file_is_reported(directory):
    """A missing log file leaves a gap that is reported."""
    bench = Bench(directory, file_bytes=100)
    for number in range(4):
        bench.append(1, b"%d" % number * 100)
    bench.log.close()
    files = list_files(directory)
    files[1][1].unlink()
    result, batches = read_back(directory)
    assert [payload[:1] for _, _, payload in batches] == [b"0", b"2", b"3"]
    assert result.gaps == [(files[0][1].stat().st_size, files[2][0])]
    assert not result.damages


def test_damaged_header_costs_nothing(directory):
    """A damaged file header loses nothing, because frames contain their positions."""
    path, published = _written(directory)
    stored = bytearray(path.read_bytes())
    stored[9] ^= 1
    path.write_bytes(stored)
    result, batches = read_back(directory)
    assert batches == published
    assert len(result.damages) == 1


CHILD = """
import sys
from pathlib import Path
from log_bench import Bench

bench = Bench(Path(sys.argv[1]), sys.argv[2])
number = bench.next.get(1, 0)
while True:
    bench.append(1, b"%08d" % number)
    number += 8
    print(number, flush=True)
"""


@pytest.mark.parametrize("durability", ["fsync", "interval", "none"])
def test_killed_process_loses_nothing_acknowledged(directory, durability):
    """Over three kills of the same log, what was acknowledged is there once."""
    root = Path(__file__).parents[4]
    for _ in range(3 if ALL else 1):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(directory), durability], stdout=subprocess.PIPE, cwd=root,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "tests" / "support")])},
        ) as child:  # fmt: skip
            assert child.stdout is not None
            for _ in range(100):
                line = child.stdout.readline()
            child.send_signal(signal.SIGKILL)
            acknowledged = int((line + child.stdout.read()).split()[-1])
        result, batches = read_back(directory)
        assert not result.damages
        assert [first for _, first, _ in batches] == list(range(0, 8 * len(batches), 8))
        assert all(payload == b"%08d" % first for _, first, payload in batches)
        assert acknowledged <= 8 * len(batches) <= acknowledged + 8


def test_recover_of_nothing(tmp_path):
    """An empty directory is an empty log."""
    result = recover(tmp_path, lambda frame: None)
    assert (result.files, result.position, result.damages) == ([], 0, [])


class Turn:
    """The turn of an entry whose thread is interrupted at its first wait, at `interrupt`."""

    def __init__(self):
        self.interrupt = threading.Event()
        self._lock = threading.Lock()
        self._lock.acquire()

    def acquire(self, blocking=True):
        if not self.interrupt.is_set():
            assert self.interrupt.wait(WAIT_S)
            raise KeyboardInterrupt
        return self._lock.acquire(blocking)

    def release(self):
        self._lock.release()


class Numbered(Entry):
    """A batch of one event whose record index is its number."""

    def __init__(self, published, number, before):
        super().__init__(0, 1, defines=0)
        self.published, self.number, self.before = published, number, before
        self.carry([b"x" * 8])

    def place(self):
        self.before()
        self.first_index = self.number
        return True

    def publish(self):
        self.published.append(self.number)

    def definition(self):
        return b"a definition"


def entry(published, number, before=lambda: None):
    return Numbered(published, number, before)


def appending(log, entry):
    """Append in a thread. Returns it and the list of what it raised."""
    raised = []

    def append():
        try:
            log.append(entry)
        except BaseException as error:  # noqa: BLE001  including interrupts
            raised.append(error)

    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    return thread, raised


def queued(log, count):
    deadline = time.monotonic() + WAIT_S
    while len(log._queue) < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_an_interrupt_while_another_writes_for_it(directory):
    """An append behind one that is interrupted just as its batch is taken completes anyway."""
    log = Bench(directory).log
    published = []
    placing, go = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]

    def slowly(number):
        def place():
            placing[number].set()
            assert go[number].wait(WAIT_S)

        return place

    interrupted = entry(published, 2)
    interrupted.turn = Turn()
    threads = [appending(log, entry(published, 0, slowly(0)))]
    assert placing[0].wait(WAIT_S)
    threads.append(appending(log, entry(published, 1, slowly(1))))
    queued(log, 1)
    threads.append(appending(log, interrupted))
    queued(log, 2)
    go[0].set()
    assert placing[1].wait(WAIT_S)  # the leader has taken the third
    threads.append(appending(log, entry(published, 3)))
    queued(log, 1)
    interrupted.turn.interrupt.set()
    time.sleep(0.05)
    go[1].set()
    for thread, _ in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert [len(raised) for _, raised in threads] == [0, 0, 1, 0]
    assert published == [0, 1, 2, 3]
    log.close()


def test_an_interrupt_before_leading(directory, monkeypatch):
    """An append that is interrupted when about to lead blocks no other."""
    log = Bench(directory).log
    published = []
    lead = log._lead

    def interrupted(*own):
        monkeypatch.setattr(log, "_lead", lead)
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "_lead", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.append(entry(published, 0))
    thread, raised = appending(log, entry(published, 1))
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert not raised
    assert published == [0, 1]
    log.close()


def test_partitions_that_come_while_the_log_is_looked_at(directory):
    """Appends to new partitions may run while the log's contents are examined."""
    bench = Bench(directory)
    bench.append(0, b"x")
    (file,) = bench.log._files

    class Sealed(dict):
        def get(self, partition, default):
            file.ends[partition + 1000] = 1
            return default

    assert bench.log.pinning(Sealed()) == [0]
    assert not bench.log.is_sealed(Sealed())
    bench.log.close()


def test_an_interrupt_while_syncing(directory, monkeypatch, plain):
    """After an interrupt during the sync nothing of the batch is kept, and the next one is accepted."""
    bench = Bench(directory)
    bench.append(0, b"first")
    sync = os.fdatasync

    def interrupted(descriptor):
        sync(descriptor)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(log_module.os, "fdatasync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bench.append(0, b"second")
    bench.append(0, b"third")
    bench.log.close()
    result, batches = read_back(directory)
    assert batches == bench.published
    assert not result.damages
    assert not result.torn_bytes


def test_an_interrupt_that_hides_a_failed_sync(directory, monkeypatch):
    """If an interrupt hides a failed sync, the log still refuses appends without retrying the sync."""
    bench = Bench(directory)
    bench.append(0, b"first")

    class Interrupted(PlainCommits):
        def commit(self, *arguments):
            super().commit(*arguments)
            raise KeyboardInterrupt

    def fail(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(bench.log, "_commits", Interrupted())
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(KeyboardInterrupt):
        bench.append(0, b"second")
    monkeypatch.undo()
    with pytest.raises(LogFailedError, match="could not be synced"):
        bench.append(0, b"third")
    assert bench.published == [(0, 0, b"first")]
    bench.log.close()


def test_an_interrupt_behind_the_mark(directory, monkeypatch):
    """An interrupt after the mark is raised, and the acknowledged batch stays and is visible."""
    bench = Bench(directory)

    class Interrupted(PlainCommits):
        def commit(self, *arguments):
            super().commit(*arguments)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bench.log, "_commits", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            bench.append(0, b"kept")
    bench.append(0, b"more")
    bench.log.close()
    _, batches = read_back(directory)
    assert batches == bench.published == [(0, 0, b"kept"), (0, 4, b"more")]


def test_who_was_told_already_does_not_lead(directory):
    """If an interrupt left a batch in the queue whose thread is gone, the next append leads."""
    bench = Bench(directory)
    gone = bench.entry(0, b"gone")
    gone.state = DONE
    bench.log._queue.append(gone)
    bench.log._leader = gone
    bench.log._hand_over()
    assert bench.log._leader is None
    bench.append(0, b"next")
    assert bench.published == [(0, 0, b"next")]
    bench.log.close()
