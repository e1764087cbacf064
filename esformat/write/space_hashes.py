"""The hashes of a file's distinct spaces, kept until their number is known: in memory, or in a file if many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from esformat.format.bloom_filter import U64
from esformat.io.temp_file import SpillFile

MOST_HELD = 1 << 21  # 16 MiB


class SpaceHashes:
    """Collects hashes, then yields them any number of times."""

    def __init__(self, temp_dir: Path | None = None) -> None:
        """`temp_dir`: for the hashes beyond MOST_HELD; None keeps all in memory."""
        self._temp_dir = temp_dir
        self._held: list[U64] = []
        self._held_count = 0
        self._file: SpillFile | None = None
        self.count = 0

    def add(self, hashes: U64) -> None:
        """Add hashes. Raises OSError."""
        self._held.append(hashes)
        self._held_count += len(hashes)
        self.count += len(hashes)
        if self._temp_dir is not None and self._held_count > MOST_HELD:
            if self._file is None:
                self._file = SpillFile(self._temp_dir)
            self._file.append(np.concatenate(self._held).data)
            self._held, self._held_count = [], 0

    def __iter__(self) -> Iterator[U64]:
        """Yield all hashes, many at a time. Raises OSError."""
        if self._file is not None:
            for frame in range(len(self._file)):
                yield np.frombuffer(self._file.read(frame, 0), np.uint64)
        if self._held:
            yield np.concatenate(self._held)

    def close(self) -> None:
        """Free the temporary file."""
        self._held = []
        if self._file is not None:
            self._file.close()
