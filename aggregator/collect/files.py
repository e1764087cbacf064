"""Input files that grow, are renamed, copied and truncated: identified and read.

A file is known by device and inode, and by its first bytes: a file of another beginning under the same inode is
another one, and a file of the same beginning under another inode may be a copy that rotation made.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from aggregator.storage.files.checksum import checksum64

HEAD_BYTES = 1024
"""So many first bytes tell files apart."""
TELLING_BYTES = 64
"""Files that begin alike for so many bytes are likely copies."""
OPEN_FILES = 128
"""Files that are kept open: what is renamed beyond the globs, or deleted, is read to its end."""
Key = tuple[int, int]
_COMPRESSED = (b"\x1f\x8b\x08", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\x04\x22\x4d\x18")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Head:
    """The first `length` bytes of a file, as their checksum."""

    length: int
    checksum: int

    @classmethod
    def of(cls, data: bytes) -> Head:
        """Of a file that begins so."""
        return cls(len(data[:HEAD_BYTES]), checksum64(data[:HEAD_BYTES]))

    def begins(self, data: bytes) -> bool:
        """Whether a file that begins with `data` begins like this one."""
        return len(data) >= self.length and checksum64(data[: self.length]) == self.checksum

    def grown(self, data: bytes) -> Head:
        """Of the same file, which begins with `data` now."""
        return Head.of(data) if self.length < min(len(data), HEAD_BYTES) else self


@dataclass(frozen=True, slots=True)
class Tracked:
    """A file and how far it was read. name: the path under which it was first seen, which stays when it is renamed.
    path: where it is, behind symbolic links.

    offset: of the first byte that is not stored; of a compressed file it counts bytes of its contents. skipping: that
    byte lies inside a line that is too long. done: read to an end behind which nothing comes.
    """

    group: str
    name: str
    path: str
    key: Key
    head: Head
    offset: int = 0
    skipping: bool = False
    done: bool = False
    seen_us: int = 0

    @property
    def compressed(self) -> bool:
        """Whether its bytes are those of a gzip file's contents."""
        return is_compressed(self.path)

    def seen(self, found: Found, now_us: int) -> Tracked:
        """The same file as it was found now."""
        return replace(self, path=found.path, head=self.head.grown(found.start), seen_us=now_us)


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is there now. size: of what is stored; for a compressed file it is not that of its contents.

    name: the path as it was asked for; new: only globs that were not asked for before found it.
    """

    path: str
    key: Key
    size: int
    start: bytes
    name: str
    new: bool = False


def is_compressed(path: str) -> bool:
    """Whether a name is that of a gzip file."""
    return path.endswith(".gz")


def why_unreadable(path: str, start: bytes) -> str | None:
    """Why a file that begins so holds no lines of text, None where it may."""
    if not is_compressed(path) and start.startswith(_COMPRESSED):
        return "it is compressed: name it .gz, if it is of gzip, or leave it out with exclude"
    pairs = start[: len(start) // 2 * 2]
    alternate = len(pairs) >= 8 and any(pairs) and not (any(pairs[1::2]) and any(pairs[::2]))
    if alternate or (start.startswith(_UTF_16) and b"\0" in start):
        return "it is UTF-16: write it in UTF-8, or leave it out with exclude"
    return None


@dataclass(frozen=True, slots=True)
class Recognised:
    """What was found. held: files that may be copies about to be used. gone: what was at the keys of others before."""

    files: list[Tracked]
    held: list[Key]
    gone: list[Tracked]


def recognise(
    found: Iterable[Found],
    known: Iterable[Tracked],
    gone: Iterable[Tracked],
    now_us: int,
    group: str = "",
    waited: Container[Key] = (),
) -> Recognised:
    """Each file that was found as what it is: one that is known, as far as it was read, or a new one from its start.

    A file that was cut, or has other contents now, is a new one. Its old contents may be in a copy, now or later, which
    goes on where the file was; so does a compressed copy. A copy of a file that still has the same contents is held
    back, as the file is about to be cut, also where both are new, if their names tell; one that `waited` long enough is
    a file of its own.
    """
    files = list(found)
    by_key = {one.key: one for one in known}
    same = {file.key: by_key[file.key].seen(file, now_us) for file in files if _is(file, by_key.get(file.key))}
    replaced = [by_key[file.key] for file in files if file.key in by_key and file.key not in same]
    lost = [*(one for one in by_key.values() if one.key not in same), *gone]
    recognised: list[Tracked] = []
    held: list[Key] = []
    new: dict[str, Tracked] = {}
    for file in files:
        if file.key in same:
            recognised.append(same[file.key])
            continue
        origin = _origin(file, lost)
        own = file.key in waited and not is_compressed(file.path)
        if origin is None and not own and (_twin(file, same.values()) or _twin(file, _named_before(file, new))):
            held.append(file.key)
            continue
        made = Tracked(group, file.name, file.path, file.key, Head.of(file.start), seen_us=now_us)
        if origin is not None:
            made = replace(made, name=origin.name, offset=origin.offset, skipping=origin.skipping)
        recognised.append(made)
        new[file.path] = made
    return Recognised(recognised, held, replaced)


def _is(file: Found, tracked: Tracked | None) -> bool:
    if tracked is None or tracked.compressed != is_compressed(file.path) or not tracked.head.begins(file.start):
        return False
    return tracked.compressed or file.size >= tracked.offset


def _origin(file: Found, lost: Iterable[Tracked]) -> Tracked | None:
    """The file that was cut, deleted or compressed, and of which this is the copy."""
    fitting = [one for one in lost if one.head.begins(file.start) and _may_be_copy(file, one)]
    grown = [one for one in fitting if is_compressed(file.path) or file.size >= one.offset]
    return max(grown, key=lambda one: (one.head.length, one.offset), default=None)


def _may_be_copy(file: Found, one: Tracked) -> bool:
    """Few bytes may begin many files: then the names have to tell, too. A copy has another path."""
    if one.head.length == HEAD_BYTES:
        return True
    return file.path != one.path and (one.head.length >= TELLING_BYTES or file.path.startswith(one.path))


def _twin(file: Found, present: Iterable[Tracked]) -> bool:
    """Whether it is a copy of a file in the same folder that is there, too."""
    folder = Path(file.path).parent
    return any(
        one.head.length >= TELLING_BYTES and one.head.begins(file.start) and Path(one.path).parent == folder
        for one in present
    )


def _itself(path: str) -> str:
    """The path of a file behind symbolic links, as it is renamed there; a link's own where one of both is a .gz."""
    real = os.path.realpath(path)
    return real if is_compressed(real) == is_compressed(path) else os.path.abspath(path)  # noqa: PTH100 - the link stays


