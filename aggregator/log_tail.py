"""The log as another process follows it: new frames that were acknowledged, read when asked for."""

from __future__ import annotations

import os
from pathlib import Path

from aggregator.log_file import MARK_NAME, Frame, decode_mark, list_files, read_frames
from aggregator.log_frame import FILE_HEADER_BYTES


class LogTail:
    """A place in the log, and what follows it. Not safe to share between threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.position = 0
        """Behind the last frame that was taken in: who reads frames moves it on."""

    def read(self, *, whole: bool) -> list[Frame]:
        """Frames behind the position, those of files that are gone already left out.

        whole: up to the last good frame, as where nobody writes; else up to what the writer acknowledged.
        """
        end = None if whole else self._acknowledged()
        if end is not None and end <= self.position:
            return []
        frames: list[Frame] = []
        files = list_files(self._directory)
        for number, (start, path) in enumerate(files):
            following = files[number + 1][0] if number + 1 < len(files) else None
            if following is not None and following <= self.position:
                continue
            if end is not None and start >= end:
                break
            frames += self._read_file(start, path, end)
        return frames

    def _read_file(self, start: int, path: Path, end: int | None) -> list[Frame]:
        at = max(self.position - start, FILE_HEADER_BYTES)
        try:
            with path.open("rb") as file:
                length = os.fstat(file.fileno()).st_size if end is None else end - start
                file.seek(at)
                data = file.read(max(0, length - at))
        except FileNotFoundError:  # sealed and deleted meanwhile
            return []
        return [item for item in read_frames(memoryview(data), path, start + at, at=0) if isinstance(item, Frame)]

    def _acknowledged(self) -> int:
        """Up to where the writer says that frames are acknowledged; where it is just saying so, what it said before."""
        try:
            stored = (self._directory / MARK_NAME).read_bytes()
        except FileNotFoundError:
            return self.position
        mark = decode_mark(stored)
        return self.position if mark is None else mark
