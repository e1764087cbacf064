"""The progress file of collectors: the position in each log file, and the batch that is being stored.

The batch is recorded before it is stored. After a crash it is built again from the same bytes and stored under the same
sequence, so that the catalog recognises it if it already has it: nothing is lost, and nothing is stored twice.
Processes that share the file take turns, so that a line that two of them see is stored only by one.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

from aggregator.collect.files import Key, Sample, Tracked
from aggregator.errors import AggregatorError
from aggregator.storage.files.layout import replaced
from aggregator.storage.files.modes import create_file

VERSION = 2
MAX_FORGOTTEN = 10_000
"""Number of missing files to remember, in case a copy of one appears."""
MAX_GONE = 1_000
"""Number of former contents of rewritten files to remember, for the same reason."""
_LOCKS = ("lock", "next")
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes [tracked.offset, tracked.offset + length) of a file. last: a sample of their end. skipping: they end inside
    a line that is too long. done: nothing follows them.
    """

    tracked: Tracked
    length: int
    last: Sample
    skipping: bool = False
    done: bool = False

    @property
    def after(self) -> Tracked:
        """The file as it is tracked after these bytes are stored."""
        end = self.tracked.offset + self.length
        return replace(self.tracked, offset=end, last=self.last, skipping=self.skipping, done=self.done)


@dataclass(frozen=True, slots=True)
class Batch:
    """Parts that are stored together. now_us: the time of lines without one."""

    sequence: int
    now_us: int
    parts: tuple[Part, ...]


