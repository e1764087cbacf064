"""`Standby`: follows a catalog in a store into a directory, serves reads, and can take over as its writer once the
previous writer's lease has lapsed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event, Lock, Thread

from aggregator.engine.shipping.restoring import begin_following, take_over
from aggregator.engine.store_follower import StoreReaderEngine
from aggregator.errors import CatalogLockedError, CatalogNotFoundError, FencedError
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.store_note import read_note
from aggregator.storage.store.client import Store
from aggregator.storage.store.lease import LeaseWatch, Seen, fenced, read_lease
from aggregator.storage.store.objects import open_store
from esformat import EsdbError

logger = logging.getLogger("aggregator")


def is_writer(store: Store, layout: Layout) -> bool:
    """Whether the directory belongs to the current writer of the catalog in a store, so that no takeover is needed.

    Raises FencedError if it belonged to a previous writer; StoreError, OSError.
    """
    note = read_note(layout) if layout.root.is_dir() else None
    if note is None or note.following or note.address != store.address:
        return False
    seen = read_lease(store)
    if seen is not None and seen.terms.run not in note.runs:
        raise fenced(store.address)
    return True


CHECKS_PER_LEASE = 10
"""Number of looks at the lease in its length: a standby takes over at most a tenth of the length late."""


class Standby:
    """Follows a catalog in a background thread. `backend` serves reads, until `take_over`."""

    def __init__(self, store: Store, layout: Layout, clock: Callable[[], int]) -> None:
        """layout: a directory that is empty, or followed that store before. Raises CatalogNotFoundError,
        InvalidRequestError, StoreError, OSError.
        """
        seen = read_lease(store)
        if seen is None:
            raise CatalogNotFoundError("no catalog found", path=store.address)
        self.lease_s = seen.terms.length_s
        self._layout, self._store = layout, open_store(store.address, self.lease_s)
        begin_following(layout, store)
        self.backend = StoreReaderEngine(self._store, layout, clock, durable=True)
        self._watch = LeaseWatch(self._store)
        self._ending = Event()
        self._lock = Lock()
        self._when_free: list[Callable[[], None]] = []
        self._seen: Seen | None = None
        self.may_take = Event()
        """Set once the lease may be taken."""
        self._thread = Thread(target=self._follow, name="aggregator-standby", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        logged: type[Exception] | None = None  # warn once per kind of error: messages differ each time
        while True:
            try:
                self._check_lease()
                logged = None
            except Exception as error:  # without this thread there is no takeover
                if type(error) is not logged:
                    known = isinstance(error, EsdbError | OSError)
                    message = "following %s failed and will be retried: %s"
                    logger.warning(message, self._store.address, error, exc_info=None if known else error)
                logged = type(error)
            if self.may_take.is_set() or self._ending.wait(self.lease_s / CHECKS_PER_LEASE):
                break
        self._notify_when_free()

    def _check_lease(self) -> None:
        free = self._watch.is_free()
        seen = self._watch.seen
        if seen is not None:
            self.lease_s = seen.terms.length_s
            note = read_note(self._layout)
            if free or (note is not None and seen.terms.run in note.runs):
                self._seen = seen
                self.may_take.set()
                return
        self.backend.refresh()

    def call_when_free(self, act: Callable[[], None]) -> None:
        """Call `act` in another thread once the lease may be taken."""
        with self._lock:
            self._when_free.append(act)
        if self.may_take.is_set():
            self._notify_when_free()

    def _notify_when_free(self) -> None:
        with self._lock:
            acts, self._when_free = self._when_free, []
        if self.may_take.is_set() and not self._ending.is_set():
            for act in acts:
                Thread(target=act, name="aggregator-standby-free", daemon=True).start()

    def take_over(self) -> bool:
        """Make this directory the writer's, once `may_take` is set. `backend` must no longer be read. Returns False if
        another process was faster; then start a new standby. Raises StoreError, OSError.
        """
        self.close()
        assert self._seen is not None
        began = time.monotonic()
        try:
            take_over(self.backend.mirror, self._layout, self._store, self._seen, self.lease_s)
        except (CatalogLockedError, FencedError) as error:
            logger.info("%s", error)
            return False
        logger.warning(
            "took over %s from %s in %.2f s", self._store.address, self._seen.terms.holder, time.monotonic() - began
        )
        return True

    def close(self) -> None:
        """Stop following. A second call does nothing."""
        with self._lock:
            if self._ending.is_set():
                return
            self._ending.set()
        self._thread.join()
        self.backend.close()
