"""Publish a file in a store atomically: write it to the local disk, then upload it whole."""

from __future__ import annotations

import contextlib
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

from esformat.errors import UsageError
from esformat.io.retry import retry
from esformat.io.store import Store


class Upload:
    """A file that appears in a store, complete, with `commit`, or not at all; the counterpart of `Publication`.

    Until then it is an unnamed file in the system's temporary directory. A process that dies during `commit` may leave
    parts of an upload in the store; no reader ever sees them.
    """

    def __init__(self, store: Store, path: str, *, overwrite: bool) -> None:
        """Raises UsageError if the object exists and may not be overwritten; OSError."""
        self._store, self._path, self._overwrite = store, path, overwrite
        self.name = store.name_of(path)
        self._refuse_existing()
        self.file = cast(BinaryIO, tempfile.TemporaryFile(buffering=1 << 20))  # noqa: SIM115 - commit or abort closes

    @property
    def spill_directory(self) -> Path:
        """The directory for temporary files that it is built from."""
        return Path(tempfile.gettempdir())

    def _refuse_existing(self) -> None:
        if not self._overwrite and retry(self._store.facts, self._path) is not None:
            raise UsageError("the object exists", path=self.name, hint="choose another name, or overwrite=True")

    def commit(self) -> None:
        """Make the object durable and visible. Raises UsageError if another one took the name meanwhile; OSError.

        If two writers commit at the same moment, the later one wins completely: the check and the upload are not
        atomic.
        """
        self.file.flush()
        self._refuse_existing()
        # Not in the caller's thread: an interrupt between two parts would end half an upload, and so publish it.
        with ThreadPoolExecutor(1, thread_name_prefix="esformat-upload") as pool:
            pool.submit(retry, self._put).result()
        self.file.close()

    def _put(self) -> None:
        self.file.seek(0)
        self._store.put(self._path, self.file)

    def abort(self) -> None:
        """Discard the file."""
        self.file.close()

    def withdraw(self) -> None:
        """Delete the object that `commit` made visible. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            retry(self._store.delete, self._path)
