"""Read a log after a crash: every whole frame once, in order. Damage is reported; a torn tail is cut off."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aggregator.errors import CorruptLogError
from aggregator.storage.log.file import Damage, Frame, LogFile, Marks, list_files, read_file, read_frames
from aggregator.storage.log.frame import FILE_HEADER_BYTES, FrameKind
from esformat.parts import sync_directory

_COPIED_BYTES = 4 << 20


@dataclass(slots=True)
class Recovered:
    """The result of reading a log: its files, the position at which it continues, and the unreadable parts.

    marked: whether the log says how far it was acknowledged.
    """

    files: list[LogFile] = field(default_factory=list)
    position: int = 0
    damages: list[Damage] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)  # bytes [position, end) of the log that are in no file
    torn_bytes: int = 0
    marked: bool = False


def recover(directory: Path, take: Callable[[Frame], None]) -> Recovered:
    """Read a log and pass every frame to `take`, in order. Raises OSError, UnknownVersionError.

    A torn tail that was not acknowledged is cut off; other damage is reported, and reading continues behind it. All
    frames are durable afterwards. If the log ends before the acknowledged position, it continues after that, because
    readers may have reached it.
    """
    found = list_files(directory)
    marks = Marks.read(directory)
    result = Recovered(marked=marks.position is not None)
    for number, (start, path) in enumerate(found):
        is_last = number == len(found) - 1
        if number and start > result.position:
            result.gaps.append((result.position, start))
        if path.stat().st_size <= FILE_HEADER_BYTES and is_last:  # it never had a frame, perhaps no whole header
            result.position = max(result.position, start)
            if marks.lacking(result.position):
                path.unlink()
                sync_directory(directory)
            break  # otherwise the file is started again
        result.files.append(_recover_file(path, start, marks.position or 0 if is_last else None, take, result))
        result.position = max(result.position, result.files[-1].end)
    if marks.position is not None and marks.lacking(result.position):
        result.gaps.append((result.position, marks.position))
        result.position = marks.position
    for file in result.files:  # a crash may have preceded their sync, and frames read here count as acknowledged
        _sync(file.path, again=file is result.files[-1])
    return result


def _recover_file(
    path: Path, start: int, acknowledged: int | None, take: Callable[[Frame], None], result: Recovered
) -> LogFile:
    """Read one file. acknowledged: for the last file, the position up to which frames were acknowledged."""
    try:
        data = read_file(path, start)
    except CorruptLogError as error:  # frames contain their positions: they can be read without the header
        result.damages.append(Damage(path, 0, start, start + FILE_HEADER_BYTES, error.message, torn=False))
        data = memoryview(path.read_bytes())
    file = LogFile(path, start, start + len(data))
    for item in read_frames(data, path, start):
        if isinstance(item, Frame):
            if item.head.kind == FrameKind.EVENTS:
                end = item.head.first_index + item.head.count
                file.ends[item.head.partition] = max(end, file.ends.get(item.head.partition, 0))
            take(item)
        elif item.torn and acknowledged is not None and item.position >= acknowledged:
            result.torn_bytes += item.end - item.position
            file.end = item.position
            _cut(path, item.offset)
        else:
            result.damages.append(item)
    return file


def _cut(path: Path, length: int) -> None:
    os.truncate(path, length)


def _sync(path: Path, *, again: bool) -> None:
    """Sync a file. again: first rewrite its bytes.

    A sync of the last file may have failed earlier, in this opening or a previous process. The kernel may then consider
    pages written that are not on disk, and another sync alone would not write them.
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        at = 0
        while again and (few := os.pread(descriptor, _COPIED_BYTES, at)):
            at += os.pwrite(descriptor, few, at)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
