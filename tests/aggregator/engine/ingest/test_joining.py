"""Small batches that wait for the same log group are written as one frame; nothing but speed shows it."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from waiting import until

import aggregator
from aggregator.errors import LogFailedError, OverloadedError
from aggregator.storage.log import log as log_module
from aggregator.storage.log.entry import Action
from esformat import EsdbError, InvalidEventError

COLUMNS = pa.schema({"space": pa.string(), "timestamp": pa.timestamp("us", "UTC"), "data": pa.binary()})


def batch(number, rows=1, space="a", data=b"x"):
    """Events whose times start at a number."""
    times = pa.array(range(number, number + rows), pa.timestamp("us", "UTC"))
    return pa.record_batch([pa.array([space] * rows), times, pa.array([data] * rows, pa.binary())], schema=COLUMNS)


@pytest.fixture
def catalog(tmp_path, quiet):
    with aggregator.open(tmp_path / "data") as catalog:
        yield catalog


def begun(catalog, data=b"x"):
    """A topic that knows the columns, so that further batches are joined. It has one event twice."""
    topic = catalog.create_topic("t")
    topic.append(batch(0, data=data))
    topic.append(batch(0, data=data))
    return topic


def together(catalog, appends):
    """Run all appends while the log's leader is busy, so that one group takes them. Returns each result or error."""
    log = catalog._backend.log
    leading, go = threading.Event(), threading.Event()

    def wait():
        leading.set()
        assert go.wait(60)

    def outcome(append):
        try:
            return append()
        except EsdbError as error:
            return error

    with ThreadPoolExecutor(len(appends) + 1) as pool:
        first = pool.submit(log.append, Action(wait))
        assert leading.wait(60)
        waiting = []
        for place, append in enumerate(appends):  # one after the other, so that their order is known
            waiting.append(pool.submit(outcome, append))
            until(lambda: len(log._queue) + sum(each.done() for each in waiting) > place)  # noqa: B023
        go.set()
        first.result()
        return [each.result() for each in waiting]


def frames(catalog):
    """The number of rows of each unsealed batch, one batch for each frame of the log."""
    (topic,) = catalog._backend.state.topics.values()
    return [batch.rows for partition in topic.partitions.values() for batch in partition.memtable.batches]


def test_one_frame_for_all(catalog):
    """Each joined batch has its own record indexes and is found under them, before and after a crash."""
    topic = begun(catalog)
    receipts = together(catalog, [lambda n=n: topic.append(batch(100 * n, rows=n)) for n in range(1, 6)])
    assert frames(catalog) == [1, 1, 15]
    assert [(each.first, each.last) for each in receipts] == [(2, 2), (3, 4), (5, 7), (8, 11), (12, 16)]
    expected = [0, 0] + [100 * n + row for n in range(1, 6) for row in range(n)]
    assert topic.scan().to_table()["timestamp"].cast(pa.int64()).to_pylist() == expected
    assert topic.stats()["rows"] == 17


def test_after_a_crash(tmp_path, quiet):
    """Joined batches are read back from the log with the same record indexes."""
    catalog = aggregator.open(tmp_path / "data")
    topic = begun(catalog)
    together(catalog, [lambda n=n: topic.append(batch(n)) for n in range(1, 9)])
    log = catalog._backend.log
    log.close()  # no event is sealed meanwhile
    with contextlib.suppress(EsdbError):
        catalog.close()
    with aggregator.open(tmp_path / "data") as again:
        assert [event.timestamp for event in again.topic("t").scan()] == [0, *range(9)]
        assert again.topic("t").append(batch(9)).first == 10
        again.seal()
        assert [event.timestamp for event in again.topic("t").scan()] == [0, *range(10)]


def test_one_that_is_refused(catalog):
    """A refused batch gets its own error with its own row number; the others are stored."""
    topic = begun(catalog)
    outcomes = together(
        catalog,
        [lambda: topic.append(batch(1)), lambda: topic.append(batch(2, space=None)), lambda: topic.append(batch(3))],
    )
    assert [outcomes[0].first, outcomes[2].first] == [2, 3]
    assert isinstance(outcomes[1], InvalidEventError)
    assert "row 0" in str(outcomes[1])
    assert [event.timestamp for event in topic.scan()] == [0, 0, 1, 3]
    (partition,) = catalog._backend.state.topics["t"].partitions.values()
    assert catalog._backend.budget.held_bytes == partition.memtable.size_bytes


