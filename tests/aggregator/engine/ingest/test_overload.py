"""More load than sealing can handle is refused immediately; no acknowledged event is lost, no refused one is kept."""

from __future__ import annotations

import contextlib
import os
import threading
import time

import pytest
from crash_image import crash_image

import aggregator
from aggregator.engine.seal import sealer as sealing_module
from aggregator.engine.seal.choice import Load, choose_to_seal, sealed_at_once
from aggregator.engine.upkeep.upkeep import Upkeep
from aggregator.policy import Limits, Retention, Tuning
from esformat import InvalidEventError


def batch(number, size=1000):
    return [{"space": "a", "timestamp": number, "data": b"%06d" % number + b"x" * size}]


@pytest.fixture
def stuck(monkeypatch):
    """Sealing that waits until `open` is set, or fails while `failing` is set."""

    class Gate:
        def __init__(self):
            self.open = threading.Event()
            self.failing = False

    gate = Gate()
    real = sealing_module.write_segment

    def write(*args, **options):
        if gate.failing:
            raise OSError(28, "No space left on device")
        assert gate.open.wait(120)
        return real(*args, **options)

    monkeypatch.setattr(sealing_module, "write_segment", write)
    yield gate
    gate.open.set()


def fill(topic, most=10_000):
    """Append until refused. Returns the number of acknowledged events and the refusal."""
    for number in range(most):
        try:
            topic.append(batch(number))
        except aggregator.OverloadedError as error:
            return number, error
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize("limits", [{"memory_bytes": "256KiB"}, {"log_bytes": "256KiB"}])
def test_overload_and_recovery(tmp_path, stuck, limits):
    """Memory stays within budget, refusals are immediate and say when to retry, and the catalog recovers by itself."""
    with aggregator.open(tmp_path / "data", limits=limits) as catalog:
        topic = catalog.create_topic("t")
        kept, error = fill(topic)
        assert 100 < kept < 256
        assert 0 < error.retry_after_s <= 5
        began = time.monotonic()
        for number in range(20):
            with pytest.raises(aggregator.OverloadedError):
                topic.append(batch(10**6 + number))
        assert time.monotonic() - began < 60
        backend = catalog._backend
        assert backend.budget.held_bytes <= backend.limits.memory_bytes
        assert backend.log.size_bytes <= 256 << 10 or "log_bytes" not in limits
        assert topic.scan().count() == kept
        stuck.open.set()
        for _ in range(3000):
            try:
                receipt = topic.append(batch(kept))
                break
            except aggregator.OverloadedError:
                time.sleep(0.02)
        assert receipt.first == kept
        assert [event.timestamp for event in topic.scan()] == list(range(kept + 1))
    with aggregator.open(tmp_path / "data") as catalog:
        assert [event.timestamp for event in catalog.topic("t").scan()] == list(range(kept + 1))


@pytest.mark.parametrize("limits", [{"memory_bytes": "256KiB"}, {"log_bytes": "256KiB"}, {"disk_bytes": "1 MiB"}])
def test_a_known_batch_needs_no_room(tmp_path, stuck, limits):
    """A retry of a stored batch gets its receipt even if everything is full; other events under its key are refused."""
    with aggregator.open(tmp_path / "data", limits=limits) as catalog:
        topic = catalog.create_topic("t")
        first = topic.append(batch(0), producer="p", sequence=1)
        fill(topic)
        again = topic.append(batch(0), producer="p", sequence=1)
        assert (again.first, again.last, again.duplicate) == (first.first, first.last, True)
        with pytest.raises(aggregator.SequenceConflictError):
            topic.append(batch(1), producer="p", sequence=1)
        stuck.open.set()


def test_sealing_that_fails_is_tried_again(tmp_path, stuck):
    """On a full disk reads work, and appends until the budget is used; with room again, sealing succeeds."""
    stuck.failing = True
    stuck.open.set()
    with aggregator.open(tmp_path / "data", limits={"memory_bytes": "256KiB"}) as catalog:
        topic = catalog.create_topic("t", roll={"rows": 10})
        kept, _ = fill(topic)
        assert topic.scan().count() == kept
        deadline = time.monotonic() + 60
        while catalog._backend.scheduler.problem is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert "no space left" in catalog._backend.scheduler.problem.lower()
        stuck.failing = False
        deadline = time.monotonic() + 60
        while catalog._backend.budget.held_bytes and time.monotonic() < deadline:
            time.sleep(0.05)
        assert topic.append(batch(kept)).first == kept
        assert topic.scan().count() == kept + 1


def test_a_batch_larger_than_the_budget(tmp_path):
    """A batch larger than the budget can never be stored: the error says so instead of suggesting a retry."""
    with aggregator.open(tmp_path / "data", limits={"memory_bytes": "64KiB"}) as catalog:
        topic = catalog.create_topic("t")
        with pytest.raises(InvalidEventError, match="smaller"):
            topic.append(batch(1, size=100_000))
        assert topic.append(batch(1)).first == 0


