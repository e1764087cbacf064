"""Reads a catalog in a store from any machine: a local directory follows it (`Mirror`) and is read like any other.
Segments are read from the store on demand.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from aggregator.base.refresh_once import needs_refresh
from aggregator.engine.follower import ReaderEngine
from aggregator.engine.shipping.mirror import Mirror
from aggregator.model import Problem
from aggregator.policy import StoreSettings
from aggregator.storage.files.layout import PARTIAL, Layout
from aggregator.storage.files.lock import is_held
from aggregator.storage.files.modes import create_file
from aggregator.storage.log.file import Frame
from aggregator.storage.store.client import Store
from aggregator.storage.store.objects import Objects

_PREFIX, _IN_USE = "aggregator-", "in-use"


class StoreReaderEngine(ReaderEngine):
    """The engine that reads a catalog in a store. Thread-safe."""

    look_s = 0.5
    """Pause between looks for new events, in seconds: each look is a request."""

    def __init__(self, store: Store, layout: Layout, clock: Callable[[], int], *, durable: bool = False) -> None:
        """layout: an empty directory, which will follow the store. durable: sync it, as it may become a catalog.

        Raises CatalogNotFoundError, StoreError, UnknownVersionError, OSError.
        """
        self._store = store
        self.mirror = Mirror(store, layout, durable=durable)
        self._following = Lock()
        self.mirror.begin()
        super().__init__(layout, clock)

    @property
    def address(self) -> str:
        """The address of the store."""
        return self._store.address

    def refresh(self) -> None:
        """Apply what has reached the store since the last call, at most once for each query."""
        self.owner.check()
        if not needs_refresh(self):  # each is a request
            return
        with self._following:
            if self.mirror.poll():
                self.manifest.follow()
            super().refresh()

    def _new_frames(self) -> list[Frame]:
        announced = self.mirror.at.announced
        if announced is not None:  # events before that are in segments that the manifest names
            self._tail.position = max(self._tail.position, announced.position)
        return self._tail.read(whole=True)

    def _make_objects(self) -> Objects:
        return Objects(lambda: StoreSettings(self._store.address), self.layout.cache, read_only=False)

    def _is_copy(self) -> bool:
        return True

    def shipping(self) -> dict[str, Any] | None:
        """When the newest object read was uploaded, and its epoch."""
        at = self.mirror.at
        return {"shipped_us": at.shipped_us, "epoch": at.epoch}

    def problems(self) -> list[Problem]:
        """Problems that the writer found, and damage in the store."""
        found = super().problems()
        return found + [Problem(name, what, "reported", self._clock()) for name, what in self.mirror.at.damages.items()]


def _own_directory() -> tuple[Path, int]:
    """Create a directory for this process, and an open file whose lock marks it as in use. Delete the directories of
    killed processes, such as Spark's workers.
    """
    for marker in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_IN_USE}"):
        if not is_held(marker):
            shutil.rmtree(marker.parent, ignore_errors=True)
    root = Path(tempfile.mkdtemp(prefix=_PREFIX))
    made = root / f"{_IN_USE}{PARTIAL}"  # renamed once it is locked
    descriptor = create_file(made, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    made.rename(root / _IN_USE)
    return root, descriptor


def _delete_directory(root: Path, marker: int) -> None:
    shutil.rmtree(root, ignore_errors=True)
    os.close(marker)


class TemporaryStoreReader(StoreReaderEngine):
    """The same, in a temporary directory that is deleted on closing."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        root, marker = _own_directory()
        self._remove = weakref.finalize(self, _delete_directory, root, marker)  # also when the program ends
        try:
            super().__init__(store, Layout(root), clock)
        except BaseException:
            self._remove()
            raise

    def close(self) -> None:
        """Release everything and delete the directory."""
        super().close()
        self._remove()
