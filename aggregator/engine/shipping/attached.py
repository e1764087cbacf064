"""`attach`: a directory and its store, when the catalog is opened for writing: whose the catalog is, and how far the
store has its log.

Nothing is acknowledged before this has taken the lease and put a fence into the log: from then on whatever an older
writer puts is refused.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from aggregator.engine.shipping.laying import lay, log_end, whole_end
from aggregator.errors import (
    CatalogLockedError,
    CorruptLogError,
    CorruptManifestError,
    InvalidRequestError,
    ObjectConflictError,
    ObjectMissingError,
    StoreError,
    StoreUnreachableError,
    UnknownVersionError,
)
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.store_note import StoreNote, read_note, write_note
from aggregator.storage.store.client import READS, Store
from aggregator.storage.store.lease import Lease, Seen, Terms, fenced, look, new_terms
from aggregator.storage.store.shipped import CATALOG, LOG, VERSION, LogObject, log_name, log_sequence

logger = logging.getLogger("aggregator")

_T = TypeVar("_T")


@dataclass(slots=True)
class Attached:
    """A store that is this process's to write to. sequence: of the next object of its log. shipped: the position behind
    what it has of the log. shipped_us: when it got that.
    """

    store: Store
    lease: Lease
    note: StoreNote
    sequence: int
    shipped: int
    shipped_us: int


def attach(layout: Layout, store: Store, lease_s: float, identity: str, *, in_store: bool) -> Attached:
    """Take a directory's catalog in the store. What the store has of the log and the directory has not is brought here.

    in_store: whether appends are acknowledged when they are there. Raises FencedError, CatalogLockedError where it is
    another's, InvalidRequestError, StoreError, CorruptLogError, OSError.
    """
    note = read_note(layout)
    if note is None or note.address != store.address:
        note = StoreNote(store.address)
    seen = look(store)
    _check_mine(store, note, seen, identity)
    sure = in_store and (seen is None or seen.terms.in_store or seen.terms.released)
    terms = new_terms(seen, lease_s, in_store=sure)  # else what the last run acknowledged goes there first
    note = note.but(runs=(*note.runs, terms.run))  # what an earlier attempt asked for may still come through
    write_note(layout, note)
    try:
        lease = take(store, seen, terms)
    except CatalogLockedError:
        found = look(store)
        if found is None or found.terms.run not in note.runs:
            raise
        raise StoreUnreachableError(
            "an earlier attempt took the lease just now", path=store.address, hint="open the catalog again"
        ) from None
    sequence, shipped, shipped_us, missing = _follow(store, note, layout)
    for position, data in missing:
        lay(layout.log, position, data)
    attached = Attached(store, lease, note, sequence, shipped, shipped_us)
    _fence(attached, layout)
    if attached.shipped > log_end(layout.log):  # all of it lies in segments: what is appended next goes behind it
        lay(layout.log, attached.shipped, b"")
    attached.note = note.but(runs=(terms.run,), sequence=attached.sequence)
    write_note(layout, attached.note)
    return attached


def take(store: Store, seen: Seen | None, terms: Terms) -> Lease:
    """Take the lease. Raises CatalogLockedError where somebody was quicker, StoreError."""
    try:
        return Lease(store, seen, terms)
    except ObjectConflictError:
        found = look(store)
        raise _locked(store, found) from None


def _check_mine(store: Store, note: StoreNote, seen: Seen | None, identity: str) -> None:
    """Raises where the catalog in the store is another one, or another writer's."""
    mine = json.dumps({"version": VERSION, "identity": identity}).encode()
    if seen is None:
        try:
            store.put(CATALOG, mine, create=True)
        except ObjectConflictError:
            _check_identity(store, identity)
        return
    _check_identity(store, identity)
    if seen.terms.run in note.runs:
        return
    if note.runs:
        raise fenced(store.address)
    raise InvalidRequestError(
        f"the store has this catalog already, written by {seen.terms.holder}",
        path=store.address,
        hint="`aggregator restore` brings it into an empty directory, `aggregator serve --standby` takes it over",
    )


def _check_identity(store: Store, identity: str) -> None:
    try:
        found = json.loads(store.get(CATALOG))["identity"]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"whose catalog the store has cannot be read: {error!r}",
            path=store.path_of(CATALOG),
            hint="look what answers at its address",
        ) from None
    if found != identity:
        raise InvalidRequestError(
            "the store has another catalog", path=store.address, hint="give each catalog a prefix of its own"
        )