def test_choice():
    """Partitions past a roll limit are sealed, the largest at half the memory, and those that pin a full log."""
    small = Load(1, 5, 100, 1000, 10, 1000, 10_000)
    rows = Load(2, 10, 100, 1000, 10, 1000, 10_000)
    size = Load(3, 5, 1000, 1000, 10, 1000, 10_000)
    limits = Limits(memory_bytes=10_000, log_bytes=1000)
    assert choose_to_seal([small, rows, size], limits, 0, 1000) == [2, 3]
    assert choose_to_seal([small], limits, 0, 10_999) == []
    assert choose_to_seal([small], limits, 0, 11_000) == [1]
    assert choose_to_seal([small], limits, 0, 999) == [1]
    large = [Load(number, 5, 900 + number, 1000, 10, 1000, 10_000) for number in range(8)]
    assert choose_to_seal(large, limits, 0, 1000) == [7, 6, 5]
    pin = Load(1, 5, 100, 1000, 10, 1000, 10_000, pins_log=True)
    assert choose_to_seal([pin, small], limits, 501, 1000) == [1]
    assert choose_to_seal([pin], limits, 500, 1000) == []
    assert choose_to_seal([small], limits, 0, 1000, 9_900) == []
    assert choose_to_seal([small], limits, 0, 1000, 9_901) == [1]


@pytest.mark.parametrize(
    ("keeps", "catalog_bytes", "partitions", "expected"),
    [
        (Retention(), None, 50, 1000),
        (Retention(bytes=5000), None, 1, 500),
        (Retention(bytes=5000), None, 5, 100),
        (Retention(bytes=50_000), 2000, 1, 200),
        (Retention(partition_bytes=5000), None, 50, 500),
        (Retention(partition_bytes=50_000, bytes=50_000), None, 1, 1000),
        (Retention(bytes=0), None, 1, 1),
        (Retention(partition_bytes=4000, partition_segments=5), None, 50, 800),
        (Retention(bytes=4000, segments=5), None, 50, 800),
        (Retention(partition_bytes=4000, partition_segments=0), None, 1, 1000),
        (Retention(partition_bytes=4000, partition_segments=10_000), None, 1, 400),
    ],
)
def test_sealed_at_once(keeps, catalog_bytes, partitions, expected):
    """A seal is a tenth of what retention keeps, so that little expires at a time, but never larger than without it."""
    assert sealed_at_once(1000, keeps, catalog_bytes, partitions) == expected


def test_sealed_at_once_where_segments_are_smaller():
    """A topic's limits count its smaller segments; a catalog's limits include the log."""
    assert sealed_at_once(1000, Retention(bytes=5000), None, 5, 2.5) == 250
    assert sealed_at_once(1000, Retention(partition_bytes=5000), None, 5, 1.5) == 750
    assert sealed_at_once(1000, Retention(bytes=50_000), 2000, 1, 4.0) == 200
    assert sealed_at_once(1000, Retention(bytes=50_000), None, 1, 4.0) == 1000


def test_a_topic_learns_how_small_its_segments_are(tmp_path):
    """If events compress well, more are sealed at a time, because retention counts the bytes of segments."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", retention={"bytes": 1_000_000})
        sealer, state = catalog._backend.sealer, catalog._backend.state.topics["t"]
        rows = [{"space": "s", "timestamp": number, "data": b"the same again and again"} for number in range(500)]
        topic.append(rows)
        assert sealer.roll_bytes(state) == 100_000
        for least, most in ((100_001, 250_000), (250_000, 325_000)):
            catalog.seal()
            topic.append(rows)
            assert least <= sealer.roll_bytes(state) <= most
        topic.append(rows, partition="another")
        assert sealer.roll_bytes(state) <= 325_000 // 2
        catalog.seal()
        topic.append([{"space": "s", "timestamp": 1, "data": os.urandom(20_000)} for _ in range(9)])
        catalog.seal()
        assert 50_000 <= sealer.roll_bytes(state) <= 60_000


def test_room_is_told_beforehand(tmp_path, stuck):
    """`check_room` refuses what an append would refuse, and reserves nothing."""
    with aggregator.open(tmp_path, limits={"memory_bytes": 50_000}) as catalog:
        topic = catalog.create_topic("t")
        for _ in range(3):
            catalog.check_room(40_000)
        topic.append(batch(1, 20_000))
        catalog.check_room(20_000)
        with pytest.raises(aggregator.OverloadedError) as refused:
            catalog.check_room(40_000)
        assert refused.value.retry_after_s > 0
        stuck.open.set()


def test_much_is_sealed_in_parts(tmp_path, monkeypatch):
    """A partition is sealed a few megabytes at a time, except for events that arrive meanwhile."""
    with aggregator.open(tmp_path / "data", tuning=Tuning(sealed_bytes=1)) as catalog:
        topic = catalog.create_topic("t")
        for number in range(5):
            topic.append([{"space": "a", "timestamp": number, "data": b"x" * 50_000}])
        real = sealing_module.write_segment

        def write(*arguments, **options):
            topic.append([{"space": "late", "timestamp": 9}])
            return real(*arguments, **options)

        monkeypatch.setattr(sealing_module, "write_segment", write)
        assert catalog.seal() == 5
        stats = topic.stats()
        assert (stats["segments"], stats["unsealed_rows"]) == (5, 5)
        assert (topic.scan(space="a").count(), topic.scan(space="late").count()) == (5, 5)


@contextlib.contextmanager
def full_log_all_sealed(catalog, monkeypatch, release):
    """Fill the log until an append is refused, then seal all, with `release` in place of deleting log files."""
    topic = catalog.create_topic("t", roll={"rows": 10**6})
    with monkeypatch.context() as patch:
        patch.setattr(catalog._backend.log, "release", release)
        patch.setattr("aggregator.engine.upkeep.scheduler.choose_to_seal", lambda *_: [])
        kept, _ = fill(topic)
        with contextlib.suppress(OSError):
            catalog.seal()
        assert catalog._backend.log.size_bytes > 200_000
        yield kept


def append_within(topic, seconds, number, size=1000):
    """Append until accepted."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return topic.append(batch(number, size))
        except aggregator.OverloadedError:
            assert time.monotonic() < deadline, "still refused"
            time.sleep(0.05)


