"""Identify and read input files that grow and are renamed, copied and truncated.

A file is identified by device and inode, by its first bytes, and by the bytes before the offset up to which it was
read. If either sample differs, it is another file, even under the same inode. If both are equal under another inode, it
may be a copy that rotation made.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from aggregator.storage.files.checksum import checksum64

SAMPLE_BYTES = 1024
"""Number of first bytes, and of bytes before the offset, that tell files apart."""
DISTINCTIVE_BYTES = 64
"""Files that have this many first bytes in common are likely to be copies."""
OPEN_FILES = 128
"""Number of files kept open, so that a file that is deleted, or renamed beyond the globs, is read to its end."""
Key = tuple[int, int]
Stamp = tuple[int, int]
"""Bytes on disk, and the last change in ns since 1970: while both are equal, a compressed file has not changed."""
_COMPRESSED = (b"\x1f\x8b\x08", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\x04\x22\x4d\x18")
_DENIED = "permission denied; let this user read it"
_CUT_OFF = "its compressed data ends too early: it is cut off, or still being written"
_GARBAGE = "the bytes after its compressed data are not gzip: cut them off"
_NO_GZIP = "its name ends with .gz, but it is not a gzip file: rename it, or omit it with exclude"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Sample:
    """The checksum of `length` bytes of a file."""

    length: int
    checksum: int

    @classmethod
    def of(cls, data: bytes) -> Sample:
        """The sample of the first SAMPLE_BYTES of `data`."""
        return cls(len(data[:SAMPLE_BYTES]), checksum64(data[:SAMPLE_BYTES]))

    def begins(self, data: bytes) -> bool:
        """Whether `data` begins with these bytes."""
        return len(data) >= self.length and checksum64(data[: self.length]) == self.checksum

    def grown(self, data: bytes) -> Sample:
        """The sample of the same file's first bytes, which may have grown to `data`."""
        return Sample.of(data) if self.length < min(len(data), SAMPLE_BYTES) else self


NOTHING = Sample.of(b"")


@dataclass(frozen=True, slots=True)
class Tracked:
    """A file and how far it was read.

    name: the path under which it was first seen; a rename does not change it. path: its current path, with symbolic
    links resolved. head: its first bytes. offset: of the first byte that is not stored; in a compressed file, of its
    uncompressed contents. last: the bytes before `offset`. skipping: `offset` is inside a line that is too long. done:
    read to the end, and nothing will follow.
    """

    group: str
    name: str
    path: str
    key: Key
    head: Sample
    offset: int = 0
    last: Sample = NOTHING
    skipping: bool = False
    done: bool = False
    seen_us: int = 0
    stamp: Stamp = (0, 0)

    @property
    def compressed(self) -> bool:
        """Whether it is a gzip file, so that `offset` counts uncompressed bytes."""
        return is_compressed(self.path)

    def seen(self, found: Found, now_us: int) -> Tracked:
        """Update it to the file as found now. A plain file that was done may grow again, so it is not done."""
        head, done = self.head.grown(found.start), self.done and self.compressed
        return replace(self, path=found.path, head=head, seen_us=now_us, stamp=found.stamp, done=done)


@dataclass(frozen=True, slots=True)
class Found:
    """A file that exists now. name: its path as found by the glob. new: only a glob that was not searched before found
    it.
    """

    path: str
    key: Key
    stamp: Stamp
    start: bytes
    name: str
    new: bool = False

    @property
    def size(self) -> int:
        """Bytes on disk; of a compressed file, compressed bytes."""
        return self.stamp[0]


def is_compressed(path: str) -> bool:
    """Whether the name is that of a gzip file."""
    return path.endswith(".gz")


