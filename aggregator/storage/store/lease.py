"""The lease of a catalog in a store: which writer's turn it is, and from when on it may be another's.

One object, replaced by whoever saw it last (a conditional put). Each taking counts the epoch up; each renewal changes
the object. Nobody compares clocks: whoever wants the lease must have seen the same object for as long as it lasts, by
his own clock, and the holder gives up by his own, which began earlier. What makes a late writer harmless is not this
but the log (`shipped`): its next object is refused.
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
    """What the object says.

    run: no two takings have the same. holder: for people. address: where the holder serves. in_store: whether what it
    acknowledges is in the store. released: it was given back, with everything that was acknowledged in the store.
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
                f"the lease in the store cannot be read: {error}", path=LEASE, hint="look what answers at its address"
            ) from None


@dataclass(frozen=True, slots=True)
class Seen:
    """The object as it was seen: its terms and ETag."""

    terms: Terms
    etag: str


def look(store: Store) -> Seen | None:
    """The lease as it is; None where there is none yet. Raises StoreError."""
    try:
        stored, etag = store.get_tagged(LEASE)
    except ObjectMissingError:
        return None
    return Seen(Terms.decode(stored), etag)


def new_terms(seen: Seen | None, length_s: float, *, in_store: bool, run: str | None = None) -> Terms:
    """The terms that follow those that were seen, for this process."""
    return Terms(
        1 if seen is None else seen.terms.epoch + 1,
        run or secrets.token_hex(16),
        f"process {os.getpid()} on {socket.gethostname()}",
        length_s,
        in_store=in_store,
    )


class LeaseWatch:
    """Watches whether a lease of another is renewed. Not safe to share between threads."""

    def __init__(self, store: Store, clock: Callable[[], float] = now_s) -> None:
        self._store, self._clock = store, clock
        self._since = 0.0
        self.seen: Seen | None = None

    def look(self) -> bool:
        """Look once; whether the lease may be taken: it was given back, or not renewed for as long as it lasts."""
        before = self._clock()  # what is seen may have been put from here on
        found = look(self._store)
        if found is None or self.seen is None or found.etag != self.seen.etag:
            self._since = self._clock()
        self.seen = found
        return found is None or found.terms.released or before - self._since > found.terms.length_s


class Lease:
    """The lease, held. Safe to share between threads."""

    def __init__(self, store: Store, seen: Seen | None, terms: Terms, clock: Callable[[], float] = now_s) -> None:
        """Take it. seen: what it is to follow. Raises ObjectConflictError where somebody was quicker; StoreError."""
        self._store, self._clock, self._lock = store, clock, Lock()
        began = clock()
        if seen is None:
            etag = store.put(LEASE, terms.encode(), create=True)
        else:
            etag = store.put(LEASE, terms.encode(), etag=seen.etag)
        self._seen = Seen(terms, etag)
        self.until = began + terms.length_s
        """Until when it is certain that nobody else takes it, by the clock."""
        self._lost: FencedError | None = None

    @property
    def terms(self) -> Terms:
        """As they were renewed last."""
        return self._seen.terms

    @property
    def left_s(self) -> float:
        """For how long that is, from now on."""
        return self.until - self._clock()

    def renew(self, **changes: object) -> None:
        """Renew it, also where it has lapsed and nobody took it. Raises FencedError where somebody did; StoreError."""
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
                    found = look(self._store)
                    if found is None or found.terms.run != terms.run or found.etag == self._seen.etag:
                        self._lost = fenced(self._store.address)
                        raise self._lost from None
                    self._seen = found  # an earlier renewal, whose answer was lost
            self._seen = Seen(terms, etag)
            self.until = began + terms.length_s

    def release(self) -> None:
        """Give it back: everything that was acknowledged is in the store. Raises as `renew`."""
        self.renew(released=True)


def fenced(address: str) -> FencedError:
    """What a writer is told whose catalog another one took over."""
    return FencedError(
        "another writer has taken this catalog over in its store; nothing more is taken in here",
        path=address,
        hint="send events to the new one; `aggregator restore` makes a copy of the catalog in a directory of its own",
    )
