"""A limit of bytes holds at every moment: appends that could break it are refused, and merges do not begin."""

from __future__ import annotations

import os
import threading
import time

import pyarrow as pa
import pytest

import aggregator
from aggregator import sealing as sealing_module
from aggregator.housekeeping import Housekeeping
from esformat import InvalidEventError

LIMIT = 2_000_000
ROWS, SIZE = 100, 200
LIMITS = [({"max_bytes": LIMIT}, None), (None, {"bytes": LIMIT})]
PATIENCE_S = 60


def events(first, rows=ROWS, size=SIZE):
    data = pa.array([os.urandom(size) for _ in range(rows)])
    return pa.table(
        {"space": [f"s{n % 7}" for n in range(rows)], "timestamp": range(first, first + rows), "data": data}
    )


def disk_bytes(root):
    """What the files take, those that vanish meanwhile left out."""
    total = 0
    for path in root.rglob("*"):
        try:
            total += path.stat().st_size * path.is_file()
        except FileNotFoundError:
            continue
    return total


def fill(topic, first=0, most=1000, **shape):
    """Append until refused: where the next event would go on, and the refusal."""
    for number in range(most):
        try:
            topic.append(events(first, **shape), partition=str(number % 2))
        except aggregator.OverloadedError as error:
            return first, error
        first += shape.get("rows", ROWS)
    raise AssertionError("nothing was refused")


