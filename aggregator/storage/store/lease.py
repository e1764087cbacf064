"""The lease of a catalog in a store: which writer may write, and when another may take over.

The lease is one object, replaced by a conditional put of whoever saw it last. Each acquisition increments the epoch;
each renewal changes the object. Clocks are never compared: a candidate must have seen the same object for the lease's
whole length, by its own clock. The holder stops by its own clock, which started earlier. The lease is not what makes a
late writer harmless; the log does (`shipped`), because its next object is refused.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from threading import Lock

from aggregator.errors import FencedError, ObjectConflictError, ObjectMissingError, StoreError
from aggregator.storage.store.client import Store
from aggregator.storage.store.shipped import LEASE
from esformat.parts import now_s


@dataclass(frozen=True, slots=True)
class Terms:
    """The contents of the object.

    run: unique to each acquisition. holder: for people. address: where the holder serves the catalog. in_store: whether
    data that it acknowledges is in the store. released: it was given back, with all acknowledged data in the store.
    """

    epoch: int
    run: str
    holder: str
    length_s: float
    renewals: int = 0
    in_store: bool = False
    released: bool = False
    address: str = ""

    def encode(self) -> bytes:
        """The bytes of the object."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, stored: bytes) -> Terms:
        """Read the object. Raises StoreError."""
        try:
            return cls(**json.loads(stored))
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"the lease in the store cannot be read: {error}",
                path=LEASE,
                hint="check what responds at this address",
            ) from None


@dataclass(frozen=True, slots=True)
class Seen:
    """The object as last seen: its terms and ETag."""

    terms: Terms
    etag: str


def read_lease(store: Store) -> Seen | None:
    """The current lease; None if there is none yet. Raises StoreError."""
    try:
        stored, etag = store.get_tagged(LEASE)
    except ObjectMissingError:
        return None
    return Seen(Terms.decode(stored), etag)


def new_terms(seen: Seen | None, length_s: float, *, in_store: bool) -> Terms:
    """The terms for this process that follow those that were seen."""
    return Terms(
        1 if seen is None else seen.terms.epoch + 1,
        secrets.token_hex(16),
        f"process {os.getpid()} on {socket.gethostname()}",
        length_s,
        in_store=in_store,
    )


class LeaseWatch:
    """Watches whether another holder's lease is renewed. Not thread-safe."""

    def __init__(self, store: Store, clock: Callable[[], float] = now_s) -> None:
        self._store, self._clock = store, clock
        self._since = 0.0
        self.seen: Seen | None = None

    def is_free(self) -> bool:
        """Check once. Returns whether the lease may be taken: it was released, or not renewed for its whole length."""
        before = self._clock()  # the seen object may have been put from here on
        found = read_lease(self._store)
        if found is None or self.seen is None or found.etag != self.seen.etag:
            self._since = self._clock()
        self.seen = found
        return found is None or found.terms.released or before - self._since > found.terms.length_s


class Lease:
    """A held lease. Thread-safe."""

    def __init__(self, store: Store, seen: Seen | None, terms: Terms, clock: Callable[[], float] = now_s) -> None:
        """Acquire the lease, replacing `seen`. Raises ObjectConflictError if another process was faster; StoreError."""
        self._store, self._clock, self._lock = store, clock, Lock()
        began = clock()
        if seen is None:
            etag = store.put(LEASE, terms.encode(), create=True)
        else:
            etag = store.put(LEASE, terms.encode(), etag=seen.etag)
        self._seen = Seen(terms, etag)
        self.until = began + terms.length_s
        """Time, by the clock, until which nobody else can take the lease."""
        self._lost: FencedError | None = None

    @property
    def terms(self) -> Terms:
        """The terms of the last renewal."""
        return self._seen.terms

    @property
    def left_s(self) -> float:
        """Seconds left until then."""
        return self.until - self._clock()

    def renew(self, **changes: object) -> None:
        """Renew the lease, even if it has lapsed and nobody took it. Raises FencedError if somebody did; StoreError."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            began = self._clock()
            while True:
                terms = replace(self.terms, renewals=self.terms.renewals + 1, **changes)  # type: ignore[arg-type]
                try:
                    etag = self._store.put(LEASE, terms.encode(), etag=self._seen.etag)
                    break
                except ObjectConflictError:
                    found = read_lease(self._store)
                    if found is None or found.terms.run != terms.run or found.etag == self._seen.etag:
                        self._lost = fenced(self._store.address)
                        raise self._lost from None
                    self._seen = found  # an earlier renewal, whose response was lost
            self._seen = Seen(terms, etag)
            self.until = began + terms.length_s

    def release(self) -> None:
        """Give the lease back, once all acknowledged data is in the store. Raises as `renew`."""
        self.renew(released=True)


def fenced(address: str) -> FencedError:
    """The error for a writer whose catalog another one took over."""
    return FencedError(
        "another writer has taken over this catalog in its store; this one refuses appends",
        path=address,
        hint="send events to the new writer; copy the catalog into a new directory with `aggregator restore`",
    )
