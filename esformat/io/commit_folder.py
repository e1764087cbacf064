"""Places where files are committed together: a local directory, or a prefix of a store. Each provides the single steps;
`commits` determines their order.
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

REQUESTS = 16  # of a process at the same time
_NEXT_RECORD = "record.json"

T = TypeVar("T")


class CommitFolder(Protocol):
    """A place that writes are committed to. Implementations can be pickled, and every step can be repeated."""

    @property
    def name(self) -> str:
        """The name of the place in messages."""
        ...

    def place(self, name: str) -> str | StoredAt:
        """The location of a file, by its name relative to the place."""
        ...

    def make(self) -> None:
        """Create the place if it does not exist."""
        ...

    def names(self) -> list[str]:
        """The names directly in the place that begin with `_`. Raises FileNotFoundError if a directory is missing."""
        ...

    def read(self, name: str) -> bytes:
        """The bytes of a small file. Raises FileNotFoundError."""
        ...

    def begin_staging(self, job: str, owner: bytes) -> None:
        """Create the staging directory of a write, with a file that names its owner."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write a small file atomically, replacing an existing one."""
        ...

    def put_record(self, job: str, name: str, record: bytes) -> None:
        """Write a record, atomically and durably, of a write whose staging directory exists."""
        ...

    def turn_record(self, name: str, other: str) -> None:
        """Rename a record durably; for a moment both names can exist. Raises FileNotFoundError."""
        ...

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Give staged files their final names, replacing existing files. All are durable when it returns."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Delete files; missing ones are ignored."""
        ...

    def clear_staging(self, job: str) -> None:
        """Delete the staging directory and the files that tasks wrote into it."""
        ...

    def changed(self, name: str) -> float | None:
        """When a record or staging directory last changed, in seconds since 1970; None if it is gone."""
        ...


def staging_of(job: str) -> str:
    """The name of the staging directory of a write."""
    return f"_staging-{job}"


OWNER = "owner.json"
"""The file in a staging directory that names the process that runs the write."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A directory on the local disk, or on a file system that all machines share."""

    path: str

    @property
    def name(self) -> str:
        """The path of the directory."""
        return self.path

    @property
    def _here(self) -> Path:
        return Path(self.path)

    def place(self, name: str) -> str:
        """The path of a file in the directory."""
        return str(self._here / name)

    def make(self) -> None:
        """Create the directory."""
        self._here.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """The names that begin with `_`."""
        with os.scandir(self.path) as entries:
            return [entry.name for entry in entries if entry.name.startswith("_")]

    def read(self, name: str) -> bytes:
        """A file's bytes."""
        return (self._here / name).read_bytes()

    def begin_staging(self, job: str, owner: bytes) -> None:
        """Create the staging directory, with the owner's file."""
        staging = self._here / staging_of(job)
        staging.mkdir()
        (staging / OWNER).write_bytes(owner)

    def put(self, name: str, data: bytes) -> None:
        """Write the file next to its place, then rename it."""
        partial = self._here / f".{name}.partial"
        partial.write_bytes(data)
        partial.replace(self._here / name)

    def put_record(self, job: str, name: str, record: bytes) -> None:
        """Write the record in the staging directory, then rename it."""
        partial = self._here / staging_of(job) / _NEXT_RECORD
        _write_synced(partial, record)
        partial.rename(self._here / name)

    def turn_record(self, name: str, other: str) -> None:
        """Rename the record."""
        (self._here / name).rename(self._here / other)
        sync_directory(self._here)

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename each file, and sync their directories, which are created if missing."""
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
        """Delete the staging directory as far as possible."""
        shutil.rmtree(self._here / staging_of(job), ignore_errors=True)

    def changed(self, name: str) -> float | None:
        """The modification time; None if the name does not exist."""
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

    Stores cannot rename: a record's next name takes effect as soon as the object exists, and staged objects are copied
    within the store.
    """

    store: Store
    prefix: str

    @property
    def name(self) -> str:
        """The prefix, with its scheme."""
        return self.store.name_of(self.prefix)

    def place(self, name: str) -> StoredAt:
        """The location of an object below the prefix."""
        return StoredAt(self.store, self._path(name))

    def _path(self, name: str) -> str:
        return "/".join([*filter(None, [self.prefix.rstrip("/")]), name])

    def make(self) -> None:
        """Do nothing: a prefix exists once it has an object."""

    def names(self) -> list[str]:
        """The first components, of the paths below the prefix, that begin with `_`."""
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
        """Write the owner's file."""
        self.put(f"{staging_of(job)}/{OWNER}", owner)

    def put_record(self, job: str, name: str, record: bytes) -> None:
        """Write the record as one object."""
        self.put(name, record)

    def turn_record(self, name: str, other: str) -> None:
        """Write the record under its next name, then delete the previous one."""
        self.put(other, self.read(name))
        self.remove([name])

    def put(self, name: str, data: bytes) -> None:
        """Write one object."""

        def put() -> None:
            with tempfile.TemporaryFile() as file:
                file.write(data)
                file.seek(0)
                self.store.put(self._path(name), file)

        retry(put)

    def publish(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Copy each object within the store, several in parallel."""

        def copy(pair: tuple[str, str]) -> None:
            retry(self.store.copy, *map(self._path, pair))

        _at_once(copy, pairs)

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects, several in parallel."""

        def delete(name: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                retry(self.store.delete, self._path(name))

        _at_once(delete, list(names))

    def clear_staging(self, job: str) -> None:
        """Delete all objects below the staging prefix; first the owner's file, so that late tasks notice."""
        self.remove([f"{staging_of(job)}/{OWNER}"])
        with contextlib.suppress(FileNotFoundError):
            retry(self.store.delete_below, self._path(staging_of(job)))

    def changed(self, name: str) -> float | None:
        """The latest modification time of the object, or of the objects below it."""
        path = self._path(name)
        times = [
            when
            for found, when in retry(self.store.times, self.prefix).items()
            if found == path or found.startswith(path + "/")
        ]
        return max(times, default=None)


def _at_once(work: Callable[[T], None], items: Sequence[T]) -> None:
    """Apply `work` to each item in parallel; a failure is raised only after all work has ended."""
    with ThreadPoolExecutor(REQUESTS, thread_name_prefix="esformat-commit") as pool:
        for done in [pool.submit(work, item) for item in items]:
            done.result()