def why_unreadable(path: str, start: bytes) -> str | None:
    """Return why a file with these first bytes has no lines of text; None if it may have."""
    if not is_compressed(path) and start.startswith(_COMPRESSED):
        return "it is compressed: if it is a gzip file, name it .gz; otherwise omit it with exclude"
    pairs = start[: len(start) // 2 * 2]
    alternate = len(pairs) >= 8 and any(pairs) and not (any(pairs[1::2]) and any(pairs[::2]))
    if alternate or (start.startswith(_UTF_16) and b"\0" in start):
        return "it is UTF-16: write it in UTF-8, or omit it with exclude"
    return None


def why_failed(error: Exception) -> str:
    """Return in words why reading a file raised this error. A gzip file is one that begins as one."""
    if isinstance(error, EOFError):
        return _CUT_OFF
    if isinstance(error, gzip.BadGzipFile) and str(error).startswith("Not a gzipped file"):
        return _GARBAGE
    damaged = isinstance(error, gzip.BadGzipFile | zlib.error)
    return f"its compressed data is damaged: {error}" if damaged else str(error)


@dataclass(frozen=True, slots=True)
class MatchedFiles:
    """Found files as known ones. held: files held back because they may be copies that rotation is making. gone: the
    former contents of files that now have others.
    """

    files: list[Tracked]
    held: list[Key]
    gone: list[Tracked]


Continues = Callable[[Found, Tracked], bool | None]


def match_files(
    found: Iterable[Found],
    known: Iterable[Tracked],
    gone: Iterable[Tracked],
    now_us: int,
    group: str,
    waited: Container[Key],
    continues: Continues,
) -> MatchedFiles:
    """Match each found file with a known one, to continue where that was read, or start it as a new one.

    A file that was truncated, or has other contents now, is a new file. Its old contents may be in a copy, now or
    later, which continues at the offset of the original; so does a compressed copy. A copy of a file that still has the
    same contents is held back, because that file is about to be truncated; so is a copy of a new file, if the names
    show that it is one. A file in `waited` was held back long enough and is treated as independent.
    continues: `OpenFiles.continues`.
    """
    files = list(found)
    by_key = {one.key: one for one in known}
    same: dict[Key, Tracked] = {}
    for file in files:
        one = by_key.get(file.key)
        if one is not None and one.compressed == is_compressed(file.path) and continues(file, one):
            same[file.key] = one.seen(file, now_us)
    replaced = [by_key[file.key] for file in files if file.key in by_key and file.key not in same]
    lost = [*(one for one in by_key.values() if one.key not in same), *gone]
    matched: list[Tracked] = []
    held: list[Key] = []
    new: dict[str, Tracked] = {}
    for file in files:
        if file.key in same:
            matched.append(same[file.key])
            continue
        origin = _origin(file, lost, continues)
        own = file.key in waited and not is_compressed(file.path)
        present = [*same.values(), *_named_before(file, new)]
        if origin is None and not own and _has_twin(file, present, continues):
            held.append(file.key)
            continue
        head = Sample.of(file.start)
        made = Tracked(group, file.name, file.path, file.key, head, seen_us=now_us, stamp=file.stamp)
        if origin is not None:
            made = replace(made, name=origin.name, offset=origin.offset, last=origin.last, skipping=origin.skipping)
        matched.append(made)
        new[file.path] = made
    return MatchedFiles(matched, held, replaced)


def _origin(file: Found, lost: Iterable[Tracked], continues: Continues) -> Tracked | None:
    """The truncated, deleted or compressed file of which this is a copy, complete or in progress."""
    fitting = [one for one in lost if _may_be_copy(file, one) and _goes_on(continues(file, one), file)]
    return max(fitting, key=lambda one: (one.head.length, one.offset), default=None)


def _goes_on(continues: bool | None, file: Found) -> bool:
    return continues or (continues is None and is_compressed(file.path))


def _may_be_copy(file: Found, one: Tracked) -> bool:
    """Whether `file` can be a copy of `one`. If few bytes are known to be equal, its path must extend the other's."""
    longer = file.path != one.path and file.path.startswith(one.path)
    return longer or one.head.length >= DISTINCTIVE_BYTES


def _has_twin(file: Found, present: Iterable[Tracked], continues: Continues) -> bool:
    """Whether it is, or may become, a copy of a present file in the same folder."""
    folder = Path(file.path).parent
    alike = (one for one in present if one.head.length >= DISTINCTIVE_BYTES and Path(one.path).parent == folder)
    return any(continues(file, one) is not False for one in alike)


def _itself(path: str) -> str:
    """The path with symbolic links resolved, where renames happen; the link's own if only one of both is a .gz."""
    real = os.path.realpath(path)
    return real if is_compressed(real) == is_compressed(path) else os.path.abspath(path)  # noqa: PTH100 - the link stays


def _named_before(file: Found, new: Mapping[str, Tracked]) -> list[Tracked]:
    """The new files whose path is a prefix of this one's, as a copy's path extends the original's."""
    paths = (file.path[:end] for end in range(len(str(Path(file.path).parent)) + 1, len(file.path)))
    return [new[path] for path in paths if path in new]


def _continues(found: Found, tracked: Tracked) -> bool | None:
    """`OpenFiles.continues` for two files with the same start, from reading the bytes before the offset."""
    try:
        with Path(found.path).open("rb") as file:
            contents = gzip.GzipFile(fileobj=file) if is_compressed(found.path) else file
            contents.seek(tracked.offset - tracked.last.length)
            return tracked.last.begins(contents.read(tracked.last.length))
    except (OSError, EOFError, zlib.error):  # gone again, or a copy that is being compressed
        return None


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes read from a file. head: its first bytes as they are now. before: the bytes before `data`, if known."""

    head: Sample
    before: bytes
    data: bytes

    def last(self, length: int) -> Sample:
        """The sample of the bytes before the end of the first `length` bytes of `data`."""
        bytes_before = self.before if length < SAMPLE_BYTES else b""
        return Sample.of((bytes_before + self.data[max(0, length - SAMPLE_BYTES) : length])[-SAMPLE_BYTES:])


class OpenFiles:
    """Open files, at most OPEN_FILES; the least recently used one is closed first."""

    def __init__(self) -> None:
        self._open: OrderedDict[Key, tuple[BinaryIO, gzip.GzipFile | None]] = OrderedDict()
        self._unpacked: dict[Key, tuple[object, bool | None]] = {}  # the last answers for compressed files

    def find(self, path: str, on_unreadable: Callable[[str, str], None] | None = None) -> Found | None:
        """Find the file at a path; None if it cannot be read. on_unreadable: called with the path and the reason if the
        file will stay unreadable until somebody changes it.
        """
        why: str | None = None
        try:
            if not Path(path).is_file():
                return None
            with Path(path).open("rb") as file:
                status = os.fstat(file.fileno())
                if is_compressed(path) and not status.st_size:  # being written: it has no gzip header yet
                    return None
                if is_compressed(path) and file.peek(2)[:2] != _COMPRESSED[0][:2]:
                    why = _NO_GZIP
                else:
                    start = (gzip.GzipFile(fileobj=file) if is_compressed(path) else file).read(SAMPLE_BYTES)
        except PermissionError:
            why = _DENIED
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:  # perhaps a copy that is being compressed
            why = why_failed(error)
        except OSError:  # gone again
            return None
        if why is not None:
            if on_unreadable is not None:
                on_unreadable(path, why)
            return None
        stamp = status.st_size, status.st_mtime_ns
        return Found(_itself(path), (status.st_dev, status.st_ino), stamp, start, path)

    def continues(self, found: Found, tracked: Tracked) -> bool | None:
        """Whether a file has the same first bytes as a tracked one, and the same bytes before its offset. None if it is
        too short to tell, or its compressed data ends too early, as in a copy that is being written.
        """
        if not tracked.head.begins(found.start):
            return False
        if not is_compressed(found.path) and found.size < tracked.offset:
            return None
        if tracked.last.length == 0 or (is_compressed(found.path) and self._is_unchanged(found, tracked)):
            return True
        asked = found.stamp, tracked.offset, tracked.last
        known, answer = self._unpacked.get(found.key, (None, None))
        if known == asked:
            return answer
        answer = _continues(found, tracked)
        if is_compressed(found.path):
            self._unpacked[found.key] = asked, answer
        return answer

    @staticmethod
    def _is_unchanged(found: Found, tracked: Tracked) -> bool:
        return (found.key, found.stamp) == (tracked.key, tracked.stamp)

    def read(self, tracked: Tracked, length: int) -> FileSlice:
        """Read up to `length` bytes from the offset of a file.

        Raises FileNotFoundError if it no longer exists or has other contents; OSError, EOFError, zlib.error.
        """
        file, contents = self._handle(tracked)
        since = tracked.offset - tracked.last.length
        if contents is None:
            start = os.pread(file.fileno(), SAMPLE_BYTES, 0)
            before = os.pread(file.fileno(), tracked.last.length, since)
            same = tracked.head.begins(start) and tracked.last.begins(before)
        else:
            start, before, same = b"", b"", True
            if contents.tell() <= since:  # else already checked; seeking back would unpack all of it again
                contents.seek(since)
                before = contents.read(tracked.last.length)
                same = tracked.last.begins(before)
        if not same:
            self.forget(tracked.key)
            raise FileNotFoundError(f"{tracked.path} was rewritten")
        if contents is None:
            return FileSlice(tracked.head.grown(start), before, os.pread(file.fileno(), length, tracked.offset))
        contents.seek(tracked.offset)
        return FileSlice(tracked.head, before, contents.read(length))

    def is_open(self, key: Key) -> bool:
        """Whether the file is open, so that it can be read even if it was deleted."""
        return key in self._open

    def forget(self, key: Key) -> None:
        """Close a file."""
        held = self._open.pop(key, None)
        if held is not None:
            held[0].close()

    def close(self) -> None:
        """Close all files."""
        for key in list(self._open):
            self.forget(key)

    def _handle(self, tracked: Tracked) -> tuple[BinaryIO, gzip.GzipFile | None]:
        held = self._open.get(tracked.key)
        if held is None:
            file = Path(tracked.path).open("rb")  # noqa: SIM115 - kept open
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) != tracked.key:
                file.close()
                raise FileNotFoundError(f"another file is at {tracked.path} now")
            held = self._open[tracked.key] = file, gzip.GzipFile(fileobj=file) if tracked.compressed else None
            while len(self._open) > OPEN_FILES:
                self.forget(next(iter(self._open)))
        self._open.move_to_end(tracked.key)
        return held


def renamed_to(tracked: Tracked) -> str | None:
    """Find the new path of a renamed file in the same folder; None if it is not there."""
    folder = Path(tracked.path).parent
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.inode() == tracked.key[1] and entry.stat().st_dev == tracked.key[0]:
                    return str(folder / entry.name)
    except OSError:
        return None
    return None
