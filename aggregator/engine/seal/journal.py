"""Notes on running seals, so that the next opening knows which events crashed the process.

Nothing is synced: only crashes of the process count, not of the machine. A note that cannot be written or read counts
as none.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from aggregator.storage.files.layout import Layout
from aggregator.storage.files.modes import create_file

NAME = "sealing.json"
_UNDER_WAY, _ENDED = "under_way", "ended"
_MAX_BYTES = 1 << 20


class SealJournal:
    """Which partitions are being sealed, from which record index on, and how often the process ended doing so."""

    def __init__(self, layout: Layout) -> None:
        """Count the seals that were running when the last process ended."""
        self._path = layout.root / NAME
        self._lock = Lock()
        self._under_way: dict[int, int] = {}  # partition -> first record index
        self._ended: dict[int, tuple[int, int]] = {}  # partition -> first record index, how often
        stored = self._read()
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
            before = {int(number): (int(first), int(often)) for number, (first, often) in stored[_ENDED].items()}
            for number, first in ((int(number), int(first)) for number, first in stored[_UNDER_WAY].items()):
                known, often = before.get(number, (first, 0))
                before[number] = (first, often + 1 if known == first else 1)
            self._ended = before
        if stored:
            self._write()

    def crashes(self, partition: int, first_index: int) -> int:
        """How often in a row the process ended while it sealed a partition from that record index on."""
        first, often = self._ended.get(partition, (-1, 0))
        return often if first == first_index else 0

    @contextmanager
    def sealing(self, partition: int, first_index: int) -> Iterator[None]:
        """Note that a partition is being sealed. An error does not count as an end of the process."""
        with self._lock:
            self._under_way[partition] = first_index
            self._write()
        try:
            yield
        finally:
            with self._lock:
                self._under_way.pop(partition, None)
                self._ended.pop(partition, None)
                self._write()

    def _read(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            with self._path.open("rb") as file:
                stored = json.loads(file.read(_MAX_BYTES))
            return stored if isinstance(stored, dict) else {}
        return {}

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            if not self._under_way and not self._ended:
                self._path.unlink(missing_ok=True)
                return
            with os.fdopen(create_file(self._path, os.O_WRONLY | os.O_TRUNC), "w") as file:
                json.dump({_UNDER_WAY: self._under_way, _ENDED: self._ended}, file)