@dataclass(slots=True)
class Progress:
    """What a collector has recorded.

    producer: its name in the catalog. sequence: of the next batch. gone: files that were truncated, or whose inode now
    belongs to another file; a copy of them may appear. globs: those searched before, as (group, glob). catalog: the
    identity of the catalog, "" if unknown. end: the record index after the last record stored there.
    """

    producer: str
    sequence: int = 0
    files: dict[tuple[str, Key], Tracked] = field(default_factory=dict)
    gone: list[Tracked] = field(default_factory=list)
    pending: Batch | None = None
    globs: set[tuple[str, str]] = field(default_factory=set)
    catalog: str = ""
    end: int = 0

    @classmethod
    def begin(cls) -> Progress:
        """The progress of a new collector, with a random producer name."""
        return cls(f"collect-{secrets.token_hex(8)}")

    def take(self, batch: Batch) -> None:
        """Record that a batch is stored."""
        for part in batch.parts:
            self.files[part.tracked.group, part.tracked.key] = part.after
        self.sequence, self.pending = batch.sequence + 1, None

    def forget(self, present: Container[tuple[str, Key]]) -> None:
        """Forget the files missing longest, beyond MAX_FORGOTTEN, and old contents beyond MAX_GONE.

        present: files that exist now.
        """
        if len(self.files) > MAX_FORGOTTEN:
            absent = sorted((one.seen_us, place) for place, one in self.files.items() if place not in present)
            for _, place in absent[:-MAX_FORGOTTEN]:
                del self.files[place]
        del self.gone[:-MAX_GONE]

    # ------------------------------------------------------------ on disk

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON object of the file."""
        pending = self.pending
        return {
            "version": VERSION, "producer": self.producer, "sequence": self.sequence,
            "files": [_file_to_json(one) for one in self.files.values()],
            "gone": [_file_to_json(one) for one in self.gone], "globs": sorted(self.globs),
            "catalog": self.catalog, "end": self.end,
            "pending": None if pending is None else {
                "sequence": pending.sequence, "now_us": pending.now_us,
                "parts": [
                    {"file": _file_to_json(part.tracked), "length": part.length, "last": astuple(part.last),
                     "skipping": part.skipping, "done": part.done}
                    for part in pending.parts
                ],
            },
        }  # fmt: skip

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Progress:
        """Convert from the result of `to_json`. Raises KeyError, TypeError, ValueError."""
        if given["version"] != VERSION:
            raise ValueError(f"version {given['version']}, not {VERSION}")
        files = [_file_of_json(one) for one in given["files"]]
        progress = cls(str(given["producer"]), int(given["sequence"]), {(f.group, f.key): f for f in files})
        progress.catalog, progress.end = str(given["catalog"]), int(given["end"])
        progress.gone = [_file_of_json(one) for one in given["gone"]]
        progress.globs = {(str(group), str(pattern)) for group, pattern in given["globs"]}
        pending = given["pending"]
        if pending is not None:
            parts = tuple(
                Part(
                    _file_of_json(one["file"]),
                    int(one["length"]),
                    _sample_of_json(one["last"]),
                    bool(one["skipping"]),
                    bool(one["done"]),
                )
                for one in pending["parts"]
            )
            progress.pending = Batch(int(pending["sequence"]), int(pending["now_us"]), parts)
        return progress


def _file_to_json(tracked: Tracked) -> dict[str, Any]:
    return {
        "group": tracked.group, "name": tracked.name, "path": tracked.path, "device": tracked.key[0],
        "inode": tracked.key[1], "head": astuple(tracked.head), "offset": tracked.offset, "last": astuple(tracked.last),
        "skipping": tracked.skipping, "done": tracked.done, "seen_us": tracked.seen_us, "stamp": tracked.stamp,
    }  # fmt: skip


def _file_of_json(given: Mapping[str, Any]) -> Tracked:
    size, modified_ns = given["stamp"]
    return Tracked(
        str(given["group"]),
        str(given["name"]),
        str(given["path"]),
        (int(given["device"]), int(given["inode"])),
        _sample_of_json(given["head"]),
        int(given["offset"]),
        _sample_of_json(given["last"]),
        bool(given["skipping"]),
        bool(given["done"]),
        int(given["seen_us"]),
        (int(size), int(modified_ns)),
    )


def _sample_of_json(given: Any) -> Sample:
    length, checksum = given
    return Sample(int(length), int(checksum))


class ProgressFile:
    """The progress file. Within `exclusive` no other process reads or writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        real = f"{os.path.realpath(path.parent)}/{path.name}"
        self._real_paths = {real, *(f"{real}.{end}" for end in _LOCKS)}
        self._locks: list[int] = []  # open files: the lock, and the lock of the next in line
        self._own: tuple[int, int] | None = None

    @contextmanager
    def exclusive(self, sleep: Callable[[float], None]) -> Iterator[bool]:
        """Wait for the turn, and keep it until the block ends. Yields whether another process wrote the file since.

        A waiting process gets its turn before the one that has just had it.
        """
        if not self._locks:
            self._locks = [create_file(self.path.with_name(f"{self.path.name}.{end}"), os.O_RDWR) for end in _LOCKS]
        mine, following = self._locks
        _take(following, sleep)
        try:
            _take(mine, sleep)
        finally:
            fcntl.flock(following, fcntl.LOCK_UN)
        try:
            yield self._stamp() != self._own
        finally:
            fcntl.flock(mine, fcntl.LOCK_UN)

    def is_contended(self) -> bool:
        """Whether another process waits for its turn."""
        following = self._locks[1]
        try:
            fcntl.flock(following, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(following, fcntl.LOCK_UN)
        return False

    def load(self) -> Progress:
        """Read the progress; new if the file is missing. Raises AggregatorError (file unreadable), OSError."""
        self._own = self._stamp()
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return Progress.begin()
        try:
            return Progress.of_json(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise AggregatorError(
                f"the state file cannot be read: {error}",
                path=str(self.path),
                hint="restore it, or remove it to collect everything again",
            ) from None

    def is_own(self, path: str) -> bool:
        """Whether a path, without symbolic links, is that of the progress file or of one of its locks."""
        return path in self._real_paths

    def save(self, progress: Progress) -> None:
        """Replace the file atomically, and sync it. Raises OSError."""
        save(self.path, progress.to_json())
        self._own = self._stamp()

    def others(self) -> Iterator[tuple[Path, Progress]]:
        """Yield the path and progress of other collectors in the same folder, skipping unreadable files."""
        for lock in sorted(self.path.parent.glob(f"*.{_LOCKS[0]}")):
            path = lock.with_suffix("")
            if path == self.path or not path.with_name(f"{path.name}.{_LOCKS[1]}").exists():
                continue
            with suppress(AggregatorError, OSError):  # not a progress file, or just deleted
                yield path, ProgressFile(path).load()

    def close(self) -> None:
        """Close the lock files, which releases the locks."""
        while self._locks:
            os.close(self._locks.pop())

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns


def _take(lock: int, sleep: Callable[[float], None]) -> None:
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(_POLL_S)


def save(path: Path, facts: Mapping[str, Any]) -> None:
    """Replace a small JSON file atomically, and sync it. Raises OSError."""
    with replaced(path) as file:
        file.write(json.dumps(facts, ensure_ascii=True).encode())
