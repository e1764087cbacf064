"""`Commits` in plain Python: a model of the compiled one, for tests in which a call of `os` fails."""

from __future__ import annotations

import errno
import os
import time

from esformat.core.commits import CHECKING, CHECKING_TIME, MARKED, MARKING, RECHECKING, SYNCING, WRITING


class PlainCommits:
    """The same steps, each a call of `os`."""

    def __init__(self):
        self.reached, self.marked, self.failed = MARKED, -1, 0

    def commit(self, *arguments):
        self.failed = 0
        self.failed = self._commit(*arguments)
        return self.failed

    def _commit(self, files, buffers, mark, end, sync, lock, until):
        self.reached = CHECKING
        log, noted = files
        try:
            if not _is_ours(log, lock):
                return 0
            self.reached = WRITING
            left = memoryview(b"".join(buffers))
            while left:
                left = left[os.writev(log, [left]) :]
            self.reached = SYNCING
            if sync:
                os.fdatasync(log)
            self.reached = RECHECKING
            if not _is_ours(log, lock):
                return 0
            self.reached = CHECKING_TIME
            if time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) > until:
                return 0
            self.reached = MARKING
            if os.pwrite(noted, mark, 0) < len(mark):
                return errno.ENOSPC
        except OSError as error:
            return error.errno
        self.reached, self.marked = MARKED, end
        return 0


def _is_ours(log, lock):
    try:
        if not os.fstat(log).st_nlink:
            return False
        if lock is not None:
            found = os.stat(lock[0])  # noqa: PTH116
            return (found.st_dev, found.st_ino) == lock[1:]
    except OSError:
        return False
    return True