def _named_before(file: Found, new: Mapping[str, Tracked]) -> list[Tracked]:
    """The files with whose paths that of this one begins, as those of copies do."""
    paths = (file.path[:end] for end in range(len(str(Path(file.path).parent)) + 1, len(file.path)))
    return [new[path] for path in paths if path in new]


class Handles:
    """Open files, a bounded number of them."""

    def __init__(self) -> None:
        self._open: OrderedDict[Key, tuple[BinaryIO, gzip.GzipFile | None]] = OrderedDict()

    def look(self, path: str) -> Found | None:
        """The file at a path; None where there is none that can be read."""
        try:
            if not Path(path).is_file():
                return None
            with Path(path).open("rb") as file:
                status = os.fstat(file.fileno())
                contents = gzip.GzipFile(fileobj=file) if is_compressed(path) else file
                start = contents.read(HEAD_BYTES)
        except (OSError, EOFError, zlib.error):  # no permission, gone again, or a copy that is being compressed
            return None
        return Found(_itself(path), (status.st_dev, status.st_ino), status.st_size, start, path)

    def read(self, tracked: Tracked, length: int) -> tuple[bytes, Head]:
        """Up to `length` bytes from where a file stands, and its first bytes as they are now.

        Raises FileNotFoundError where it is not there any more, or has other contents; OSError, EOFError, zlib.error.
        """
        file, contents = self._handle(tracked)
        if contents is not None:
            contents.seek(tracked.offset)
            return contents.read(length), tracked.head
        start = os.pread(file.fileno(), HEAD_BYTES, 0)
        if not tracked.head.begins(start):
            self.forget(tracked.key)
            raise FileNotFoundError(f"{tracked.path} was rewritten")
        return os.pread(file.fileno(), length, tracked.offset), tracked.head.grown(start)

    def is_open(self, key: Key) -> bool:
        """Whether a file can be read that has no name any more."""
        return key in self._open

    def forget(self, key: Key) -> None:
        """Close a file."""
        held = self._open.pop(key, None)
        if held is not None:
            held[0].close()

    def close(self) -> None:
        """Close all."""
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
    """Where a file is now that is not at its path any more: under another name of the same folder."""
    folder = Path(tracked.path).parent
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.inode() == tracked.key[1] and entry.stat().st_dev == tracked.key[0]:
                    return str(folder / entry.name)
    except OSError:
        return None
    return None