def test_what_does_not_go_together(catalog):
    """Batches with other columns, other partitions or a producer, and large ones, get separate frames."""
    topic = catalog.create_topic("t")
    other = pa.record_batch({"space": ["a"], "timestamp": [9], "user": ["u"]})
    topic.append(batch(0))
    topic.append(batch(0), partition="p")
    topic.append(other)
    topic.append(other)
    topic.append(batch(0))
    together(
        catalog,
        [
            lambda: topic.append(batch(1)),
            lambda: topic.append(batch(2), partition="p"),
            lambda: topic.append(other),
            lambda: topic.append(batch(3), producer="me", sequence=1),
            lambda: topic.append(batch(4, data=b"x" * 40_000)),
            lambda: topic.append(batch(5, rows=65)),
            lambda: topic.append(batch(6)),
        ],
    )
    assert sorted(frames(catalog)) == [1] * 9 + [2, 65]
    assert topic.scan().count() == 5 + 71
    assert topic.append(batch(3), producer="me", sequence=1).duplicate


def test_notes_on_columns(catalog):
    """Batches whose columns differ only in metadata are joined."""

    def noted(time):
        plain = batch(time)
        fields = [field.with_metadata({"made": str(time)}) for field in plain.schema]
        return pa.RecordBatch.from_arrays(plain.columns, schema=pa.schema(fields, metadata={"by": str(time)}))

    topic = begun(catalog)
    outcomes = together(catalog, [lambda n=n: topic.append(noted(n) if n % 2 else batch(n)) for n in range(1, 5)])
    assert sorted(each.first for each in outcomes) == [2, 3, 4, 5]
    assert frames(catalog) == [1, 1, 4]


def test_no_room_for_all(tmp_path, quiet):
    """Batches that still have room are stored, others are refused; memory is reserved only for stored ones."""
    with aggregator.open(tmp_path / "data", limits={"memory_bytes": "64KiB"}) as catalog:
        data = b"x" * 10_000
        topic = begun(catalog, data)
        outcomes = together(catalog, [lambda n=n: topic.append(batch(n, data=data)) for n in range(1, 6)])
        refused = [each for each in outcomes if isinstance(each, OverloadedError)]
        assert 1 <= len(refused) < 5
        assert len(refused) + topic.scan().count() == 7
        budget = catalog._backend.budget
        assert 0 < budget.held_bytes <= budget.limit_bytes
        catalog.seal()
        assert budget.held_bytes == 0


def test_a_write_that_fails(catalog, monkeypatch):
    """If the write fails, none of the joined batches is kept, each gets the error, and their memory is released."""
    topic = begun(catalog)
    held = catalog._backend.budget.held_bytes

    def fail(self, buffers, end):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(log_module.Log, "_commit", fail)
        outcomes = together(catalog, [lambda n=n: topic.append(batch(n)) for n in range(1, 5)])
    assert all(isinstance(each, LogFailedError) for each in outcomes)
    assert catalog._backend.budget.held_bytes == held
    assert topic.append(batch(9)).first == 2
    assert [event.timestamp for event in topic.scan()] == [0, 0, 9]


def test_arrays_that_are_not_sound(catalog):
    """Unsound arrays are checked before joining: they get the same error as alone, and the others separate frames."""

    def coded(time, *places):
        """Events whose spaces are indexes into a dictionary of two."""
        spaces = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), ["a", "b"], safe=False)
        times = pa.array([time] * len(places), pa.timestamp("us", "UTC"))
        return pa.record_batch({"space": spaces, "timestamp": times})

    topic = catalog.create_topic("t")
    topic.append(coded(0, 0))
    topic.append(coded(0, 0))
    broken = coded(2, 0, 1 << 28)
    with pytest.raises(InvalidEventError, match="broken") as alone:
        topic.append(broken)
    outcomes = together(
        catalog, [lambda: topic.append(coded(1, 1)), lambda: topic.append(broken), lambda: topic.append(coded(3, 0))]
    )
    assert str(outcomes[1]) == str(alone.value)
    assert frames(catalog) == [1, 1, 1, 1]
    assert [(event.space, event.timestamp) for event in topic.scan()] == [("a", 0), ("a", 0), ("b", 1), ("a", 3)]


def test_many_threads(tmp_path):
    """Single events from many threads are each stored once, in each thread's order, at the returned index."""
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 500})

        def work(thread):
            own = [(thread * 1000 + number, topic.append(batch(thread * 1000 + number))) for number in range(100)]
            assert [receipt.first for _, receipt in own] == sorted(receipt.first for _, receipt in own)
            return own

        with ThreadPoolExecutor(16) as pool:
            told = [each for own in pool.map(work, range(16)) for each in own]
        indexes = {receipt.first: time for time, receipt in told}
        assert sorted(indexes) == list(range(1600))
        catalog.seal()
        found = topic.scan(columns=["timestamp", "record_index"]).to_table()
        times = found["timestamp"].cast(pa.int64()).to_pylist()
        assert dict(zip(found["record_index"].to_pylist(), times, strict=True)) == indexes
