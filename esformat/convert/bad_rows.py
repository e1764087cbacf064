"""Treatment of rows that cannot become events: stop at the first, skip them, or collect them in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import BinaryIO, Protocol

from esformat.convert.errors import BadRowError
from esformat.convert.events import Rejects
from esformat.io.location import Target, locate
from esformat.io.store import StoredAt
from esformat.io.upload import Upload

_HINT = "correct it, or leave bad rows out with --on-error skip or --on-error collect FILE"


class BadRows(Protocol):
    """Receives bad rows as they are found, and counts them."""

    count: int

    def begin(self) -> None:
        """Discard the bad rows so far: the inputs are read again from the start."""

    def take(self, rows: Rejects) -> None:
        """Take the bad rows of one batch, in the order of the input."""

    def close(self) -> None:
        """Finish. No more rows follow."""


class Skip:
    """Skips bad rows."""

    def __init__(self) -> None:
        self.count = 0

    def begin(self) -> None:
        self.count = 0

    def take(self, rows: Rejects) -> None:
        self.count += len(rows)

    def close(self) -> None:
        """Do nothing."""


class Stop(Skip):
    """Raises BadRowError at the first bad row, with a hint."""

    def __init__(self, hint: str = _HINT) -> None:
        super().__init__()
        self._hint = hint

    def take(self, rows: Rejects) -> None:
        first = next(iter(rows), None)
        if first is not None:
            raise BadRowError(f"{first.unit} {first.number}: {first.reason}", path=first.path, hint=self._hint)


class Collect(Skip):
    """Skips bad rows and writes each as a JSON line: file, line or row number, reason and text."""

    def __init__(self, path: Target) -> None:
        """Write to `path`, replacing a file there; in a store, it appears on `close`. Raises UsageError, OSError."""
        super().__init__()
        place = locate(path)
        self._upload = Upload(place.store, place.path, overwrite=True) if isinstance(place, StoredAt) else None
        self._file: BinaryIO = (
            Path(str(place)).open("wb") if self._upload is None else self._upload.file  # noqa: SIM115 - close closes
        )

    def begin(self) -> None:
        super().begin()
        self._file.seek(0)
        self._file.truncate()

    def take(self, rows: Rejects) -> None:
        super().take(rows)
        self._file.writelines(f"{json.dumps(row.as_dict(), ensure_ascii=False)}\n".encode() for row in rows)

    def close(self) -> None:
        if self._upload is not None and not self._file.closed:
            self._upload.commit()
        self._file.close()
