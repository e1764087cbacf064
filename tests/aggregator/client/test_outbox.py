"""The queue of unsent events, its batches, and what happens when it is full: without threads, clock or server."""

from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator import InvalidRequestError, OverloadedError
from aggregator.client import Sizing, WriteFailedError
from aggregator.client.http.calls import events_table
from aggregator.client.writing.backlog import Backlog
from aggregator.client.writing.outbox import Outbox
from aggregator.client.writing.producer_pool import ProducerPool
from esformat import UsageError


def row(number):
    return {"space": "s", "timestamp": number, "data": b"%d" % number}


def table(first, count):
    return events_table([row(number) for number in range(first, first + count)])


@given(
    st.lists(st.one_of(st.just(None), st.integers(1, 30)), max_size=30),
    st.lists(st.tuples(st.integers(1, 25), st.integers(1, 3000)), min_size=1, max_size=5),
)
def test_everything_goes_in_order(added, limits):
    """Rows and tables leave in the order they were added, each once, in batches within the limits."""
    backlog, number = Backlog(), 0
    for size in added:
        if size is None:
            backlog.add_row(row(number), 100, 0.0)
            number += 1
        else:
            backlog.add_table(table(number, size), 0.0)
            number += size
    assert backlog.end == number
    found = []
    while backlog.count:
        max_rows, max_bytes = limits[len(found) % len(limits)]
        batch = backlog.take(max_rows, max_bytes)
        assert 1 <= batch.count <= max_rows
        assert batch.size_bytes <= max_bytes or batch.count == 1
        assert batch.start == len(found)
        times = batch.table(events_table)["timestamp"].to_pylist()
        if batch.count > 1:
            halves = batch.halves()
            assert [t for half in halves for t in half.table(events_table)["timestamp"].to_pylist()] == times
            assert halves[1].start == batch.start + halves[0].count
        found += times
    assert found == list(range(number))
    assert backlog.size_bytes == 0


def test_tables_of_other_columns_go_alone():
    """Only tables with the same columns share a batch."""
    backlog = Backlog()
    backlog.add_table(table(0, 3), 0.0)
    backlog.add_table(table(3, 3), 0.0)
    backlog.add_table(table(6, 3).append_column("type", pa.array(["a"] * 3)), 0.0)
    assert [backlog.take(100, 10_000).count for _ in range(2)] == [6, 3]


def outbox(**changed):
    options = {"queue_bytes": 1000, "linger_s": 0.5, "when_full": "refuse"} | changed
    return Outbox(Sizing(min_rows=10, max_rows=40), **options)


def fill(box, count, size=10, now=0.0):
    for number in range(count):
        assert box.make_room(size, 1)
        box.add_row(row(number), size, now)


def test_when_a_batch_is_due():
    """A batch is due if it is full, if its oldest event waited long enough, or on request."""
    box = outbox()
    assert box.due_s(0.0) is None
    fill(box, 9)
    assert box.due_s(0.2) == pytest.approx(0.3)
    fill(box, 1)
    assert box.due_s(0.2) == 0
    box = outbox()
    fill(box, 1)
    box.hurry()
    assert box.due_s(0.0) == 0
    assert box.take().count == 1


def test_settled():
    """An event is settled when all before it are; batches may be settled in any order."""
    box = outbox()
    fill(box, 25)
    end = box.hurry()
    first, second, third = box.take(), box.take(), box.take()
    assert [each.count for each in (first, second, third)] == [10, 10, 5]
    for batch, settled in ((third, False), (first, False), (second, True)):
        box.settle(batch)
        assert box.is_settled(end) is settled
    assert box.held_bytes == 0


def test_a_full_queue_refuses():
    """A full queue refuses, counting events in flight, and keeps nothing of what it refused."""
    box = outbox()
    fill(box, 100)
    batch = box.take()
    with pytest.raises(OverloadedError) as caught:
        box.make_room(10, 1)
    assert caught.value.retry_after_s > 0
    box.settle(batch)
    fill(box, 10)
    assert (box.waiting, box.dropped) == (100, 0)


@pytest.mark.parametrize(("policy", "left"), [("drop_oldest", range(7, 107)), ("drop_newest", range(100))])
def test_a_full_queue_drops(policy, left):
    """A full queue drops the oldest or the newest events and counts them."""
    box = outbox(when_full=policy)
    for number in range(107):
        if box.make_room(10, 1):
            box.add_row(row(number), 10, 0.0)
    assert box.dropped == 7
    found = []
    while box.waiting:
        found += box.take().table(events_table)["timestamp"].to_pylist()
    assert found == list(left)


