"""Writes bytes of a log from a store into the log files of a directory that has no writer."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from aggregator.storage.files.modes import create_file
from aggregator.storage.log.file import Damage, file_name, list_files, read_frames
from aggregator.storage.log.frame import FILE_HEADER_BYTES, encode_file_header
from esformat.parts import naming, sync_directory


def log_end(directory: Path) -> int:
    """The position after the last whole frame of a log; 0 if there is no log. Raises OSError."""
    files = list_files(directory) if directory.is_dir() else []
    if not files:
        return 0
    start, path = files[-1]
    data = memoryview(path.read_bytes())
    end = start + min(len(data), FILE_HEADER_BYTES)
    for item in read_frames(data, path, start):
        if isinstance(item, Damage) and item.torn:
            break
        end = item.end
    return end


def whole_end(directory: Path, position: int) -> int:
    """The end of a log that was written up to a position: that position, or the start of an incomplete frame before it.
    Raises OSError.
    """
    files = list_files(directory) if directory.is_dir() else []
    if not files or files[-1][0] + files[-1][1].stat().st_size < position:
        return position  # everything is in segments
    return min(position, log_end(directory))


def write_at(directory: Path, position: int, data: bytes, *, durable: bool = True) -> None:
    """Write bytes at a position: into the newest file, cutting off what is after the position; or into a new file.

    Raises OSError.
    """
    files = list_files(directory)
    start, path = files[-1] if files else (0, directory)
    length = path.stat().st_size if files else 0
    if files and start + FILE_HEADER_BYTES <= position <= start + max(length, FILE_HEADER_BYTES):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    else:
        start = position - FILE_HEADER_BYTES
        path = directory / file_name(start)
        descriptor = create_file(path, os.O_WRONLY | os.O_TRUNC)
        length = 0
    try:
        with naming(str(path), "it continues once there is free space"):
            if length < FILE_HEADER_BYTES:
                os.pwrite(descriptor, encode_file_header(start), 0)
            at, left = position - start, memoryview(data)
            os.ftruncate(descriptor, at)
            while left:
                written = os.pwrite(descriptor, left, at)
                at, left = at + written, left[written:]
            if durable:
                os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if durable:
        sync_directory(directory)


def drop_before(directory: Path, position: int) -> None:
    """Delete the log files that end at or before a position. Raises OSError."""
    files = list_files(directory)
    for (_, path), (following, _) in pairwise(files):
        if following <= position:
            path.unlink()
