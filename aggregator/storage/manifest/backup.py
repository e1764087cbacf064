"""`catalog.facts`: the manifest's backup, of facts that neither segments nor the log contain.

The manifest tracks which kinds of facts its transactions change. Before such a change is reported to a caller, and
before files that contain the facts are deleted, the whole file is replaced: write under another name, sync, rename,
sync the directory. It is only a copy: if it cannot be written now, no operation is refused, and background work tries
again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from aggregator.errors import CorruptManifestError, ManifestFailedError, UnknownVersionError
from aggregator.model import Problem
from aggregator.storage.files.layout import Layout, partial_of, replaced
from aggregator.storage.manifest import FactRows, Lines, Manifest
from aggregator.storage.manifest.facts import (
    KINDS,
    MAX_BYTES,
    MAX_LINE_BYTES,
    Facts,
    decode_facts,
    decode_lines,
    encode_facts,
)
from esformat.parts import sync_directory

logger = logging.getLogger("aggregator")


def read_facts(path: Path) -> tuple[Facts, int]:
    """The facts in the file, and the manifest's change when it was written.

    Raises FileNotFoundError, CorruptManifestError, UnknownVersionError, OSError.
    """
    lines, change = _read(path)
    return decode_facts(lines), change


def _read(path: Path) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            stored = file.read(MAX_BYTES + 1)
    except OSError as error:
        if error.errno in (errno.EIO, errno.EISDIR):  # a retry will not help
            raise CorruptManifestError(f"it cannot be read: {error.strerror}", path=str(path)) from None
        raise
    if len(stored) > MAX_BYTES:
        raise CorruptManifestError(f"the file has more than {MAX_BYTES:,} bytes", path=str(path))
    return decode_lines(stored)


class ManifestBackup:
    """Keeps the backup file up to date with the manifest of a catalog that is open for writing. Thread-safe."""

    def __init__(self, layout: Layout, manifest: Manifest, clock: Callable[[], int]) -> None:
        """Read the existing file. Raises OSError."""
        self._layout, self._manifest, self._clock = layout, manifest, clock
        self._rows = FactRows(manifest)
        self._lock = Lock()
        self._lines: dict[str, Lines] = {}  # by kind, as in the file or in its next version
        self._noted: set[str] = set()  # kinds whose lines are up to date
        self._trouble = ""
        partial_of(layout.facts).unlink(missing_ok=True)  # left by a crash
        self._stored: bytes | None = None
        self.change = 0
        """The manifest's change when the existing file was written."""
        try:
            self._stored, self.change = _read(layout.facts)
        except FileNotFoundError:
            pass
        except (CorruptManifestError, UnknownVersionError) as error:
            logger.warning("%s is rewritten: %s", layout.facts, error)
        self._measure()

    def write_all(self) -> None:
        """Bring the file up to date whatever changed, and keep it up to date from now on. Never raises."""
        self._manifest.give_back_changed(KINDS)
        self.write()
        self._manifest.write_backup = self.write

    def write(self) -> None:
        """Update the file if something changed. Never raises; the next call of `try_to_write` retries."""
        try:
            self.try_to_write()
        except Exception as error:  # noqa: BLE001  the change itself is committed, even if its copy fails
            if self._trouble != str(error):
                self._trouble = str(error)
                logger.warning("%s", error)

    def try_to_write(self) -> None:
        """Like `write`. Raises ManifestFailedError if the file cannot be written now."""
        with self._lock:  # a second caller waits for the first, which then has written both changes
            changed = self._manifest.take_changed()
            if not changed:
                return
            try:
                self._refresh(changed)
            except BaseException as error:
                self._manifest.give_back_changed(changed)
                if isinstance(error, OSError):
                    reason = f"{self._layout.facts.name} cannot be written at the moment: {error.strerror or error}"
                    raise ManifestFailedError(reason, path=str(self._layout.facts)) from None
                raise
            self._trouble = ""

    def _refresh(self, changed: set[str]) -> None:
        change = self._manifest.change()
        for kind in KINDS:
            if kind in self._noted and kind not in changed:
                continue
            self._noted.discard(kind)
            lines = self._rows.lines(kind, self._lines.get(kind, {}))
            if max(map(len, lines.values()), default=0) > MAX_LINE_BYTES:
                self._give_up("a topic has too many columns")
                return
            passing = kind == "tombstone"  # hundreds of thousands may be added and removed
            self._lines[kind] = {kind: b"".join(lines.values())} if passing else lines
            self._noted.add(kind)
        whole = b"".join(line for kind in KINDS for line in self._lines[kind].values())
        if whole == self._stored:
            return
        stored = encode_facts(whole, change)
        if len(stored) > MAX_BYTES:
            self._give_up("there are too many erasures and truncations in progress, or too many partitions")
            return
        self._stored = None
        self._manifest.check_ownership()
        self._write(stored)
        self._stored = whole
        self._measure()

    def _write(self, stored: bytes) -> None:
        with replaced(self._layout.facts) as file:
            file.write(stored)

    def _give_up(self, why: str) -> None:
        """Delete the file and report a problem, because the catalog has more facts than fit."""
        self._layout.facts.unlink(missing_ok=True)
        sync_directory(self._layout.root)
        self._stored = None
        self._measure()
        message = f"the file was removed: {why}; a lost manifest could be rebuilt only partly"
        self._manifest.add_problem(Problem(self._layout.facts.name, message, "removed", self._clock()))

    def _measure(self) -> None:
        self._manifest.backup_bytes = 0
        with contextlib.suppress(FileNotFoundError):
            self._manifest.backup_bytes = self._layout.facts.stat().st_size