@pytest.mark.usefixtures("quiet")
def test_a_crash_before_the_log_is_cut(tmp_path, monkeypatch):
    """After a crash, a log full of sealed events does not block appends, although nothing is left to seal."""
    with (
        aggregator.open(tmp_path / "data", limits={"log_bytes": "256KiB"}) as catalog,
        full_log_all_sealed(catalog, monkeypatch, lambda sealed: 0) as kept,
    ):
        crash_image(tmp_path / "data", tmp_path / "copy")
    with aggregator.open(tmp_path / "copy", limits={"log_bytes": "256KiB"}) as catalog:
        assert catalog.topic("t").append(batch(kept)).first == kept
        assert catalog.topic("t").scan().count() == kept + 1


def test_log_files_that_could_not_be_deleted(tmp_path, monkeypatch):
    """The deletion of log files is retried even if nothing is left to seal."""

    def fails(sealed):
        raise OSError(5, "Input/output error")

    with aggregator.open(tmp_path / "data", limits={"log_bytes": "256KiB"}) as catalog:
        with full_log_all_sealed(catalog, monkeypatch, fails) as kept:
            pass
        assert append_within(catalog.topic("t"), 60, kept).first == kept


def test_a_refusal_says_why_nothing_comes_free(tmp_path, stuck):
    """While sealing fails, a refusal says why and asks for a longer wait."""
    stuck.failing = True
    stuck.open.set()
    with aggregator.open(tmp_path / "data", limits={"log_bytes": "256KiB"}) as catalog:
        topic = catalog.create_topic("t")
        kept, error = fill(topic)
        assert error.retry_after_s < 0.5
        deadline = time.monotonic() + 60
        while "No space left" not in str(error) or error.retry_after_s < 0.5:
            assert time.monotonic() < deadline, error
            time.sleep(0.05)
            with pytest.raises(aggregator.OverloadedError) as refused:
                topic.append(batch(kept))
            error = refused.value
        assert "sealing partition '0' of topic 't' failed" in str(error)
        stuck.failing = False
        append_within(topic, 60, kept)
        while catalog.trouble is not None:
            assert time.monotonic() < deadline + 60
            time.sleep(0.05)


def test_upkeep_that_failed_once_is_no_trouble(tmp_path, monkeypatch):
    """A failure of upkeep is no longer reported once upkeep succeeds, even if nothing is sealed."""
    real, failures = Upkeep._retain_by_itself, [OSError(5, "Input/output error")]

    def retain(self):
        if failures:
            raise failures.pop()
        real(self)

    monkeypatch.setattr(Upkeep, "_retain_by_itself", retain)
    with aggregator.open(tmp_path / "data") as catalog:
        for wanted in (lambda trouble: trouble and "upkeep failed" in trouble, lambda trouble: trouble is None):
            deadline = time.monotonic() + 60
            while not wanted(catalog.trouble):
                assert time.monotonic() < deadline, catalog.trouble
                time.sleep(0.01)


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        ({"log_bytes": "256KiB"}, (30_000, 125_000, 125_000, 1, 125_000)),
        ({"memory_bytes": "256KiB"}, (120_000, 200_000, 60_000, 250_000)),
    ],
)
def test_large_batches_one_after_the_other(tmp_path, limits, sizes):
    """Any batch that fits the limit is accepted, even if the newest log file is as large and memory under half full."""
    with aggregator.open(tmp_path / "data", limits=limits) as catalog:
        topic = catalog.create_topic("t")
        for number, size in enumerate(sizes):
            append_within(topic, 60, number, size)
        assert topic.scan().count() == len(sizes)


def test_trouble_ends_with_a_seal_on_demand(tmp_path, stuck):
    """A seal on demand ends the trouble that failed background sealing left, even if nothing remains to seal."""
    stuck.failing = True
    stuck.open.set()
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 5})
        for number in range(5):
            topic.append(batch(number))
        deadline = time.monotonic() + 60
        while catalog.trouble is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stuck.failing = False
        catalog.seal()
        while catalog.trouble is not None:
            assert time.monotonic() < deadline, catalog.trouble
            time.sleep(0.01)
