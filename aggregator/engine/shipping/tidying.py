"""`Tidying`: deletes what a catalog's store need not keep any more, and that only its owner may delete.

Copies of the manifest that have grown too old; then objects of the log that no other copy needs; quarantined batches
that no copy names. Segments are the tier's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from aggregator.engine.shipping.attached import read_object
from aggregator.engine.shipping.history import Kept, outdated
from aggregator.storage.store.client import Store, Stored
from aggregator.storage.store.shipped import LOG, MANIFESTS, QUARANTINE, Announced, log_name, log_sequence

ANNOUNCED_SOON = 100
"""A copy of the manifest is announced by one of so many objects from its number on, or hardly ever."""
AT_ONCE = 8
"""So many objects are deleted at once: one by one they go no quicker than a writer puts them, far from its store."""
_BATCH = 64


class Tidying:
    """Of one writer. Not safe to share between threads."""

    def __init__(self, store: Store, history_us: int, kept: Kept, check_mine: Callable[[], None]) -> None:
        """check_mine: raises where another writer has taken the catalog over."""
        self._store, self._history_us, self._kept, self._check_mine = store, history_us, kept, check_mine

    def outgrown(self, newest: str, end: int) -> tuple[list[Stored], int]:
        """Copies of the manifest, then objects of the log, that may go; and the number below which nothing stays of
        either. newest: the copy that was announced last, which stays. end: the sequence of the next object of the log.
        Raises StoreError.
        """
        copies = list(self._store.list(MANIFESTS))
        names, oldest = outdated(copies, self._history_us, newest)
        going = [each for each in copies if each.name in set(names)]
        announced = None if oldest is None else self._announced_first(oldest, end)
        if oldest is None or announced is None:
            return going, 0
        begins = min(oldest, announced.sequence)
        log = (one for one in self._store.list(LOG) if log_sequence(one.name) is not None)
        going += sorted((one for one in log if one.name < log_name(begins)), key=lambda one: one.name)
        return going, begins

    def _announced_first(self, sequence: int, end: int) -> Announced | None:
        """The first copy of the manifest that objects from this one on announce; None where a crash came before."""
        for each in range(sequence, min(end, sequence + ANNOUNCED_SOON)):
            found = read_object(self._store, each).manifest
            if found is not None:
                return found
        return None

    def unnamed(self, named: Collection[str]) -> list[Stored]:
        """Quarantined batches. named: by the manifest as it is; no copy is on its way. Raises StoreError."""
        there = self._store.list(QUARANTINE)
        return [each for each in there if each.name not in named and each.name not in self._kept]

    def delete(self, going: Sequence[Stored], ending: Callable[[], bool] = lambda: False) -> bool:
        """Delete them, in about this order; whether all are gone. ending: whether the rest is left to another time.
        Raises StoreError.
        """
        for at in range(0, len(going), _BATCH):
            if ending():
                return False
            self._check_mine()
            self._store.delete([each.name for each in going[at : at + _BATCH]], at_once=AT_ONCE)
        return True
