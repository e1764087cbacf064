"""Follow the log from another process: read acknowledged frames on demand."""

from __future__ import annotations

import os
from pathlib import Path

from aggregator.storage.log.file import Damage, Frame, Marks, describe_gap, list_files, read_frames
from aggregator.storage.log.frame import FILE_HEADER_BYTES


class LogTail:
    """A position in the log, and the frames after it. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.position = 0
        """The end of the last processed frame. The caller advances it."""
        self.change = 0
        """The manifest's latest change before the last read, according to the log."""
        self.damages: dict[Path, str] = {}
        """Damage in a log that no process writes to, by file; an active writer reports damage itself."""

    def read(self, *, whole: bool) -> list[Frame]:
        """Frames after the position, without those of files that were deleted.

        whole: read up to the last valid frame, for a log that no process writes to; else up to the acknowledged
        position.
        """
        marks = Marks.read(self._directory)
        self.change = marks.change or 0
        if whole:
            return self._read_whole(marks)
        self.damages.clear()
        end = self.position if marks.position is None else marks.position
        frames: list[Frame] = []
        for start, path in self._files() if end > self.position else ():
            if start < end:
                frames += (item for item in self._read_file(start, path, end) if isinstance(item, Frame))
        return frames

    def _read_whole(self, marks: Marks) -> list[Frame]:
        frames: list[Frame] = []
        files = self._files()
        reached = self.position
        for start, path in files:
            if reached and start > reached:
                self.damages[self._directory] = describe_gap(reached, start)
            reached = max(reached, start)
            for item in self._read_file(start, path, None):
                if isinstance(item, Frame):
                    frames.append(item)
                elif item.torn and path == files[-1][1] and item.position >= (marks.position or 0):
                    break
                else:
                    self.damages[path] = item.description
                reached = item.end
        if marks.position is not None and marks.lacking(reached):
            self.damages[self._directory] = describe_gap(reached, marks.position)
        return frames

    def _files(self) -> list[tuple[int, Path]]:
        """Files that may have frames after the position."""
        files = list_files(self._directory)
        following = [start for start, _ in files[1:]]
        passed = sum(start <= self.position for start in following)
        return files[passed:]

    def _read_file(self, start: int, path: Path, end: int | None) -> list[Frame | Damage]:
        at = max(self.position - start, FILE_HEADER_BYTES)
        try:
            with path.open("rb") as file:
                length = os.fstat(file.fileno()).st_size if end is None else end - start
                file.seek(at)
                data = file.read(max(0, length - at))
        except FileNotFoundError:  # sealed and deleted meanwhile
            return []
        return list(read_frames(memoryview(data), path, start + at, at=0))
