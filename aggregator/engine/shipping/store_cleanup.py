"""`StoreCleanup`: deletes what a catalog's store no longer needs and only its owner may delete.

These are copies of the manifest that have grown too old, then objects of the log that no remaining copy needs, and
quarantined batches that no copy names. The tier deletes segments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from aggregator.engine.shipping.attach import read_object
from aggregator.engine.shipping.history import Kept, outdated
from aggregator.storage.store.client import Store, Stored
from aggregator.storage.store.shipped import LOG, MANIFESTS, QUARANTINE, Announced, log_name, log_sequence

ANNOUNCED_SOON = 100
"""Number of objects, from a copy's number on, that are searched for its announcement: later ones are very rare."""
AT_ONCE = 8
"""Number of objects deleted in parallel: far from a store, single deletions are no faster than a writer's uploads."""
_BATCH = 64


class StoreCleanup:
    """Deletes objects for one writer. Not thread-safe."""

    def __init__(self, store: Store, history_us: int, kept: Kept, check_ownership: Callable[[], None]) -> None:
        """check_ownership: raises if another writer took over the catalog."""
        self._store, self._history_us, self._kept, self._check_ownership = store, history_us, kept, check_ownership

    def outdated_objects(self, newest: str, end: int) -> tuple[list[Stored], int]:
        """The copies of the manifest, then the objects of the log, that may be deleted; and the number below which none
        of either remains. newest: the copy that was announced last, which stays. end: the sequence of the next object
        of the log. Raises StoreError.
        """
        copies = list(self._store.list(MANIFESTS))
        names, oldest = outdated(copies, self._history_us, newest)
        to_delete = [each for each in copies if each.name in set(names)]
        announced = None if oldest is None else self._announced_first(oldest, end)
        if oldest is None or announced is None:
            return to_delete, 0
        begins = min(oldest, announced.sequence)
        log = (one for one in self._store.list(LOG) if log_sequence(one.name) is not None)
        to_delete += sorted((one for one in log if one.name < log_name(begins)), key=lambda one: one.name)
        return to_delete, begins

    def _announced_first(self, sequence: int, end: int) -> Announced | None:
        """The first copy of the manifest that objects from `sequence` on announce; None if a crash prevented that."""
        for each in range(sequence, min(end, sequence + ANNOUNCED_SOON)):
            found = read_object(self._store, each).manifest
            if found is not None:
                return found
        return None

    def unnamed(self, named: Collection[str]) -> list[Stored]:
        """The objects of quarantined batches that may be deleted. named: those that the current manifest names; no copy
        of it is being uploaded. Raises StoreError.
        """
        present = self._store.list(QUARANTINE)
        return [each for each in present if each.name not in named and each.name not in self._kept]

    def delete(self, to_delete: Sequence[Stored], ending: Callable[[], bool] = lambda: False) -> bool:
        """Delete objects, in about this order. Return whether all are deleted. ending: whether to stop early.
        Raises StoreError.
        """
        for at in range(0, len(to_delete), _BATCH):
            if ending():
                return False
            self._check_ownership()
            self._store.delete([each.name for each in to_delete[at : at + _BATCH]], at_once=AT_ONCE)
        return True
