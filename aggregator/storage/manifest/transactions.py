"""`Transactions`: the manifest's file, write access to it, and its read and write transactions."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

from aggregator.base.forked import Owner, fork_between, leave_when_forked, never_free
from aggregator.errors import CatalogLockedError
from aggregator.storage.files.layout import manifest_files, same_file
from aggregator.storage.manifest.database import errors_of, open_database

_EPOCH = "epoch"  # how many times the catalog was opened for writing
_P = ParamSpec("_P")
_T = TypeVar("_T")
_M = TypeVar("_M", bound="Transactions")


def survives_full_disk(method: Callable[Concatenate[_M, _P], _T]) -> Callable[Concatenate[_M, _P], _T]:
    """Decorator for a change that a full disk must not prevent."""

    @wraps(method)
    def helped(self: _M, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        done: _T = self._help(lambda: method(self, *args, **kwargs))
        return done

    return helped


class Transactions:
    """The manifest's open file; only the process that opened it last may change it. Thread-safe.

    Every method raises ManifestFailedError if SQLite cannot do it now, CorruptManifestError if the manifest is damaged.
    """

    def __init__(
        self, path: Path, *, read_only: bool = False, help: Callable[[Callable[[], Any]], Any] = lambda work: work()
    ) -> None:
        """Open the manifest at `path`; a writer creates it if absent. help: runs work that a full disk must not
        prevent, and retries it after freeing space.
        """
        self.path, self._help = path, help
        self._places = [str(each) for each in manifest_files(path)]
        self._owner = Owner(path.parent)
        self._connection = open_database(path, read_only=read_only)
        leave_when_forked(self)
        self._inode = path.stat().st_ino
        self._lock = Lock()
        fork_between(self._lock)
        self._epoch: int | None = None
        self._files: dict[Path, os.stat_result] = {}
        self.size_bytes = 0
        """Size of the file and SQLite's side files, after the last change."""
        self.backup_bytes = 0
        """Size of the manifest's backup next to it."""
        self._changed: set[str] = set()
        self._unscrubbed = 0
        self.write_backup: Callable[[], bool | None] = lambda: None
        """Called before reporting a change that segments and log do not contain, and before deleting files that contain
        such facts. A catalog that is open for writing sets its own function. It raises at most FencedError, and
        returns False if the catalog's store still lacks the change after waiting for it."""
        self.note_change: Callable[[int], None] = lambda change: None
        """Called after each transaction with the last change, so that readers know what they must see. Never raises."""
        self._measure()

    def follow(self) -> bool:
        """If the file was replaced by another one, for example by a rebuild, read that from now on. Returns whether it
        was. Raises FileNotFoundError.
        """
        with self._lock:
            if self.path.stat().st_ino == self._inode:
                return False
            before, self._connection = self._connection, open_database(self.path, read_only=True)
            self._inode = self.path.stat().st_ino
            before.close()
            return True

    def close(self) -> None:
        """Close the file."""
        self._owner.check()
        with self._lock, errors_of(self.path):
            self._connection.close()

    def leave_to_parent(self) -> None:
        """In a forked process: keep the connection, because even closing it is unsafe."""
        never_free(self._connection)

    # ------------------------------------------------------------ write access

    def claim(self) -> None:
        """Raise the epoch: from now on this object writes, and none that was opened earlier can change anything."""
        with self.writing() as db:
            self._epoch = _epoch(db) + 1
            db.execute("INSERT OR REPLACE INTO catalog VALUES (?, ?)", (_EPOCH, str(self._epoch)))
        for path in manifest_files(self.path)[:2]:  # SQLite keeps both as long as it has them open
            with contextlib.suppress(FileNotFoundError):
                self._files[path] = path.stat()

    def is_mine(self) -> bool:
        """Whether nobody has opened the catalog for writing since `claim`, and its files were not replaced."""
        with self.reading() as db:
            return self._is_claimed(db)

    def check_ownership(self) -> None:
        """To call before deleting files that are known only by name. Raises CatalogLockedError."""
        if not self.is_mine():
            raise self._lost()

    def _is_claimed(self, db: sqlite3.Connection) -> bool:
        if self._epoch is None:
            return True
        return _epoch(db) == self._epoch and all(same_file(*known) for known in self._files.items())

    def _lost(self) -> CatalogLockedError:
        return CatalogLockedError(
            "this process must stop writing: another one has opened the catalog for writing, or its manifest was "
            "deleted or replaced",
            path=str(self.path.parent),
            hint="close it here, and open it again in the one process that writes",
            holder={},
        )

    def _measure(self) -> None:
        size = 0
        for place in self._places:
            with contextlib.suppress(OSError):  # the change is committed, even if its size is unknown
                size += os.stat(place).st_size  # noqa: PTH116 - called after each change
        self.size_bytes = size

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A read transaction with a consistent snapshot."""
        self._owner.check()
        with self._lock, errors_of(self.path):
            self._begin("BEGIN")
            try:
                yield self._connection
            finally:
                self._connection.execute("ROLLBACK")

    def _begin(self, how: str) -> None:
        if self._connection.in_transaction:  # an interrupt prevented its end
            self._connection.execute("ROLLBACK")
        self._connection.execute(how)

    @contextmanager
    def writing(self, *facts: str) -> Iterator[sqlite3.Connection]:
        """A write transaction. facts: the kinds of facts that it changes and `catalog.facts` copies."""
        self._owner.check()
        with self._lock, errors_of(self.path):
            self._begin("BEGIN IMMEDIATE")
            try:
                if not self._is_claimed(self._connection):
                    raise self._lost()
                self._changed.update(facts)
                yield self._connection
                self._connection.execute("COMMIT")
                self._measure()
                self.note_change(last_change(self._connection))
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @property
    def has_changed(self) -> bool:
        """Whether there are changed kinds of facts that `take_changed` has not returned yet."""
        return bool(self._changed)

    def take_changed(self) -> set[str]:
        """The kinds of facts, as in `aggregator.storage.manifest.facts`, that changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed

    def give_back_changed(self, kinds: Iterable[str]) -> None:
        """Return kinds from `take_changed` that could not be stored."""
        with self._lock:
            self._changed.update(kinds)

    @survives_full_disk
    def scrub(self) -> None:
        """Checkpoint SQLite's write-ahead log into the main file, so that deleted rows are gone from disk. An active
        reader can prevent that; `scrub_again` then retries.
        """
        self._owner.check()
        with self._lock, errors_of(self.path):
            (self._unscrubbed, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._measure()

    def scrub_again(self) -> None:
        """Complete a `scrub` that a reader prevented."""
        if self._unscrubbed:
            self.scrub()


def _epoch(db: sqlite3.Connection) -> int:
    row = db.execute("SELECT value FROM catalog WHERE key = ?", (_EPOCH,)).fetchone()
    return 0 if row is None else int(row[0])


def last_change(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT number FROM changes").fetchone()[0])


def count_change(db: sqlite3.Connection) -> int:
    db.execute("UPDATE changes SET number = number + 1")
    return last_change(db)
