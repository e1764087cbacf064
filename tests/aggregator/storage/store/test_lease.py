"""The lease of a catalog in a store: one holder, who knows by its own clock when it has expired."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aggregator.errors import FencedError, ObjectConflictError, StoreError
from aggregator.storage.store.client import Store
from aggregator.storage.store.lease import Lease, LeaseWatch, Terms, new_terms, read_lease

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """Seconds, advanced by tests."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri())


def taken(store: Store, clock: Clock, *, length_s: float = 10.0, in_store: bool = False) -> Lease:
    seen = read_lease(store)
    return Lease(store, seen, new_terms(seen, length_s, in_store=in_store), clock)


def test_each_taking_has_an_epoch_of_its_own(store: Store):
    """Each lease has the next epoch and another run; renewals change neither."""
    first = taken(store, Clock())
    first.renew()
    second = taken(store, Clock())
    assert (first.terms.epoch, second.terms.epoch) == (1, 2)
    assert first.terms.run != second.terms.run
    assert first.terms.renewals == 1
    seen = read_lease(store)
    assert seen is not None
    assert seen.terms == second.terms


def test_who_was_quicker_has_it(store: Store):
    """Of two that saw the same lease, the second is refused."""
    for seen in (None, read_lease(store)):
        terms = [new_terms(seen, 10, in_store=False) for _ in range(2)]
        Lease(store, seen, terms[0])
        with pytest.raises(ObjectConflictError):
            Lease(store, seen, terms[1])
        store.delete(["lease.json"])


def test_the_old_holder_is_told(store: Store):
    """The former holder gets FencedError on every renewal, whatever its clock shows."""
    old = taken(store, Clock())
    taken(store, Clock())
    for _ in range(2):
        with pytest.raises(FencedError, match="taken over this catalog"):
            old.renew()
    with pytest.raises(FencedError):
        old.release()


def test_the_holder_counts_from_before_it_asked(store: Store):
    """The holder counts from before its request, so that its time ends no later than a watcher's."""
    clock = Clock(100)
    lease = taken(store, clock)
    clock.now += 9
    assert lease.left_s == 1
    clock.now += 2
    assert lease.left_s == -1
    lease.renew()  # nobody else took it
    assert lease.left_s == 10


def test_it_lapses_by_the_clock_of_who_watches(store: Store):
    """For a watcher, a lease expires once it was unchanged for its duration, by the watcher's own clock."""
    lease = taken(store, Clock(10_000_000))
    clock = Clock()
    watch = LeaseWatch(store, clock)
    assert not watch.is_free()
    clock.now = 10
    assert not watch.is_free()
    lease.renew()
    clock.now = 15
    assert not watch.is_free()
    clock.now = 25
    assert not watch.is_free()
    clock.now = 25.1
    assert watch.is_free()


def test_what_was_given_back_is_free_at_once(store: Store):
    """A released lease is free immediately, and so is one that nobody ever held."""
    assert LeaseWatch(store).is_free()
    lease = taken(store, Clock())
    assert not LeaseWatch(store).is_free()
    lease.release()
    assert LeaseWatch(store).is_free()


def test_terms_that_cannot_be_read(store: Store):
    """Unreadable terms raise StoreError and are not taken for a free lease."""
    for stored in (b"", b"{}", b"[1]", b"\xff"):
        with pytest.raises(StoreError, match="cannot be read"):
            Terms.decode(stored)
    store.put("lease.json", b"nonsense")
    with pytest.raises(StoreError, match="cannot be read"):
        LeaseWatch(store).is_free()


def test_an_answer_that_was_lost(store: Store):
    """A renewal whose answer was lost is recognised as the holder's own, and later renewals work."""
    lease = taken(store, Clock())
    seen = read_lease(store)
    assert seen is not None
    etag = store.put("lease.json", replace(seen.terms, renewals=1).encode(), etag=seen.etag)
    lease.renew(in_store=True)
    found = read_lease(store)
    assert found is not None
    assert found.terms.in_store
    assert found.etag != etag
    lease.release()
