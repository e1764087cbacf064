"""`Shipper`: uploads the log of an open catalog to its store, batched over all topics, and copies of its manifest.

Log, manifest copies, lease and deletion have a thread each, so that segments that take hours to upload delay no frame.
One object of the log is uploaded at a time. If it is unknown whether it arrived, the same bytes are uploaded under the
same name until it is known: nothing else may get that name. A copy of the manifest is uploaded after everything that it
names. It becomes valid when an object of the log announces it, and only the owner of the lease can upload that.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Condition, Lock, RLock, Thread
from typing import Any, Protocol

from aggregator.engine.seal.quarantine_file import batch_path
from aggregator.engine.shipping.attach import Attached
from aggregator.engine.shipping.history import NEWEST, Kept
from aggregator.engine.shipping.store_cleanup import StoreCleanup
from aggregator.errors import FencedError, LogFailedError, ObjectConflictError, StoreError
from aggregator.model import SegmentInfo
from aggregator.policy import Shipping
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.pins import Pins
from aggregator.storage.files.store_note import write_note
from aggregator.storage.log.log import Log
from aggregator.storage.manifest import Copy, Manifest
from aggregator.storage.state.state import CatalogState
from aggregator.storage.store.client import Stored
from aggregator.storage.store.lease import fenced
from aggregator.storage.store.objects import object_name
from aggregator.storage.store.shipped import (
    QUARANTINE,
    Announced,
    LogObject,
    LogSlice,
    log_name,
    manifest_name,
    packed,
    quarantined_object,
)
from esformat import ClosedError, EsdbError

logger = logging.getLogger("aggregator")

OBJECT_BYTES = 16 << 20
"""Approximate maximum size of an object of the log, which bounds the cost of a request."""
SHARE_OF_TIME = 10
"""Copies of the manifest take at most 1/SHARE_OF_TIME of the time: copying a large one takes long."""
PUSH_THREADS = 4
CLEAN_UP_S = 60.0
"""Seconds between searches for objects that the store no longer needs."""
MAKE_AGAIN = "the next opening decides whether the change is kept: repeat it then"
_PAUSE_S = 0.2
"""Pause before the next attempt after the store failed, in seconds."""


class Catalog(Protocol):
    """The parts of an open catalog that the shipper reads."""

    layout: Layout
    state: CatalogState
    manifest: Manifest
    log: Log
    pins: Pins


class Shipper:
    """Uploads in background threads, and on demand for callers that wait. Thread-safe."""

    def __init__(self, attached: Attached, settings: Shipping, *, in_store: bool) -> None:
        """in_store: whether appends are acknowledged only once they are in the store."""
        self._store, self.lease, self._note = attached.store, attached.lease, attached.note
        self._sequence, self._shipped, self._shipped_us = attached.sequence, attached.shipped, attached.shipped_us
        self._settings, self._in_store = settings, in_store
        self._shipping = RLock()  # held while an object of the log is uploaded
        self._publishing = Lock()
        self._renewing = Lock()
        self._pending: LogObject | None = None  # whether it arrived is unknown
        self._failure: LogFailedError | None = None
        self._objects: deque[tuple[int, int]] = deque([self._note.needs])  # sequence, position of its first frame
        self._needed = min(self._note.needs[1], self._shipped)  # the position of the last copy
        self._stored: set[str] | None = None  # names of objects that are known to be there
        self._condition = Condition()
        self._closing = False
        self._noted, self._published = 1, 0  # changes of the manifest, counted here; at first the store has none
        self._facts = 0  # the last of them that cannot be recovered from segments or log
        self._stopped_waiting = False
        self._next_copy = 0.0
        self._whole_at = time.monotonic()  # the last known time at which the store had everything acknowledged
        self._kept = Kept(settings.history_us / 1e6)
        self._cleanup = StoreCleanup(self._store, settings.history_us, self._kept, self.check_ownership)
        self._cleaning = Lock()
        self._newest: str | None = None  # the copy of the manifest that was announced last
        self._copies = 0  # number of announced copies
        self._begins = 0  # below this number the store has neither objects of the log nor copies
        self._left = 0  # a position of the log before which the store has nothing
        self._awaited: dict[int, tuple[int, int]] = {}  # later positions: next object's number and copies at that time
        self._lost: set[str] = set()  # files that the manifest names and that are missing
        self._troubles: dict[str, Exception] = {}  # by what failed
        self.push: Callable[[Iterable[SegmentInfo]], object] = lambda segments: None
        """Uploads segments that the store lacks. Raises if one that is available was not uploaded."""
        self._refuse: Callable[[LogFailedError], object] = lambda error: None
        """Makes the log refuse appends."""
        self._threads: list[Thread] = []

    def keep_lease(self) -> None:
        """Start renewing the lease: opening a catalog may take longer than the lease lasts."""
        self._go_on(self._renew, "aggregator-lease")

    def start(self, catalog: Catalog) -> None:
        """Start uploading an open catalog."""
        self._catalog, self._refuse = catalog, catalog.log.fail
        self._go_on(self._ship_on, "aggregator-ship")
        self._go_on(self._publish_on, "aggregator-publish")
        self._go_on(self._clean_up_periodically, "aggregator-cleanup")

    def _go_on(self, work: Callable[[], None], name: str) -> None:
        thread = Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    # ------------------------------------------------------------ called by the log

    @property
    def shipped(self) -> int:
        """The position of the log after the last byte that the store has."""
        return self._shipped

    @property
    def until(self) -> float:
        """Until when `hold` need not be called, by the clock `now_s`: while the lease is known to last; -inf if appends
        are acknowledged only once they are in the store, or uploads have failed for good.
        """
        return -math.inf if self._in_store or self._failure is not None else self.lease.until

    @property
    def failure(self) -> LogFailedError | None:
        """Why nothing can be uploaded any more; None if it can."""
        return self._failure

    def admit(self) -> str | None:
        """Why nothing can be acknowledged now; None if it can. Raises LogFailedError if nothing ever will be."""
        if self._failure is None and self.lease.left_s <= 0 and self._renewing.acquire(blocking=False):
            try:  # after a pause of this process the store may well answer
                self._renew_once()
            finally:
                self._renewing.release()
        if self._failure is not None:
            raise self._failure
        if self.lease.left_s > 0:
            return None
        return f"the store does not answer, and the lease of {self.lease.terms.length_s:g} s has expired"

    def hold(self, end: int) -> None:
        """Wait until everything written up to a position may be acknowledged. Raises LogFailedError."""
        while True:
            if self._failure is not None:
                raise self._failure
            try:
                if self._in_store:
                    self._ship_to(end)
                if self.lease.left_s > 0:
                    return
                self.lease.renew()
                return
            except FencedError as error:
                self._fail(error)
                raise
            except StoreError as error:  # also refusals: credentials may be renewed
                self._record_error("ship", error)
                if self._stopped_waiting or self._wait(_PAUSE_S):
                    raise LogFailedError(
                        f"the catalog was closed while its store failed: {error.message}",
                        path=error.path,
                        hint="the next opening decides whether the batch is kept: repeat it with the same sequence",
                    ) from None

    def note_change(self, *, facts: bool) -> None:
        """Note that the manifest changed. facts: in a way that cannot be recovered from segments or log."""
        self._noted += 1
        if facts:
            self._facts = self._noted

    # ------------------------------------------------------------ the log

    def ship(self) -> None:
        """Upload everything acknowledged so far. Raises FencedError, StoreError, OSError."""
        began = time.monotonic()
        self._ship_to(self._catalog.log.end)
        self._whole_at = max(self._whole_at, began)

    def facts(self) -> dict[str, Any]:
        """How far the store is behind, and the state of the lease, as JSON values. `lag_seconds`: maximum age of the
        acknowledged events that the store lacks, which would be lost with the machine.
        """
        lag, terms = max(0, self._catalog.log.end - self._shipped), self.lease.terms
        return {
            "lag_bytes": lag,
            "lag_seconds": round(time.monotonic() - self._whole_at, 3) if lag else 0.0,
            "shipped_us": self._shipped_us,
            "changes_waiting": self._noted - self._published,
            "epoch": terms.epoch,
            "lease_seconds": round(max(0.0, self.lease.left_s), 3),
            "fenced": self._failure is not None,
            "trouble": str(self._failure) if self._failure is not None else self.trouble,
        }

    def _ship_to(self, end: int, manifest: Announced | None = None, *, whole: bool = False) -> None:
        """Upload the log up to a position. manifest: a copy that the last object announces."""
        with self._shipping:
            if self._failure is not None:
                raise self._failure
            if self._pending is not None and self._pending.sequence >= self._sequence:
                self._put(self._pending)
            while self._shipped < end or manifest is not None or whole:
                pieces = self._catalog.log.read(self._shipped, end, OBJECT_BYTES) if self._shipped < end else []
                reached = max([self._shipped, *(position + len(data) for position, data in pieces)])
                if not pieces:  # only the header of a file remains
                    reached = max(reached, end)
                last = reached >= end
                self._put(self._object(pieces, reached, manifest if last else None, whole=whole and last))
                if last:
                    return

    def _object(self, pieces: Sequence[LogSlice], end: int, manifest: Announced | None, *, whole: bool) -> LogObject:
        terms = self.lease.terms
        shipped_us = max(self._shipped_us + 1, time.time_ns() // 1000)
        return LogObject(terms.epoch, self._sequence, terms.run, shipped_us, end, whole, pieces, manifest)

    def _put(self, one: LogObject) -> None:
        self._pending = one
        try:
            self._store.put(log_name(one.sequence), one.encode(), create=True)
        except ObjectConflictError:
            error = fenced(self._store.address)
            self._fail(error)
            raise error from None
        self._shipped, self._shipped_us, self._sequence = one.end, one.shipped_us, one.sequence + 1
        self._pending = None
        if one.pieces:
            self._objects.append((one.sequence, one.pieces[0][0]))
        if one.manifest is not None:
            self._newest, self._copies = one.manifest.name, self._copies + 1
            needs = (one.manifest.sequence, one.manifest.position)
            self._note = self._note.but(sequence=self._sequence, needs=needs)
            try:
                write_note(self._catalog.layout, self._note)
                self._troubles.pop("note", None)
            except OSError as error:  # then the next opening reads more of the store's log
                self._record_error("note", error)

    def _fail(self, error: LogFailedError) -> None:
        if self._failure is None:
            logger.error("%s", error)
            self._failure = error
            self._refuse(error)
            with self._condition:
                self._condition.notify_all()

    # ------------------------------------------------------------ copies of the manifest

    def publish(self, *, whole: bool = False) -> None:
        """Upload a copy of the manifest, everything that it names, and the log. Raises as `ship`.

        whole: mark that nothing was acknowledged after it.
        """
        with self._publishing:
            noted = self._noted
            pin = self._catalog.pins.take(self._catalog.state.change)
            try:
                copy, announced = self._put_copy()
                self._ship_to(max(self._catalog.log.end, self._shipped), announced, whole=whole)
                quarantined = [quarantined_object(each.number, each.checksum) for each in copy.quarantined]
                self._kept.published([object_name(each) for each in copy.segments] + quarantined)
            finally:
                pin.release()  # only now: nothing that the copy names may be deleted before it is valid
            with self._condition:
                self._published = noted
                self._condition.notify_all()
            if self._in_store and not self.lease.terms.in_store:
                self.lease.renew(in_store=True)
            self._needed = announced.position
            while len(self._objects) > 1 and self._objects[1][1] <= announced.position:
                self._objects.popleft()

    def _put_copy(self) -> tuple[Copy, Announced]:
        """Upload everything that the manifest names, then a copy of it, which must still be announced."""
        self.check_ownership()
        # once everything is sealed, a copy needs nothing before the log's end, but the current file begins before that
        position = max(self._needed, self._catalog.log.needed(self._catalog.state.sealed()))
        sequence = self._sequence_of(position)
        copy = self._catalog.manifest.copy()
        self.push(copy.segments)
        self._put_files(
            (quarantined_object(each.number, each.checksum), batch_path(self._catalog.layout, each.number))
            for each in copy.quarantined
        )
        stored = packed(copy.image)
        name = manifest_name(self._sequence, self.lease.terms.epoch)
        self._store.put(name, stored, create=True)
        return copy, Announced(name, len(stored), f"{checksum64(stored):016x}", copy.change, sequence, position)

    def _sequence_of(self, position: int) -> int:
        """The number of the object that contains, or will contain, the frame at a position."""
        found = self._objects[0][0]
        with self._shipping:
            for sequence, first in self._objects:
                if first <= position:
                    found = sequence
            return self._sequence if position >= self._shipped else found

    def publish_backup(self, wait_s: float) -> bool:
        """Wait until the store has the changes of the manifest that cannot be recovered from segments or log, before
        they are acknowledged. Return whether it has them: after `wait_s` they are left to the background, unless
        appends wait for the store as well.

        Raises LogFailedError if they never will be in the store, or the catalog is closed first: then they must not be
        acknowledged.
        """
        deadline, wanted = time.monotonic() + wait_s, self._facts
        with self._condition:
            self._condition.notify_all()
            while self._published < wanted and not self._closing:
                if self._failure is not None:
                    raise self._failure
                if time.monotonic() > deadline and (self._stopped_waiting or not self._in_store):
                    break
                self._condition.wait(_PAUSE_S)
        if self._published < wanted:
            self._settle()
        return self._published >= wanted

    def _settle(self) -> None:
        """Wait until a change that the store lacks may be acknowledged: no other writer has taken over."""
        while True:
            try:
                if self._in_store:
                    self.announce()
                elif self.lease.left_s <= 0:
                    self.lease.renew()
                return
            except LogFailedError as error:
                self._fail(error)
                raise
            except ClosedError as error:  # segments are no longer uploaded
                error.hint = MAKE_AGAIN
                raise
            except (EsdbError, OSError) as error:
                self._record_error("renew", error)
                if self._stopped_waiting or self._wait(_PAUSE_S):
                    raise LogFailedError(
                        f"the catalog was closed while its store failed: {error}",
                        path=self._store.address,
                        hint=MAKE_AGAIN,
                    ) from None

    def announce(self) -> None:
        """Publish the manifest if it changed. Raises as `publish`."""
        if self._published < self._noted:
            self.publish()

    def lingers(self, position: int) -> bool:
        """Whether the store may still have anything from before a position of the log that this machine no longer has:
        objects of the log, copies of the manifest, quarantined batches that the manifest no longer names.
        """
        return not self._has_left(position) or self._stored is None or not self._stored <= self._quarantined()

    def _has_left(self, position: int) -> bool:
        """Whether everything from before a position is deleted from the store. The newest copies, and what they need,
        stay however old they are; while a caller waits, new copies are made to replace them.
        """
        if position <= self._left:
            return True
        if position not in self._awaited and self._shipping.acquire(blocking=False):
            try:
                if self._shipped >= position:
                    self._awaited[position] = self._sequence, self._copies
            finally:
                self._shipping.release()
        if position not in self._awaited:
            return False
        number, copies = self._awaited[position]
        if self._begins < number:
            if self._copies < copies + NEWEST:
                self.note_change(facts=False)
            return False
        self._left = position
        self._awaited = {place: known for place, known in self._awaited.items() if place > position}
        return True

    def kept(self) -> Kept:
        """The objects of segments and quarantined batches that copies of the manifest in the store name."""
        return self._kept

    def check_ownership(self) -> None:
        """Raise FencedError if another writer took over the catalog, StoreError if the store does not say."""
        if self._failure is not None:
            raise self._failure
        if self.lease.left_s <= 0:
            self.lease.renew()

    def clean_up(self, *, dry_run: bool = False) -> list[Stored]:
        """Delete what the store no longer needs, and return it. Raises FencedError, StoreError."""
        if self._newest is None:  # what to keep is unknown
            return []
        with self._cleaning:  # one at a time: another would delete what this one reads
            to_delete, begins = self._cleanup.outdated_objects(self._newest, self._sequence)
            with self._publishing:  # so that no quarantined batch is about to be named
                unnamed = self._cleanup.unnamed(self._quarantined())
                if not dry_run:
                    self._cleanup.delete(unnamed)
                    self._stored = self._stored and self._stored - {each.name for each in unnamed}
            if not dry_run and self._cleanup.delete(to_delete, lambda: self._closing):
                self._begins = max(self._begins, begins)
        return unnamed + to_delete

    def _quarantined(self) -> set[str]:
        """Names of the objects of all batches in quarantine."""
        return {quarantined_object(each.number, each.checksum) for each in self._catalog.manifest.quarantined()}

    def _put_files(self, files: Iterable[tuple[str, Path]]) -> None:
        if self._stored is None:
            self._stored = {found.name for found in self._store.list(QUARANTINE)}
        known = self._stored
        missing = [(name, path) for name, path in files if name not in known and name not in self._lost]
        if not missing:
            return
        with ThreadPoolExecutor(min(PUSH_THREADS, len(missing)), "aggregator-push") as pool:
            for name in pool.map(self._put_file, missing):
                known.add(name)

    def _put_file(self, file: tuple[str, Path]) -> str:
        name, path = file
        try:
            self._store.put_file(name, path)
        except FileNotFoundError:
            self._lost.add(name)
            logger.warning("%s is missing and cannot be uploaded to the store", path)
        return name

    # ------------------------------------------------------------ the threads

    def _ship_on(self) -> None:
        while not self._wait(self._settings.interval_us / 1e6):
            if not self._do("ship", self.ship):
                return

    def _publish_on(self) -> None:
        interval_s = self._settings.interval_us / 1e6
        while not self._wait(interval_s, lambda: self._facts > self._published):
            if not self._do("publish", self._look_after_copies):
                return
            if "publish" in self._troubles and self._wait(_PAUSE_S):
                return

    def _do(self, what: str, work: Callable[[], object]) -> bool:
        """Do one round of `work`. Return whether to continue with another."""
        try:
            work()
        except LogFailedError as error:
            self._fail(error)
            return False
        except Exception as error:  # noqa: BLE001  reported as trouble, and retried
            self._record_error(what, error)
        else:
            self._troubles.pop(what, None)
        return True

    def _look_after_copies(self) -> None:
        if time.monotonic() >= self._next_copy or self._facts > self._published:
            began = time.monotonic()
            self.announce()
            self._next_copy = began + SHARE_OF_TIME * (time.monotonic() - began)

    def _clean_up_periodically(self) -> None:
        while not self._wait(CLEAN_UP_S):
            if not self._do("clean_up", self.clean_up):
                return

    def _renew(self) -> None:
        while self._failure is None and not self._wait(self.lease.terms.length_s / 3):
            self._renew_once()

    def _renew_once(self) -> None:
        try:
            self.lease.renew()
        except FencedError as error:
            self._fail(error)
        except StoreError as error:
            self._record_error("renew", error)
        else:
            self._troubles.pop("renew", None)

    def _wait(self, seconds: float, hurry: Callable[[], bool] = lambda: False) -> bool:
        """Wait for the next round, or until `hurry` returns true. Return whether the catalog is closing."""
        with self._condition:
            self._condition.wait_for(lambda: self._closing or hurry(), seconds)
            return self._closing

    def _record_error(self, what: str, error: Exception) -> None:
        """Record and log an error, once for each kind: the times and numbers in messages of stores always differ."""
        if type(error) is not type(self._troubles.get(what)):
            self._troubles[what] = error
            if not self._closing:
                logger.warning(
                    "%s", _describe(error), exc_info=None if isinstance(error, EsdbError | OSError) else error
                )

    @property
    def trouble(self) -> str | None:
        """Why uploads fail at the moment; None if they do not."""
        return next(map(_describe, list(self._troubles.values())), None)

    # ------------------------------------------------------------ the end

    def stop_waiting_for_store(self) -> None:
        """Stop callers from waiting for a store that does not work: the program is about to end."""
        self._stopped_waiting = True

    def stop(self) -> None:
        """Stop the threads, and stop waiting for a store that does not answer."""
        self.stop_waiting_for_store()
        with self._condition:
            self._closing = True
            self._condition.notify_all()

    def close(self, *, publish: bool = True) -> None:
        """Upload the rest and release the lease. The log must be closed, the manifest still open. Errors are only
        logged: the next opening uploads what is missing. publish: also a copy of the manifest; else the lease lapses.
        """
        self.stop()
        for thread in self._threads:
            thread.join()
        if self._failure is not None or self._catalog.log.failure is not None:
            return
        try:
            if publish:
                self.publish(whole=True)
                self.lease.release()
            else:
                self.ship()
        except (EsdbError, OSError) as error:
            logger.warning("the catalog is not completely in its store: %s", error)


def _describe(error: Exception) -> str:
    what = error if isinstance(error, EsdbError | OSError) else repr(error)
    return f"shipping failed and will be retried: {what}"