def _locked(store: Store, found: Seen | None) -> CatalogLockedError:
    who = "another process" if found is None else found.terms.holder
    return CatalogLockedError(
        f"the catalog in the store was taken by {who}",
        path=store.address,
        hint="one process may write to it",
        holder={},
    )


def _follow(store: Store, note: StoreNote, layout: Layout) -> tuple[int, int, int, list[tuple[int, bytes]]]:
    """The next sequence of the log in the store, its end, when that came there, and the pieces that the directory
    lacks: as after a power cut where it was not synced. Of objects that are damaged or missing the directory has the
    bytes, and what the store has behind them is not known: it is shipped again.
    """
    sequence, shipped, shipped_us = note.sequence, 0, 0
    here = log_end(layout.log) or note.needs[1]
    missing: list[tuple[int, bytes]] = []
    if sequence > 1:  # its end is in the one before
        with contextlib.suppress(ObjectMissingError, CorruptLogError):
            before = read_object(store, sequence - 1)
            shipped, shipped_us = before.end, before.shipped_us
        if shipped > here:  # from the oldest on that is not in segments only
            sequence = min(note.needs[0], sequence)
    while True:
        try:
            found = read_object(store, sequence)
        except ObjectMissingError:
            listed = (log_sequence(each.name) for each in store.list(LOG, after=log_name(sequence)))
            later = [each for each in listed if each is not None]
            if not later:
                return sequence, shipped, shipped_us, missing
            sequence = min(later)  # behind what somebody deleted; no fence takes its place
            continue
        except CorruptLogError as error:
            logger.warning("%s: %s", error.path, error.message)
            sequence += 1
            continue
        if sequence >= note.sequence and found.run not in note.runs:
            raise fenced(store.address)
        missing += _behind(found, here)
        sequence, shipped, shipped_us = sequence + 1, found.end, found.shipped_us


def _behind(found: LogObject, here: int) -> list[tuple[int, bytes]]:
    return [
        (max(position, here), data[max(0, here - position) :])
        for position, data in found.pieces
        if position + len(data) > here
    ]


def _fence(attached: Attached, layout: Layout) -> None:
    """Win a sequence: whatever was put before is known then, and whatever comes later from another is refused."""
    terms, store = attached.lease.terms, attached.store
    while True:
        attached.shipped = whole_end(layout.log, attached.shipped)
        at = fence_at(store, attached.sequence, terms, attached.shipped_us, attached.shipped)
        if at is not None:
            attached.sequence, attached.shipped_us = attached.sequence + 1, at
            return
        try:
            found = read_object(store, attached.sequence)  # of the run before, late: its bytes are of this one's log
        except CorruptLogError as error:
            logger.warning("%s: %s", error.path, error.message)
            attached.sequence += 1
            continue
        if found.run not in attached.note.runs:
            raise fenced(store.address)
        for position, data in _behind(found, log_end(layout.log)):
            lay(layout.log, position, data)
        attached.shipped, attached.shipped_us = found.end, found.shipped_us
        attached.sequence += 1


def fence_at(store: Store, sequence: int, terms: Terms, before_us: int, end: int) -> int | None:
    """Put a fence at a sequence; gives when, None where another object is there. before_us: when the last object was
    put. end: the position of the log behind the last frame that the store has whole. Raises StoreError.
    """
    shipped_us = max(before_us + 1, time.time_ns() // 1000)
    fence = LogObject(terms.epoch, sequence, terms.run, shipped_us, end)
    try:
        store.put(log_name(sequence), fence.encode(), create=True)
    except ObjectConflictError:
        return None
    return shipped_us


def read_object(store: Store, sequence: int) -> LogObject:
    """An object of the log. Raises ObjectMissingError, CorruptLogError, UnknownVersionError, StoreError."""
    name = log_name(sequence)
    try:
        return read_again(lambda: LogObject.decode(store.get(name), sequence))
    except (CorruptLogError, UnknownVersionError) as error:
        error.path = store.path_of(name)
        raise


def read_again(read: Callable[[], _T]) -> _T:
    """What a reading gives. Who asks passes over what is damaged, and lacks it then: so it must be damaged each time,
    and not on its way, or by a proxy that answered in the store's place.
    """
    for _ in range(READS - 1):
        with contextlib.suppress(CorruptLogError, CorruptManifestError):
            return read()
    return read()
