"""`attach`: connects a directory with its store when the catalog is opened for writing: checks who owns the catalog,
and finds how much of the log the store has.

Nothing is acknowledged before this has taken the lease and put a fence into the log: from then on the store refuses
every upload of an older writer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from aggregator.engine.shipping.log_writer import log_end, whole_end, write_at
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
from aggregator.storage.store.lease import Lease, Seen, Terms, fenced, new_terms, read_lease
from aggregator.storage.store.shipped import CATALOG, LOG, VERSION, LogObject, log_name, log_sequence

logger = logging.getLogger("aggregator")

_T = TypeVar("_T")


@dataclass(slots=True)
class Attached:
    """A store that this process may write to. sequence: number of the next object of its log. shipped: the end of the
    log in the store, as a position. shipped_us: when that was uploaded.
    """

    store: Store
    lease: Lease
    note: StoreNote
    sequence: int
    shipped: int
    shipped_us: int


def attach(layout: Layout, store: Store, lease_s: float, identity: str, *, in_store: bool) -> Attached:
    """Take over a directory's catalog in the store. Parts of the log that only the store has are downloaded.

    in_store: whether appends are acknowledged only once they are in the store. Raises FencedError, CatalogLockedError
    if another process has it, InvalidRequestError, StoreError, CorruptLogError, OSError.
    """
    note = read_note(layout)
    if note is None or note.address != store.address:
        note = StoreNote(store.address)
    seen = read_lease(store)
    _check_ownership(store, note, seen, identity)
    sure = in_store and (seen is None or seen.terms.in_store or seen.terms.released)
    terms = new_terms(seen, lease_s, in_store=sure)  # else what the last run acknowledged is uploaded first
    note = note.but(runs=(*note.runs, terms.run))  # a request of an earlier attempt may still succeed
    write_note(layout, note)
    try:
        lease = take(store, seen, terms)
    except CatalogLockedError:
        found = read_lease(store)
        if found is None or found.terms.run not in note.runs:
            raise
        raise StoreUnreachableError(
            "an earlier attempt has just taken the lease", path=store.address, hint="open the catalog again"
        ) from None
    sequence, shipped, shipped_us, missing = _follow(store, note, layout)
    for position, data in missing:
        write_at(layout.log, position, data)
    attached = Attached(store, lease, note, sequence, shipped, shipped_us)
    _fence(attached, layout)
    if attached.shipped > log_end(layout.log):  # everything is in segments: the next append goes after it
        write_at(layout.log, attached.shipped, b"")
    attached.note = note.but(runs=(terms.run,), sequence=attached.sequence)
    write_note(layout, attached.note)
    return attached


def take(store: Store, seen: Seen | None, terms: Terms) -> Lease:
    """Take the lease. Raises CatalogLockedError if another process was faster, StoreError."""
    try:
        return Lease(store, seen, terms)
    except ObjectConflictError:
        found = read_lease(store)
        raise _locked(store, found) from None


def _check_ownership(store: Store, note: StoreNote, seen: Seen | None, identity: str) -> None:
    """Raise if the store has another catalog, or another writer has this one."""
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
        f"the store already has this catalog, written by {seen.terms.holder}",
        path=store.address,
        hint="copy it with `aggregator restore`, or take it over with `aggregator serve --standby`",
    )


def _check_identity(store: Store, identity: str) -> None:
    try:
        found = json.loads(store.get(CATALOG))["identity"]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"cannot read which catalog the store has: {error!r}",
            path=store.path_of(CATALOG),
            hint="check what responds at this address",
        ) from None
    if found != identity:
        raise InvalidRequestError(
            "the store has another catalog", path=store.address, hint="use a separate prefix for each catalog"
        )


def _locked(store: Store, found: Seen | None) -> CatalogLockedError:
    who = "another process" if found is None else found.terms.holder
    return CatalogLockedError(
        f"the catalog in the store belongs to {who}",
        path=store.address,
        hint="only one process may write to it",
        holder={},
    )


def _follow(store: Store, note: StoreNote, layout: Layout) -> tuple[int, int, int, list[tuple[int, bytes]]]:
    """The next sequence of the log in the store, its end, when that was uploaded, and the pieces that the directory
    lacks, for example after a power cut if the log was not synced. The directory has the bytes of damaged or missing
    objects. What the store has after them is unknown, and is uploaded again.
    """
    sequence, shipped, shipped_us = note.sequence, 0, 0
    here = log_end(layout.log) or note.needs[1]
    missing: list[tuple[int, bytes]] = []
    if sequence > 1:  # its end is in the one before
        with contextlib.suppress(ObjectMissingError, CorruptLogError):
            before = read_object(store, sequence - 1)
            shipped, shipped_us = before.end, before.shipped_us
        if shipped > here:  # from the oldest that has events outside segments
            sequence = min(note.needs[0], sequence)
    while True:
        try:
            found = read_object(store, sequence)
        except ObjectMissingError:
            listed = (log_sequence(each.name) for each in store.list(LOG, after=log_name(sequence)))
            later = [each for each in listed if each is not None]
            if not later:
                return sequence, shipped, shipped_us, missing
            sequence = min(later)  # after objects that somebody deleted; no fence may take their place
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
    """Win a sequence: every earlier upload is then known, and every later one by another writer is refused."""
    terms, store = attached.lease.terms, attached.store
    while True:
        attached.shipped = whole_end(layout.log, attached.shipped)
        at = fence_at(store, attached.sequence, terms, attached.shipped_us, attached.shipped)
        if at is not None:
            attached.sequence, attached.shipped_us = attached.sequence + 1, at
            return
        try:
            found = read_object(store, attached.sequence)  # late, from the run before: its bytes belong to this log
        except CorruptLogError as error:
            logger.warning("%s: %s", error.path, error.message)
            attached.sequence += 1
            continue
        if found.run not in attached.note.runs:
            raise fenced(store.address)
        for position, data in _behind(found, log_end(layout.log)):
            write_at(layout.log, position, data)
        attached.shipped, attached.shipped_us = found.end, found.shipped_us
        attached.sequence += 1


def fence_at(store: Store, sequence: int, terms: Terms, before_us: int, end: int) -> int | None:
    """Put a fence at a sequence. Return its time; None if that sequence has another object. before_us: time of the last
    object. end: the position after the last frame that the store has whole. Raises StoreError.
    """
    shipped_us = max(before_us + 1, time.time_ns() // 1000)
    fence = LogObject(terms.epoch, sequence, terms.run, shipped_us, end)
    try:
        store.put(log_name(sequence), fence.encode(), create=True)
    except ObjectConflictError:
        return None
    return shipped_us


def read_object(store: Store, sequence: int) -> LogObject:
    """Read an object of the log. Raises ObjectMissingError, CorruptLogError, UnknownVersionError, StoreError."""
    name = log_name(sequence)
    try:
        return read_again(lambda: LogObject.decode(store.get(name), sequence))
    except (CorruptLogError, UnknownVersionError) as error:
        error.path = store.path_of(name)
        raise


def read_again(read: Callable[[], _T]) -> _T:
    """The result of `read`, retried if the data is damaged. Callers skip damaged data and lose it, so it must be
    damaged each time: not just in transit, or by a proxy that answered instead of the store.
    """
    for _ in range(READS - 1):
        with contextlib.suppress(CorruptLogError, CorruptManifestError):
            return read()
    return read()
