"""A catalog in a store, as readers on any machine see it: a directory of their own that follows it (`Mirror`), read as
any other; segments come when somebody reads them.
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

from aggregator.base.looking import is_first_look
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
    """What a reading process has of a catalog in a store. Safe to share between threads."""

    look_s = 0.5
    """Each look is a request."""

    def __init__(self, store: Store, layout: Layout, clock: Callable[[], int], *, durable: bool = False) -> None:
        """layout: an empty directory, which is followed into. durable: it is synced, as it is to become a catalog.

        Raises CatalogNotFoundError, StoreError, UnknownVersionError, OSError.
        """
        self._store = store
        self.mirror = Mirror(store, layout, durable=durable)
        self._following = Lock()
        self.mirror.begin()
        super().__init__(layout, clock)

    @property
    def address(self) -> str:
        """Of the store."""
        return self._store.address

    def refresh(self) -> None:
        """Take in what came to the store since the last time: once for each question."""
        self.owner.check()
        if not is_first_look(self):  # each is a request
            return
        with self._following:
            if self.mirror.poll():
                self.manifest.follow()
            super().refresh()

    def _new_frames(self) -> list[Frame]:
        announced = self.mirror.at.announced
        if announced is not None:  # what lies before is in segments that the manifest names
            self._tail.position = max(self._tail.position, announced.position)
        return self._tail.read(whole=True)

    def _make_objects(self) -> Objects:
        return Objects(lambda: StoreSettings(self._store.address), self.layout.cache, read_only=False)

    def _is_copy(self) -> bool:
        return True

    def shipping(self) -> dict[str, Any] | None:
        """When the newest came there that was read, and in which epoch."""
        at = self.mirror.at
        return {"shipped_us": at.shipped_us, "epoch": at.epoch}

    def problems(self) -> list[Problem]:
        """What the writer found wrong, and what is wrong with the store."""
        found = super().problems()
        return found + [Problem(name, what, "reported", self._clock()) for name, what in self.mirror.at.damages.items()]


def _own_directory() -> tuple[Path, int]:
    """A directory of this process, and the open file that says so as long as it lives. Those of processes that were
    killed go, as Spark kills its workers.
    """
    for marker in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_IN_USE}"):
        if not is_held(marker):
            shutil.rmtree(marker.parent, ignore_errors=True)
    root = Path(tempfile.mkdtemp(prefix=_PREFIX))
    made = root / f"{_IN_USE}{PARTIAL}"  # it has its name when it is locked
    descriptor = create_file(made, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    made.rename(root / _IN_USE)
    return root, descriptor


def _let_go(root: Path, marker: int) -> None:
    shutil.rmtree(root, ignore_errors=True)
    os.close(marker)


class TemporaryStoreReader(StoreReaderEngine):
    """The same, in a directory that goes when it is closed."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        root, marker = _own_directory()
        self._remove = weakref.finalize(self, _let_go, root, marker)  # also when the program ends
        try:
            super().__init__(store, Layout(root), clock)
        except BaseException:
            self._remove()
            raise

    def close(self) -> None:
        """Let go of everything."""
        super().close()
        self._remove()
