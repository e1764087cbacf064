"""What becomes of rows that cannot be events: stop at the first, skip them, or collect them in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Protocol

from esformat.convert.errors import BadRowError
from esformat.convert.events import Rejects

_HINT = "mend it, or leave bad rows out with --on-error skip or --on-error collect FILE"


class BadRows(Protocol):
    """Takes bad rows as they are found, and counts them."""

    count: int

    def begin(self) -> None:
        """Forget what was taken: the inputs are read again from the start."""

    def take(self, rows: Rejects) -> None:
        """Take the bad rows of one batch, in the order of the input."""

    def close(self) -> None:
        """Finish; nothing is taken after."""


class Skip:
    """Leaves bad rows out."""

    def __init__(self) -> None:
        self.count = 0

    def begin(self) -> None:
        self.count = 0

    def take(self, rows: Rejects) -> None:
        self.count += len(rows)

    def close(self) -> None:
        """Nothing is open."""


class Stop(Skip):
    """Raises BadRowError at the first bad row, with a hint at what to do."""

    def __init__(self, hint: str = _HINT) -> None:
        super().__init__()
        self._hint = hint

    def take(self, rows: Rejects) -> None:
        first = next(iter(rows), None)
        if first is not None:
            raise BadRowError(f"{first.unit} {first.number}: {first.reason}", path=first.path, hint=self._hint)


class Collect(Skip):
    """Leaves bad rows out and writes each as a line of JSON: file, line or row, reason and text."""

    def __init__(self, path: Path) -> None:
        """Write to `path`, over what is there. Raises OSError if that cannot be."""
        super().__init__()
        self._file: IO[str] = path.open("w", encoding="utf-8", newline="\n")

    def begin(self) -> None:
        super().begin()
        self._file.seek(0)
        self._file.truncate()

    def take(self, rows: Rejects) -> None:
        super().take(rows)
        self._file.writelines(json.dumps(row.as_dict(), ensure_ascii=False) + "\n" for row in rows)

    def close(self) -> None:
        self._file.close()
