# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Write, sync and mark a group of batches as acknowledged in one call, without the interpreter's lock.

As separate calls, each step would wait for that lock again, among all appending threads. Files are passed as
descriptors: other modules open, name and close them. Nothing is retried.
"""

import os

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.esformat.core.commits import es_is_named, es_is_same, es_now, es_sync, es_write, es_write_at, iovec
from cython.cimports.libc.errno import ENOSPC, errno
from cython.cimports.libc.stdlib import free, malloc

CHECKING, WRITING, SYNCING, RECHECKING, CHECKING_TIME, MARKING, MARKED = range(7)
"""The progress of a commit: the step at which it stopped, or MARKED."""
_CHECKING = cython.declare(cython.int, CHECKING)
_WRITING = cython.declare(cython.int, WRITING)
_SYNCING = cython.declare(cython.int, SYNCING)
_RECHECKING = cython.declare(cython.int, RECHECKING)
_CHECKING_TIME = cython.declare(cython.int, CHECKING_TIME)
_MARKING = cython.declare(cython.int, MARKING)
_MARKED = cython.declare(cython.int, MARKED)
_AT_ONCE = cython.declare(cython.Py_ssize_t, 512)
"""Most buffers of one call; Linux accepts 1,024."""


@cython.final
@cython.cclass
class Commits:
    """Commits groups to a log, one at a time, and knows how far the last commit got, even if it was interrupted."""

    reached = cython.declare(cython.int, visibility="readonly")
    marked = cython.declare(cython.longlong, visibility="readonly")
    failed = cython.declare(cython.int, visibility="readonly")

    def __init__(self) -> None:
        self.reached, self.marked, self.failed = _MARKED, -1, 0

    def commit(
        self,
        files: tuple[int, int],
        buffers: list[bytes],
        mark: bytes,
        end: int,
        sync: bool,
        lock: tuple[bytes, int, int] | None,
        until: float,
    ) -> int:
        """Append buffers to the log, sync it if `sync`, and write the mark at the beginning of its file.

        Returns 0, or the errno of the step `reached`, which is also in `failed`. Also returns 0 if it stopped at a
        check of the names, or at CHECKING_TIME because it was too late.

        files: the descriptors of the log, which is written at its current position, and of the mark.
        end: the position that the mark states; `marked` after success.
        lock: a path, device and inode: that file must have that name before and after, and the log must have a name.
        until: the mark is not written after this time on the clock of `now_s`.
        """
        if buffers is None or mark is None or len(files) != 2 or (lock is not None and len(lock) != 3):
            raise TypeError("a commit takes two files, buffers, a mark, and a lock of three parts")
        path: bytes = b"" if lock is None else lock[0]
        if path is None:
            raise TypeError("the path of a lock must be bytes")
        log: cython.int = files[0]
        noted: cython.int = files[1]
        held: tuple[bytes, ...] = tuple(buffers)  # a copy, because another thread may change the list
        count: cython.Py_ssize_t = len(held)
        name: cython.p_char = cython.NULL if lock is None else PyBytes_AS_STRING(path)
        device: cython.ulonglong = 0 if lock is None else lock[1]
        number: cython.ulonglong = 0 if lock is None else lock[2]
        synced: cython.bint = sync
        position: cython.longlong = end
        latest: cython.double = until
        stored: cython.p_char = PyBytes_AS_STRING(mark)
        size: cython.Py_ssize_t = PyBytes_GET_SIZE(mark)
        failed: cython.int
        some: cython.pointer(iovec) = cython.cast(cython.pointer(iovec), malloc(max(count, 1) * cython.sizeof(iovec)))
        if some == cython.NULL:
            raise MemoryError
        try:
            for i in range(count):
                part: bytes = held[i]
                if part is None:
                    raise TypeError("a buffer must be bytes")
                some[i].iov_base = cython.cast(cython.p_void, PyBytes_AS_STRING(part))
                some[i].iov_len = PyBytes_GET_SIZE(part)
            with cython.nogil:
                self.failed = 0
                failed = self._run(log, noted, some, count, stored, size, synced, name, device, number, latest)
                self.failed = failed
                if self.reached == _MARKED:
                    self.marked = position
        finally:
            free(some)
        return failed

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _run(
        self,
        log: cython.int,
        noted: cython.int,
        some: cython.pointer(iovec),
        count: cython.Py_ssize_t,
        mark: cython.p_char,
        size: cython.Py_ssize_t,
        sync: cython.bint,
        name: cython.p_char,
        device: cython.ulonglong,
        number: cython.ulonglong,
        latest: cython.double,
    ) -> cython.int:
        """Run the steps. Returns the errno of the step that failed, or 0."""
        self.reached = _CHECKING
        if not _is_ours(log, name, device, number):
            return 0
        self.reached = _WRITING
        failed: cython.int = _write_all(log, some, count)
        if failed:
            return failed
        self.reached = _SYNCING
        if sync and es_sync(log) != 0:
            return errno
        self.reached = _RECHECKING
        if not _is_ours(log, name, device, number):
            return 0
        self.reached = _CHECKING_TIME
        if not es_now() <= latest:
            return 0
        self.reached = _MARKING
        written: cython.Py_ssize_t = es_write_at(noted, mark, size, 0)
        if written < 0:
            return errno
        if written < size:  # readers ignore half a mark, and the next one will be whole
            return ENOSPC
        self.reached = _MARKED
        return 0


def now_s() -> float:
    """Seconds since an arbitrary start, including time asleep if the system counts it; infinity without a clock."""
    return es_now()


def sync_file(file: cython.int) -> None:
    """Sync a descriptor to disk, as a commit does. Raises OSError."""
    failed: cython.int = 0
    with cython.nogil:
        if es_sync(file) != 0:
            failed = errno
    if failed:
        raise OSError(failed, os.strerror(failed))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_ours(log: cython.int, name: cython.p_char, device: cython.ulonglong, number: cython.ulonglong) -> cython.bint:
    """Whether the file with the lock's name still is the locked file, and the log still has a name."""
    return es_is_named(log) and (name == cython.NULL or es_is_same(name, device, number))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_all(log: cython.int, some: cython.pointer(iovec), count: cython.Py_ssize_t) -> cython.int:
    """Write all bytes of the buffers. Returns 0, or the errno."""
    written: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    while at < count:
        if some[at].iov_len == 0:
            at += 1
            continue
        written = es_write(log, some + at, cython.cast(cython.int, min(count - at, _AT_ONCE)))
        if written < 0:
            return errno
        while written > 0:  # the kernel may write only some of the buffers, the last one in part
            if cython.cast(cython.size_t, written) < some[at].iov_len:
                some[at].iov_base = cython.cast(cython.p_char, some[at].iov_base) + written
                some[at].iov_len -= written
                break
            written -= cython.cast(cython.Py_ssize_t, some[at].iov_len)
            at += 1
    return 0