@pytest.mark.parametrize("batches", [0, 3])
def test_dropping_costs_the_same_however_much_waits(batches):
    """Dropping copies none of the events that stay, so its cost does not depend on the length of the queue."""
    box = Outbox(Sizing(min_rows=10_000, max_rows=10_000), queue_bytes=500_000, linger_s=0, when_full="drop_oldest")
    fill(box, 50_000)
    for _ in range(batches):
        box.take()
    fill(box, 1)
    tracemalloc.start()
    fill(box, 300)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (box.dropped, box.held_bytes) == (301, 500_000)
    assert peak < 200_000  # the 300 rows take most of the time


def test_what_nobody_waits_for_any_more():
    """Abandoned batches are reported with the key they were sent under; their later outcome changes nothing."""
    box = outbox()
    fill(box, 30)
    first, second = box.take(), box.take()
    halves = first.halves()
    box.settle(first, halves)
    halves[0].key, second.key = ("p", 1), ("q", 2)
    box.acknowledge(halves[0], took_s=0, refusals=0)
    box.settle(halves[0])
    box.abandon(UsageError("closed"))
    box.acknowledge(second, took_s=0, refusals=0)
    box.refused(halves[1], UsageError("no"))
    for batch in (halves[1], second):
        box.settle(batch, batch.halves())
    with pytest.raises(WriteFailedError) as caught:
        box.raise_failures()
    told = [(len(each.events), each.producer, each.sequence) for each in caught.value.unsent]
    assert told == [(5, None, None), (10, "q", 2)]
    assert (box.acknowledged, box.held_bytes, box.waiting) == (5, 100, 10)


def test_failures_are_told_once():
    """Failures are raised once, with their events, so that nothing is lost."""
    box = outbox()
    fill(box, 12)
    batch = box.take()
    batch.key = ("p", 3)
    box.refused(batch, UsageError("no"))
    box.settle(batch)
    box.give_up(UsageError("closed"))
    with pytest.raises(WriteFailedError, match="12 events") as caught:
        box.raise_failures()
    assert [len(each.events) for each in caught.value.unsent] == [10, 2]
    assert (caught.value.unsent[0].producer, caught.value.unsent[0].sequence) == ("p", 3)
    box.raise_failures()


SIZES = [
    ({"sent": 100, "took_s": 0.1, "refusals": 0, "waiting": 500}, 200),
    ({"sent": 100, "took_s": 0.1, "refusals": 0, "waiting": 5}, 100),
    ({"sent": 30, "took_s": 0.1, "refusals": 0, "waiting": 500}, 100),
    ({"sent": 100, "took_s": 0.1, "refusals": 2, "waiting": 500}, 50),
    ({"sent": 100, "took_s": 0.9, "refusals": 0, "waiting": 500}, 75),
]


@pytest.mark.parametrize(("went", "wanted"), SIZES)
def test_sizes_adapt(went, wanted):
    """Batches grow while events pile up and shrink if the server is busy or slow, within bounds."""
    assert Sizing(min_rows=10, max_rows=1000).next_rows(100, **went) == wanted
    assert Sizing(min_rows=100, max_rows=100).next_rows(100, **went) == 100


def test_wrong_options():
    """Wrong options are refused by the constructor."""
    for options in ({"min_rows": 0}, {"min_rows": 10, "max_rows": 9}, {"target_s": 0}):
        with pytest.raises(InvalidRequestError):
            Sizing(**options)
    for options in ({"when_full": "cry"}, {"queue_bytes": 0}, {"linger_s": -1}):
        with pytest.raises(InvalidRequestError):
            outbox(**options)


def test_lanes():
    """Concurrent calls get different producers; each producer's sequence increases, and no number is used twice."""
    producers = ProducerPool("me")
    with producers.borrow() as first, producers.borrow() as second:
        pass
    with producers.borrow() as third, producers.borrow() as fourth:
        pass
    assert {first, second} == {("me-0", 0), ("me-1", 0)}
    assert {third, fourth} == {("me-0", 1), ("me-1", 1)}
    with ProducerPool().borrow() as one, ProducerPool().borrow() as other:
        assert one[0] != other[0]
