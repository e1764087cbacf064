"""The write-ahead log: batches of all partitions in one sequence of files, with one sync for many appends.

The first thread to append leads: it writes and syncs the batches of all threads that arrived meanwhile, publishes them
in order, and hands over to the next. Only entries that no thread waits for need a thread of the log. The byte format is
in `spec/log.md`.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from aggregator.base.forked import leave_when_forked
from aggregator.errors import CatalogLockedError, LogFailedError
from aggregator.policy import Durability
from aggregator.storage.files.modes import create_file
from aggregator.storage.log.entry import (
    PASSED,
    PLACED,
    PLACING,
    PUBLISHED,
    PUBLISHING,
    UNKNOWN,
    Action,
    Entry,
    frames_of,
)
from aggregator.storage.log.file import MARK_NAME, LogFile, Marks, encode_mark, file_name
from aggregator.storage.log.frame import FILE_HEADER_BYTES, encode_file_header
from aggregator.storage.log.group_commit import GroupCommit
from esformat import ClosedError
from esformat.parts import CHECKING_TIME, MARKED, RECHECKING, SYNCING, Commits, sync_directory, sync_file


class Guard(Protocol):
    """A lock that keeps other processes from writing."""

    @property
    def named(self) -> tuple[bytes, int, int]:
        """The path that its file must have, and the file's device and inode."""

    def check(self) -> None:
        """Raises CatalogLockedError if another process may write to the catalog."""


class Shipping(Protocol):
    """Uploads the log to a store."""

    @property
    def shipped(self) -> int:
        """The position after the last byte that the store has."""

    @property
    def until(self) -> float:
        """The time, by the clock `now_s`, until which written data may be acknowledged without calling `hold`."""

    def hold(self, end: int) -> None:
        """Wait until the data written up to `end` may be acknowledged. Raises LogFailedError if it never will be."""


