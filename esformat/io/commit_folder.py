"""Where files appear together: a directory of the local disk, or a prefix of a store. What `commits` does there, step
by step; in which order is its own business.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from esformat.io.publish import sync_directory
from esformat.io.retry import retry
from esformat.io.store import Store, StoredAt

REQUESTS = 16  # that a process has under way at once
_NEXT_RECORD = "record.json"

T = TypeVar("T")


class CommitFolder(Protocol):
    """A place that writes are committed to. Values that can be pickled; every step can be done again."""

    @property
    def name(self) -> str:
        """The place as messages show it."""
        ...

    def place(self, name: str) -> str | StoredAt:
        """A file of it, by its name relative to this place."""
        ...

    def make(self) -> None:
        """Make it, if it is not there."""
        ...

    def names(self) -> list[str]:
        """What lies directly in it and begins with `_`. Raises FileNotFoundError where a directory is not there."""
        ...

    def read(self, name: str) -> bytes:
        """A small file of it. Raises FileNotFoundError."""
        ...

    def begin_staging(self, job: str, owner: bytes) -> None:
        """Make the staging directory of a write, and note in it whose it is."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Make a small file, whole, in place of one that is there."""
        ...

    def put_record(self, job: str, name: str, record: bytes) -> None:
        """Make a record, whole and durable, of a write whose staging directory is there."""
        ...

    def turn_record(self, name: str, other: str) -> None:
        """Give a record another name, durably; both can be there for a moment. Raises FileNotFoundError."""
        ...

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Give staged files their names, in place of others that have them. All durable when it returns."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Delete files; those that are gone do not matter."""
        ...

    def clear_staging(self, job: str) -> None:
        """Delete what tasks put into the staging directory, and it."""
        ...

    def changed(self, name: str) -> float | None:
        """When a record or staging directory last changed, in seconds since 1970; None where it is gone."""
        ...


def staging_of(job: str) -> str:
    """The name of the staging directory of a write."""
    return f"_staging-{job}"


OWNER = "owner.json"
"""The file in a staging directory that says who runs the write."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A directory of the local disk, or of one that all machines share."""

    path: str

    @property
    def name(self) -> str:
        """The directory."""
        return self.path

    @property
    def _here(self) -> Path:
        return Path(self.path)

    def place(self, name: str) -> str:
        """The path of a file of it."""
        return str(self._here / name)

    def make(self) -> None:
        """Make the directory."""
        self._here.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """Names that begin with `_`."""
        with os.scandir(self.path) as entries:
            return [entry.name for entry in entries if entry.name.startswith("_")]

    def read(self, name: str) -> bytes:
        """A file's bytes."""
        return (self._here / name).read_bytes()

    def begin_staging(self, job: str, owner: bytes) -> None:
        """Make the staging directory."""
        staging = self._here / staging_of(job)
        staging.mkdir()
        (staging / OWNER).write_bytes(owner)

    def put(self, name: str, data: bytes) -> None:
        """Written beside, then renamed."""
        partial = self._here / f".{name}.partial"
        partial.write_bytes(data)
        partial.replace(self._here / name)

    def put_record(self, job: str, name: str, record: bytes) -> None:
        """Written in the staging directory, then renamed."""
        partial = self._here / staging_of(job) / _NEXT_RECORD
        _write_synced(partial, record)
        partial.rename(self._here / name)

    def turn_record(self, name: str, other: str) -> None:
        """One rename."""
        (self._here / name).rename(self._here / other)
        sync_directory(self._here)

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """One rename for each; their directories, which are made where they are missing, synced."""
        folders = {(self._here / name).parent for _, name in pairs} | {self._here}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for staged, name in pairs:
            (self._here / staged).replace(self._here / name)
        for above in {each for folder in folders for each in (folder, *folder.parents)}:
            if above.is_relative_to(self._here):
                sync_directory(above)

    def remove(self, names: Iterable[str]) -> None:
        """Delete files."""
        for name in names:
            (self._here / name).unlink(missing_ok=True)

    def clear_staging(self, job: str) -> None:
        """Delete the staging directory, as far as can be."""
        shutil.rmtree(self._here / staging_of(job), ignore_errors=True)

    def changed(self, name: str) -> float | None:
        """Its time of change."""
        with contextlib.suppress(FileNotFoundError):
            return (self._here / name).stat().st_mtime
        return None


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class StoredFolder:
    """A prefix of a store, whose objects appear whole and are listed from then on.

    There is no renaming: a record with a later name counts from the moment that it is there, and staged objects are
    copied within the store.
    """

    store: Store
    prefix: str

    @property
    def name(self) -> str:
        """The prefix, with its scheme."""
        return self.store.name_of(self.prefix)

    def place(self, name: str) -> StoredAt:
        """An object below it."""
        return StoredAt(self.store, self._path(name))

    def _path(self, name: str) -> str:
        return "/".join([*filter(None, [self.prefix.rstrip("/")]), name])

    def make(self) -> None:
        """Nothing: prefixes are there with their first object."""

    def names(self) -> list[str]:
        """First steps of the paths below that begin with `_`."""
        return list(dict.fromkeys(self._first_steps(retry(self.store.list, self.prefix))))

    def _first_steps(self, paths: Iterable[str]) -> Iterator[str]:
        before = len(self._path(""))
        for path in paths:
            step = path[before:].partition("/")[0]
            if step.startswith("_"):
                yield step

    def read(self, name: str) -> bytes:
        """An object's bytes."""

        def whole() -> bytes:
            facts, read = self.store.open(self._path(name))
            return read(0, facts.size)

        return retry(whole)

    def begin_staging(self, job: str, owner: bytes) -> None:
        """Put the owner's note."""
        self.put(f"{staging_of(job)}/{OWNER}", owner)

    def put_record(self, job: str, name: str, record: bytes) -> None:
        """One object."""
        self.put(name, record)

    def turn_record(self, name: str, other: str) -> None:
        """The same record under its next name, and then no more under the one before."""
        self.put(other, self.read(name))
        self.remove([name])

    def put(self, name: str, data: bytes) -> None:
        """One object."""

        def put() -> None:
            with tempfile.TemporaryFile() as file:
                file.write(data)
                file.seek(0)
                self.store.put(self._path(name), file)

        retry(put)

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """One copy within the store for each, several at once."""

        def copy(pair: tuple[str, str]) -> None:
            retry(self.store.copy, *map(self._path, pair))

        _at_once(copy, pairs)

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects, several at once."""

        def delete(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                retry(self.store.delete, self._path(name))

        _at_once(delete, list(names))

    def clear_staging(self, job: str) -> None:
        """Delete all objects below the staging prefix; the owner's note first, which tells tasks that come late."""
        self.remove([f"{staging_of(job)}/{OWNER}"])
        with contextlib.suppress(FileNotFoundError):
            retry(self.store.delete_below, self._path(staging_of(job)))

    def changed(self, name: str) -> float | None:
        """The newest change of the object, or of what lies below."""
        path = self._path(name)
        times = [
            when
            for found, when in retry(self.store.times, self.prefix).items()
            if found == path or found.startswith(path + "/")
        ]
        return max(times, default=None)


def _at_once(work: Callable[[T], None], items: Sequence[T]) -> None:
    """Do the work for each; the first failure is raised when all that was begun has ended."""
    with ThreadPoolExecutor(REQUESTS, thread_name_prefix="esformat-commit") as pool:
        for done in [pool.submit(work, item) for item in items]:
            done.result()
