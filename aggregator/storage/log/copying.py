"""A byte-for-byte copy of another catalog's log: the owner's side and the follower's side.

Positions, files and frames are the same on both sides, so the copy is read like any log. Bytes count once the checksums
of their frames have been verified.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from aggregator.errors import CorruptLogError, InvalidRequestError
from aggregator.storage.files.modes import create_file
from aggregator.storage.log.file import MARK_NAME, Damage, Marks, encode_mark, file_name, list_files, read_frames
from aggregator.storage.log.frame import FILE_HEADER_BYTES, FRAME_HEAD_BYTES, FrameHead, decode_file_header, frame_bytes
from esformat.parts import naming, sync_directory, sync_file

_CHECK_BYTES = 8  # at the end of a frame's head
_ANOTHER_PAST = (
    "the server lacks records that the follower has: promote the follower, or follow into an empty directory"
)


@dataclass(frozen=True, slots=True)
class LogRange:
    """Bytes that an owner sends: [position, position + length) of the log, from the file that begins at `file`.

    end: the end of the acknowledged log. oldest: where its oldest file begins. change: the latest change of the
    manifest. lost: whether the requested bytes are gone, so that these are the oldest that exist.
    """

    path: Path
    file: int
    position: int
    length: int
    end: int
    oldest: int
    change: int
    lost: bool


def log_range(directory: Path, position: int | None, most: int) -> LogRange:
    """Find at most `most` bytes of one file from a position of a log. position: None: the oldest bytes.

    Raises FileNotFoundError if there is no log, or a file was deleted in between; InvalidRequestError for a position
    after its end; OSError.
    """
    marks = Marks.read(directory)
    files = list_files(directory)
    if not files:
        raise FileNotFoundError(str(directory))
    oldest, (newest, path) = files[0][0], files[-1]
    size = path.stat().st_size
    # A file's header is durable before the file is used. Followers then start their copy and release older files.
    acknowledged = max(marks.position or 0, newest + min(FILE_HEADER_BYTES, size))
    if position is not None and position > max(acknowledged, newest + size):
        raise InvalidRequestError(f"the log ends before position {position}", hint=_ANOTHER_PAST)
    lost = position is None or position < oldest
    at = oldest if position is None else max(position, oldest)
    for (start, path), following in zip(files, [*(start for start, _ in files[1:]), None], strict=True):
        end = start + path.stat().st_size
        if following is None or at < min(end, following):
            first = max(at, start)  # skip a gap between two files
            length = max(0, min(end, acknowledged) - first)
            return LogRange(path, start, first, min(length, most), acknowledged, oldest, marks.change or 0, lost)
    raise AssertionError("the last file has no successor")


def check_shared(directory: Path, frame: int, check: int) -> None:
    """Raises InvalidRequestError if this log and the follower have different frames at a position.

    Does nothing if the frame's file is gone.
    """
    start, path = next(((start, path) for start, path in reversed(list_files(directory)) if start <= frame), (0, None))
    stored = b""
    with contextlib.suppress(FileNotFoundError):
        if path is None:
            return
        with path.open("rb") as file:
            if frame - start < os.fstat(file.fileno()).st_size:
                file.seek(frame - start)
                stored = file.read(FRAME_HEAD_BYTES)
        if stored[-_CHECK_BYTES:] != check.to_bytes(_CHECK_BYTES, "little"):
            raise InvalidRequestError(
                f"the log has another frame at position {frame}: the copy has another history",
                hint=_ANOTHER_PAST,
            )


class LogCopy:
    """The log of a follower. For one thread at a time.

    If the log was restarted, its new files are stored next to the old ones, after a gap, until `drop_before` deletes
    the old ones. Other processes see only what was acknowledged.
    """

    def __init__(self, directory: Path) -> None:
        """Find the end of the copy, and cut off an incomplete frame there. Raises OSError, CorruptLogError."""
        self._directory = directory
        self.position: int | None = None
        """The end of the last whole frame; None: nothing was copied yet."""
        self.last: tuple[int, int] | None = None
        """The last frame: its position, and the checksum of its head; None: unknown."""
        self._descriptor, self._start = -1, -1
        self._mark = create_file(directory / MARK_NAME, os.O_WRONLY)
        files = list_files(directory)
        if files and files[-1][1].stat().st_size < FILE_HEADER_BYTES:
            files.pop()[1].unlink()
        if files:
            self._go_on(*files[-1])

    def _go_on(self, start: int, path: Path) -> None:
        data = memoryview(path.read_bytes())
        decode_file_header(data)
        self._descriptor, self._start = os.open(path, os.O_WRONLY | os.O_CLOEXEC), start
        end = start + FILE_HEADER_BYTES
        for item in read_frames(data, path, start):
            if isinstance(item, Damage):
                break
            end = item.end
            self.last = (item.position, _check_of(data, item.position - start))
        os.ftruncate(self._descriptor, end - start)
        self.position = end

    def add(self, file: int, position: int, data: bytes) -> int:
        """Append whole frames durably: `data` from `position`, in the file that begins at `file`. Returns how many
        bytes the next, incomplete frame lacks; 0 if there is none.

        Raises CorruptLogError if the bytes do not match their checksums; none of them are kept. Raises OSError.
        """
        held = memoryview(data)
        begins = position == file and file != self._start
        if begins:
            if len(held) < FILE_HEADER_BYTES:
                return FILE_HEADER_BYTES - len(held)
            if decode_file_header(held) != file or (self.position is not None and file < self.position):
                raise CorruptLogError(f"no file of the log after the copied part begins at {file}")
        elif file != self._start or position != self.position:
            raise CorruptLogError(f"bytes at {position} do not follow the copied part, which ends at {self.position}")
        whole = FILE_HEADER_BYTES if begins else 0
        last, lacking = self.last, 0
        for item in read_frames(held, self._directory / file_name(file), position, at=whole):
            if isinstance(item, Damage):
                lacking = _lacking(held, whole, position)
                break
            last = (item.position, _check_of(held, whole))
            whole = item.end - position
        if begins:
            self._begin(file, held[:FILE_HEADER_BYTES])
        self._write(held[FILE_HEADER_BYTES if begins else 0 : whole])
        self.position, self.last = position + whole, last
        return lacking

    def _begin(self, file: int, header: memoryview) -> None:
        descriptor = create_file(self._directory / file_name(file), os.O_WRONLY | os.O_TRUNC)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._start = descriptor, file
        self.position = file + FILE_HEADER_BYTES
        self._write(header, at=0)
        sync_directory(self._directory)

    def _write(self, data: memoryview, at: int | None = None) -> None:
        """Write durably at the end, overwriting what an earlier failure left there."""
        assert self.position is not None
        at = self.position - self._start if at is None else at
        with naming(str(self._directory / file_name(self._start)), "the follower will retry"):
            while data:
                written = os.pwrite(self._descriptor, data, at)
                at, data = at + written, data[written:]
            sync_file(self._descriptor)

    def begin_anew(self) -> None:
        """Restart the copy because the following bytes were lost: delete files beyond what others see; the next file
        may begin anywhere after that.
        """
        seen = Marks.read(self._directory).position or 0
        for start, path in list_files(self._directory):
            if start > seen:
                path.unlink()
        self.position, self.last, self._start = None, None, -1

    def acknowledge(self, change: int) -> None:
        """Let others read all of the copy, and publish which change of the manifest they must see."""
        position = 0 if self.position is None else self.position
        os.pwrite(self._mark, encode_mark(position) + encode_mark(change), 0)

    def drop_before(self, position: int) -> None:
        """Delete files that end at or before a position, except the newest. Raises OSError."""
        files = list_files(self._directory)
        for (_, path), (following, _) in pairwise(files):
            if following <= position:
                path.unlink()
        sync_directory(self._directory)

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self._descriptor, self._mark):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._mark = -1


def _check_of(data: memoryview, at: int) -> int:
    return int.from_bytes(data[at + FRAME_HEAD_BYTES - _CHECK_BYTES : at + FRAME_HEAD_BYTES], "little")


def _lacking(data: memoryview, at: int, start: int) -> int:
    """How many bytes the frame at byte `at` lacks. Raises CorruptLogError if it is complete but invalid."""
    if len(data) - at < FRAME_HEAD_BYTES:
        return FRAME_HEAD_BYTES - (len(data) - at)
    wanted = frame_bytes(FrameHead.decode(data, at, start + at).body_length)
    if len(data) - at >= wanted:
        raise CorruptLogError("the checksum of a frame's body does not match", offset=at)
    return wanted - (len(data) - at)