def patiently(append):
    """Append as the refusals' hints say."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            return append()
        except aggregator.OverloadedError as error:
            refusal = error
            time.sleep(error.retry_after_s)
    raise refusal


@pytest.fixture
def held(monkeypatch):
    """Retention does nothing by itself until `held.set()`."""
    gate = threading.Event()
    real = Housekeeping._retain_by_itself
    monkeypatch.setattr(Housekeeping, "_retain_by_itself", lambda self: real(self) if gate.is_set() else None)
    return gate


@pytest.mark.parametrize(("limits", "retention"), LIMITS, ids=["catalog", "topic"])
def test_refused_until_retention_has_caught_up(tmp_path, held, limits, retention):
    """However far retention is behind, the disk holds no more than the promise; then all goes on by itself."""
    root = tmp_path / "data"
    with aggregator.open(root, limits=limits, durability="none") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 500}, retention=retention)
        largest, first, refused = 0, 0, None
        for _ in range(500):
            at_rest = refused is not None
            if at_rest:
                catalog.seal()
            try:
                topic.append(events(first), partition=str(first % 2))
                first, refused = first + ROWS, None
            except aggregator.OverloadedError as error:
                refused = error
            largest = max(largest, disk_bytes(root if limits else root / "segments"))
            if at_rest and refused is not None:  # and that with nothing left to seal
                break
        assert 0.9 * LIMIT <= largest <= 1.1 * LIMIT
        assert f"max_bytes is {LIMIT:,}" in str(refused)
        assert 0 < refused.retry_after_s <= 1
        kept = topic.scan().count()
        assert kept == first  # nothing acknowledged went, nothing refused stayed
        held.set()
        for number in range(40):
            patiently(lambda number=number: topic.append(events(first + number * ROWS), partition="0"))
        assert 0 < topic.scan().count() < kept + 40 * ROWS
        assert catalog.stats()["background"] is None


@pytest.mark.parametrize(("limits", "retention"), LIMITS, ids=["catalog", "topic"])
def test_room_for_a_batch_that_is_a_large_part_of_the_limit(tmp_path, limits, retention):
    """Retention is told how much is wanted: below the limit nothing would be too much, and the batch not fit."""
    with aggregator.open(tmp_path / "data", limits=limits, durability="none") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 100}, retention=retention)
        for number in range(12):
            patiently(lambda number=number: topic.append(events(number * 1000, rows=1000)))
        assert topic.scan().count() < 12_000


@pytest.mark.parametrize(("limits", "retention"), LIMITS, ids=["catalog", "topic"])
def test_a_scan_that_stays_open(tmp_path, limits, retention):
    """Its files cannot go: the refusal says so, retention does not go on for its sake, and all goes on after it."""
    with aggregator.open(tmp_path / "data", limits=limits, durability="none") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 200}, retention=retention)
        for number in range(60):
            patiently(lambda number=number: topic.append(events(number * ROWS)))
        catalog.seal()
        scan = topic.scan().batches()
        next(scan)
        deadline = time.monotonic() + PATIENCE_S
        refusal = ""
        while "scans that are open" not in refusal:
            assert time.monotonic() < deadline, refusal
            try:
                topic.append(events(10**6))
            except aggregator.OverloadedError as error:
                refusal = str(error)
                time.sleep(0.01)
        assert "open scans still read" in refusal
        assert topic.scan().count() * SIZE > LIMIT / 4
        del scan
        patiently(lambda: topic.append(events(10**6)))


@pytest.mark.usefixtures("held")
def test_merges_wait_for_room(tmp_path, monkeypatch):
    """Where the merged segment has no room beside the others, asking for it does nothing and ends."""
    monkeypatch.setattr(Housekeeping, "_compact_by_itself", lambda _: None)
    root = tmp_path / "data"
    with aggregator.open(root, durability="none") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 100})
        for number in range(60):
            topic.append(events(number * ROWS))
            catalog.seal()
    aggregator.open(root, durability="none").close()  # which deletes the log of what is sealed
    limit = int(disk_bytes(root) / 1.07)
    with aggregator.open(root, limits={"max_bytes": limit}) as catalog:
        assert catalog.compact().merged == 0
        assert catalog.topic("t").scan().count() == 60 * ROWS
    with aggregator.open(root, limits={"max_bytes": 2 * limit}) as catalog:
        assert catalog.compact().merged > 0
        assert catalog.topic("t").scan().count() == 60 * ROWS


def test_limits_that_can_never_do(tmp_path):
    """Smaller than the manifest, or than the batch: an error at once that is none of the load."""
    with pytest.raises(aggregator.InvalidRequestError, match="at least"):
        aggregator.open(tmp_path / "data", limits={"max_bytes": 100_000})
    with aggregator.open(tmp_path / "data", limits={"max_bytes": 1 << 20}) as catalog:
        topic = catalog.create_topic("t", retention={"bytes": 20_000})
        with pytest.raises(InvalidEventError, match="keeps"):
            topic.append(events(0))
        patiently(lambda: topic.append(events(0, rows=10)))
        with pytest.raises(InvalidEventError, match="smaller"):
            catalog.create_topic("other").append(events(0, rows=1000))


def test_counts_are_those_of_the_disk(tmp_path, monkeypatch):
    """Whatever was refused, failed, sealed, merged, erased and removed: what is counted is what is there."""
    root = tmp_path / "data"
    failing = threading.Event()
    real = sealing_module.write_segment

    def write(*args, **options):
        if failing.is_set():
            raise OSError(28, "No space left on device")
        return real(*args, **options)

    monkeypatch.setattr(sealing_module, "write_segment", write)
    with aggregator.open(root, limits={"max_bytes": LIMIT, "memory_bytes": "300 KiB"}, durability="none") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 300})
        failing.set()
        first, _ = fill(topic)
        footprint = catalog._backend.footprint
        assert footprint.coming(topic._topic) == footprint.coming() > first * SIZE
        failing.clear()
        for number in range(60):
            again = events(first + number * ROWS)
            patiently(lambda number=number, again=again: topic.append(again, producer="p", sequence=number))
        assert topic.append(again, producer="p", sequence=59).duplicate
        topic.erase("s3")
        catalog.seal()
        catalog.compact()
        catalog.retain()
        deadline = time.monotonic() + PATIENCE_S
        while topic.erasures() or footprint.waiting() or footprint.coming():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert footprint.coming(topic._topic) == 0
        files = {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}
        segments = sum(size for path, size in files.items() if path.suffix == ".esdb")
        assert footprint.total_of(topic._topic) == segments == topic.stats()["sealed_bytes"]
        assert footprint.total() == pytest.approx(sum(files.values()), abs=1000)
    with aggregator.open(root, limits={"max_bytes": LIMIT}) as catalog:
        assert catalog._backend.footprint.total_of(catalog.topic("t")._topic) == segments


def test_erasing_where_no_room_is_left(tmp_path):
    """A space goes from the one segment that fills its topic's limit, and no other event goes with it."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        catalog.seal()
        topic.set_policy(retention={"bytes": topic.stats()["sealed_bytes"]})
        others = sum(n % 7 != 3 for n in range(ROWS))
        topic.erase("s3")
        report = topic.compact()
        assert (report.erased, report.still_erasing) == (("s3",), ())
        assert topic.traces("s3").gone
        assert topic.retain().removed == ()
        assert topic.scan().count() == others