class Log(GroupCommit):
    """The log of a catalog, open for appending. Thread-safe."""

    def __init__(
        self,
        directory: Path,
        durability: Durability,
        *,
        files: list[LogFile],
        position: int,
        file_bytes: int,
        guard: Guard | None = None,
        shipping: Shipping | None = None,
    ) -> None:
        """Start a new file at `position`. Raises OSError.

        files: the existing files, oldest first. file_bytes: the size at which a file is followed by a new one.
        guard: checked before anything is written, and again before it is acknowledged.
        shipping: asked before anything is acknowledged; files are kept until it has uploaded them.
        """
        super().__init__()
        self._guard, self._shipping = guard, shipping
        self._file_bytes = file_bytes
        self._directory = directory
        self._durability = durability
        self._commits = Commits()
        self._files = list(files)
        self._older_bytes = 0
        self._descriptor = -1
        self._io = Lock()  # held while the descriptor is synced or replaced, and while files are added or removed
        self._unsynced = False
        self._undone = False  # the written part of a group was removed again
        self._defined: set[Any] = set()
        self._changes = Lock()  # held while a change is noted, and while the mark file is closed
        self._noted = 0
        self._mark = create_file(directory / MARK_NAME, os.O_WRONLY)
        leave_when_forked(self)
        try:
            self._start_file(position)
            self._acknowledge(self._files[-1].end)
        except BaseException:
            for descriptor in (self._mark, self._descriptor):
                if descriptor >= 0:
                    os.close(descriptor)
            raise

    # ------------------------------------------------------------ facts

    @property
    def size_bytes(self) -> int:
        """Bytes of all log files."""
        newest = self._files[-1]
        return self._older_bytes + newest.end - newest.position

    @property
    def start(self) -> int:
        """The position of the oldest file."""
        return self._files[0].position

    @property
    def end(self) -> int:
        """The position after the last frame."""
        return self._files[-1].end

    @property
    def newest(self) -> int:
        """The position at which the newest file begins."""
        return self._files[-1].position

    def partitions(self) -> set[int]:
        """Partitions with events in the files, sealed or not."""
        return {partition for file in list(self._files) for partition in list(file.ends)}

    @property
    def failure(self) -> LogFailedError | None:
        """Why nothing can be appended any more; None if appending works."""
        return self._failure

    def fail(self, error: LogFailedError) -> None:
        """Stop accepting entries, and record why."""
        with self._lock:
            if self._failure is None:
                self._failure = error

    def pinning(self, sealed: Mapping[int, int]) -> list[int]:
        """Partitions whose unsealed events keep the oldest file."""
        return [partition for partition, end in list(self._files[0].ends.items()) if sealed.get(partition, 0) < end]

    # ------------------------------------------------------------ appending

    def append(self, entry: Entry) -> None:
        """Write an entry; it is published when this returns. Thread-safe.

        Raises LogFailedError, in which case it is not published; ClosedError.
        """
        self._wait_for(entry)
        self.check_stored(entry)

    def check_stored(self, entry: Entry) -> None:
        """Raises the error that prevented a settled entry from being stored."""
        settled = entry.bearer or entry
        if settled.error is not None:
            raise settled.error
        if settled.fate < PASSED:  # the leader was interrupted more than once
            raise self._failure or self._not_written(KeyboardInterrupt())

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ClosedError("the catalog is closed", path=str(self._directory.parent))

    def _settle_group(self) -> None:
        """Write the next entries together, publish them, and wake all threads whose entries are settled by it."""
        self._undone = False
        try:
            self._take()
            self._join()
            for entry in self._taken:
                if entry.bearer is None and entry.fate == UNKNOWN:
                    self._place(entry)
            group = [entry for entry in self._taken if entry.fate == PLACED]
            if group:
                self._write_group(group)
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, OSError):
                raise
        finally:
            self._wake_settled()

    def _join(self) -> None:
        """Combine entries that can be written as one: they share all costs of a batch, not only the sync."""
        joining: dict[Any, list[Entry]] = {}
        for entry in self._taken:
            if entry.joins is not None:
                joining.setdefault(entry.joins, []).append(entry)
        for first, *others in joining.values():
            first.join(others)

    @staticmethod
    def _place(entry: Entry) -> None:
        entry.fate = PLACING
        try:
            entry.fate = PLACED if entry.place() else PASSED
        except Exception as error:  # noqa: BLE001  raised in the thread that appends this entry
            entry.error, entry.fate = error, PASSED

    def _write_group(self, group: list[Entry]) -> None:
        if self._files[-1].end - self._files[-1].position >= self._file_bytes:
            self._check_ownership()
            self._start_file(self._files[-1].end)
        file = self._files[-1]
        end = -1
        interrupt: BaseException | None = None
        try:
            buffers, end = frames_of(group, file.end, self._defined)
            self._commit(buffers, end)
        except BaseException as error:
            if end < 0 or self._commits.marked != end:
                if self._commits.reached == SYNCING and self._commits.failed:  # even if an interrupt hides it
                    self._refuse(_os_error(self._commits.failed), "could not be synced")
                if self._failure is None:
                    self._cut_back(file)
                raise
            interrupt = error  # after the mark was written: the group stays
        try:
            self._publish(group, file, end)
        except BaseException:
            self._publish(group, file, end)
            raise
        if interrupt is not None:
            raise interrupt

    def _publish(self, group: list[Entry], file: LogFile, end: int) -> None:
        """Publish an acknowledged group; after an interrupt, call again to publish the rest."""
        self._unsynced = True
        for entry in group:
            file.ends[entry.partition] = entry.first_index + entry.count
            self._defined.add(entry.defines)
        file.end = end  # after `ends`: `needed` reads both
        for entry in group:
            if entry.fate == PLACED:
                entry.fate = PUBLISHING
                entry.publish()
                entry.fate = PUBLISHED

    def _commit(self, buffers: list[bytes], end: int) -> None:
        """Write a group, durably if configured, and publish to readers in other processes how far they may read.

        Raises OSError, LogFailedError.
        """
        until = math.inf if self._shipping is None else self._shipping.until
        if self._commit_files(buffers, end, sync=self._durability.is_synced, until=until):
            return
        assert self._shipping is not None  # only shipping sets a time limit
        try:
            self._shipping.hold(end)
        except BaseException as error:
            if isinstance(error, LogFailedError):
                self._failure = error
            elif self._failure is None:  # the store may have the data
                self._refuse(error, "was interrupted while it was shipped to the store")
            raise
        try:
            self._commit_files([], end, sync=False, until=math.inf)
        except BaseException as error:
            if self._commits.marked != end and self._failure is None:
                self._refuse(error, "could not be marked as acknowledged")  # not cut back: the store has the data
            raise

    def _commit_files(self, buffers: list[bytes], end: int, *, sync: bool, until: float) -> bool:
        """Write, sync and mark a group. Returns False if it was written and synced too late to be marked."""
        files, mark = (self._descriptor, self._mark), encode_mark(end)
        lock = None if self._guard is None else self._guard.named
        while True:
            if self._commits.commit(files, buffers, mark, end, sync, lock, until):
                raise _os_error(self._commits.failed)
            reached = self._commits.reached
            if reached == MARKED:
                return True
            if reached == CHECKING_TIME:
                return False
            self._check_ownership()  # raises unless the lock could be taken again
            lock = None
            if reached == RECHECKING:  # everything but the mark is done
                buffers, sync = [], False

    def _check_alone(self) -> None:
        if self._guard is not None:
            self._guard.check()

    def _check_ownership(self) -> None:
        """Fail permanently if data written now might be missing at the next opening."""
        try:
            self._check_alone()
        except CatalogLockedError as error:
            self._failure = LogFailedError(error.message, path=error.path, hint=error.hint)
            raise self._failure from None
        if not os.fstat(self._descriptor).st_nlink:
            self._failure = LogFailedError(
                "the newest file of the log was deleted while the catalog was open; appends are refused",
                path=str(self._files[-1].path),
                hint="close the catalog; sealed events are kept",
            )
            raise self._failure

    def _cut_back(self, file: LogFile) -> None:
        """Undo a write that failed halfway. If that fails too, the log accepts nothing more."""
        try:
            os.ftruncate(self._descriptor, file.end - file.position)
            os.lseek(self._descriptor, file.end - file.position, os.SEEK_SET)
            self._undone = True
        except OSError as error:
            self._refuse(error, "cannot be cut back to its last whole frame")

    def _sync(self, file: LogFile) -> None:
        """Sync the current file. A failed sync is never retried: the kernel may have dropped the pages."""
        try:
            sync_file(self._descriptor)
        except OSError as error:
            self._refuse(error, "could not be synced", file)
            raise

    def _sync_older(self) -> None:
        """Sync the files before the current one, which were never synced."""
        for file in self._files[:-1]:
            descriptor = os.open(file.path, os.O_RDONLY)
            try:
                sync_file(descriptor)
            finally:
                os.close(descriptor)

    def _refuse(self, error: BaseException, what: str, file: LogFile | None = None) -> None:
        path = str((file or self._files[-1]).path)
        self._failure = LogFailedError(
            f"the log {what}: {_reason(error)}; appends are refused",
            path=path,
            hint="check the disk, then reopen the catalog: acknowledged events are kept",
        )

    def _fail(self, error: BaseException) -> None:
        """Withdraw the taken entries that are not published."""
        fates = {entry.fate for entry in self._taken}
        is_known = not fates & {PLACING, PUBLISHING} and (PLACED not in fates or self._undone)
        if not isinstance(error, OSError) and self._failure is None and not is_known:
            self._refuse(error, "was interrupted while writing")
        for entry in reversed(self._taken):
            if entry.fate == PLACED:
                entry.withdraw()
            if entry.fate < PASSED:
                entry.error = self._failure or self._not_written(error)

    def _not_written(self, error: BaseException) -> LogFailedError:
        return LogFailedError(
            f"the log could not be written: {_reason(error)}; the batch was not stored",
            path=str(self._files[-1].path),
            hint="free space on the disk, then append the batch again",
        )

    # ------------------------------------------------------------ files

    def _start_file(self, position: int) -> None:
        """Begin a new file at `position`, durably; sync and close the previous one."""
        path = self._directory / file_name(position)
        was_there = path.exists()  # without a frame: its name tells the next opening how far the log got
        descriptor = create_file(path, os.O_WRONLY | os.O_TRUNC)
        try:
            header = encode_file_header(position)
            while header:
                header = header[os.write(descriptor, header) :]
            os.fsync(descriptor)
            sync_directory(self._directory)
        except BaseException:
            os.close(descriptor)
            if not was_there:
                with contextlib.suppress(OSError):
                    path.unlink()
            raise
        with self._io:
            if self._descriptor >= 0:
                if self._unsynced and self._durability.mode == "interval":
                    try:
                        self._sync(self._files[-1])
                    except OSError:
                        os.close(descriptor)
                        raise
                os.close(self._descriptor)
            self._descriptor = descriptor
            self._files.append(LogFile(path, position, position + FILE_HEADER_BYTES))
            self._older_bytes = self._sizes_but_newest()
            self._defined = set()

    def roll(self) -> None:
        """Begin a new file, so that the current one can be deleted when its events are sealed. Raises as `append`."""

        def start() -> None:
            self._check_ownership()
            self._start_file(self._files[-1].end)

        self.append(Action(start))

    def wait(self) -> None:
        """Wait until every entry placed so far is published or has failed. Raises as `append`."""
        self.append(Entry())

    def _acknowledge(self, end: int) -> None:
        """Publish to readers in other processes how far they may read."""
        os.pwrite(self._mark, encode_mark(end), 0)

    def note_change(self, change: int) -> None:
        """Publish to readers which change of the manifest they must see. Takes a microsecond: nothing is synced."""
        with self._changes, contextlib.suppress(OSError):  # then readers are only less certain that they see everything
            if self._descriptor >= 0 and change > self._noted:
                self._noted = change
                os.pwrite(self._mark, encode_mark(change), Marks.CHANGE_AT)

    def sync(self) -> None:
        """Write to disk what `durability="interval"` left in the kernel. Raises LogFailedError."""
        with self._io:
            if self._descriptor < 0 or not self._unsynced or self._failure is not None:
                return
            self._unsynced = False
            try:
                self._sync(self._files[-1])
            except OSError:
                assert self._failure is not None
                raise self._failure from None

    def is_sealed(self, sealed: Mapping[int, int]) -> bool:
        """Whether the log has events, and all of them are in segments. sealed: as for `release`."""
        files = list(self._files)
        return any(file.ends for file in files) and all(file.is_sealed(sealed) for file in files)

    def releasable(self, sealed: Mapping[int, int]) -> bool:
        """Whether `release` would delete a file."""
        shipped = self._shipping is None or self._files[0].end <= self._shipping.shipped
        return len(self._files) > 1 and shipped and self._files[0].is_sealed(sealed)

    def needed(self, sealed: Mapping[int, int]) -> int:
        """The position of the oldest frame that may contain events that are in no segment. sealed: as for `release`."""
        end = self.end  # read first: later appends are after it
        for file in list(self._files):
            if not file.is_sealed(sealed):
                return file.position + FILE_HEADER_BYTES
        return end

    def read(self, position: int, end: int, most_bytes: int) -> list[tuple[int, bytes]]:
        """The bytes between two positions, up to `most_bytes`, as contiguous pieces with positions. Raises OSError."""
        pieces: list[tuple[int, bytes]] = []
        for file in list(self._files):
            first = max(position, file.position + FILE_HEADER_BYTES)
            last = end if file is self._files[-1] else min(file.end, end)
            last = min(last, first + most_bytes)
            if first < last:
                pieces.append((first, _read(file.path, first - file.position, last - first)))
                most_bytes -= last - first
        return pieces

    def release(self, sealed: Mapping[int, int]) -> int:
        """Delete the oldest files whose events are all in segments; return the number of bytes freed.

        sealed: for each partition, the record index below which every event is in a segment.
        """
        freed = 0
        if self.releasable(sealed):
            self._check_alone()
        while self.releasable(sealed):
            oldest = self._files[0]
            oldest.path.unlink(missing_ok=True)
            with self._io:
                self._files.pop(0)
                self._older_bytes = self._sizes_but_newest()
            freed += oldest.end - oldest.position
        return freed

    def _sizes_but_newest(self) -> int:
        return sum(file.end - file.position for file in self._files[:-1])

    def leave_to_parent(self) -> None:
        """In a forked process: close the descriptors, so that files that the parent deletes free their space."""
        mine, self._descriptor, self._mark = (self._descriptor, self._mark), -1, -1
        for descriptor in mine:
            if descriptor >= 0:
                os.close(descriptor)

    def close(self) -> None:
        """Sync and close. Waiting appends are written first; later ones raise ClosedError. Closing twice is allowed."""
        if not self._finish():
            return
        with self._io:
            try:
                if self._failure is None and self._unsynced:
                    self._sync(self._files[-1])
                if self._failure is None and self._durability.mode == "none":
                    self._sync_older()
            finally:
                with self._changes:
                    self.leave_to_parent()


def _read(path: Path, at: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        data = file.read(length)
    if len(data) != length:
        raise OSError(errno.EIO, "the log's file ends early", str(path))
    return data


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _reason(error: BaseException) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else type(error).__name__
