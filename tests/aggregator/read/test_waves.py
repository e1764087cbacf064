"""Many segments that overlap in time are read in waves, and only few of them if few rows are wanted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from effort import share_of
from noise import noise

import aggregator
from aggregator.base.allowance import Allowance
from aggregator.policy import Tuning
from aggregator.read import waves

SEGMENTS, ROWS = 24, 200
SPAN = SEGMENTS * ROWS
UNMERGED = Tuning(fan_in=1 << 30)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    """Segments that each cover almost the whole time, some unsealed events, and one segment long before all others."""
    rng = np.random.default_rng(3)
    with aggregator.open(tmp_path_factory.mktemp("waves") / "c", durability="none", tuning=UNMERGED) as made:
        topic = made.create_topic("clicks", indexes=["type"], roll={"rows": 10**6})
        for number in range(SEGMENTS + 2):
            times = rng.integers(0, SPAN, ROWS) - (5 * SPAN if number == SEGMENTS else 0)
            spaces, kinds = rng.integers(0, 9, ROWS), rng.integers(0, 4, ROWS)
            topic.append(
                pa.table({
                    "space": [f"s{n}" for n in spaces], "timestamp": pa.array(times),
                    "data": noise(rng, ROWS, 100), "type": [f"t{n}" for n in kinds],
                }),
                partition=str(number % 2),
            )  # fmt: skip
            if number <= SEGMENTS:
                made.seal("clicks")
        yield made


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("most", share_of([100 << 10, 64 << 20], 2), ids=share_of(["many waves", "one"], 2))
def test_as_all_at_once(catalog, monkeypatch, reverse, most):
    """Waves give the same rows as reading all segments in parallel, for any time range, with ties."""
    topic = catalog.topic("clicks")
    spans = [{}, {"start": 100, "end": SPAN // 2}, {"start": 1000, "end": 1001}, {"start": -SPAN, "end": 40}]
    select = "SELECT FROM topic = clicks WHERE type = t1"
    for span in share_of(spans, 2):
        monkeypatch.setattr(waves, "MAX_OVERLAP", 1000)
        whole = topic.scan(reverse=reverse, **span).to_table()
        chosen = catalog.query(select, **span).to_table()
        monkeypatch.setattr(waves, "MAX_OVERLAP", 16)
        monkeypatch.setattr(waves, "WAVE_BYTES", most)
        monkeypatch.setattr(waves, "FIRST_ROWS", 500)
        assert topic.scan(reverse=reverse, **span).to_table() == whole
        assert catalog.query(select, **span).to_table() == chosen
        for limit in (1, 300):
            assert topic.scan(reverse=reverse, limit=limit, **span).to_table() == whole.slice(0, limit)
        newest = catalog.query(f"{select} ORDER BY ts DESC LIMIT 50", **span).to_table()
        assert newest == chosen.take(np.arange(len(chosen))[::-1][:50])


def test_newest_of_few_segments(tmp_path):
    """The newest rows are read only from segments that can contain them."""
    with aggregator.open(tmp_path / "c", durability="none", tuning=UNMERGED) as catalog:
        topic = catalog.create_topic("clicks", roll={"rows": 10**6})
        for number in range(40):
            times = np.arange(100) * 40 + number
            topic.append(pa.table({"space": [f"s{n % 7}" for n in range(100)], "timestamp": times}))
            catalog.seal("clicks")
    with aggregator.open(tmp_path / "c", read_only=True) as catalog:
        found = catalog.topic("clicks").scan(reverse=True, limit=8)
        assert pa.compute.cast(found.to_table()["timestamp"], pa.int64()).to_pylist() == list(range(3999, 3991, -1))
        assert len(found._pool._open) < 30


@pytest.mark.parametrize("reverse", share_of([False, True], 2))
def test_small_waves_that_are_large(catalog, monkeypatch, reverse):
    """A wave with more bytes than the scan's window is read again segment by segment, with the same answer."""
    topic = catalog.topic("clicks")
    whole = topic.scan(reverse=reverse).to_table()
    chosen = catalog.query("SELECT FROM topic = clicks").to_table()
    small, large = [], []
    real = waves.merge_few

    def few(*sources, most_bytes, **how):
        found = real(*sources, most_bytes=3000, **how)
        (large if found is None else small).append(found)
        return found

    monkeypatch.setattr(waves, "FIRST_ROWS", 20)
    monkeypatch.setattr(waves, "MAX_WAVE_GROWTH", 1.3)
    monkeypatch.setattr(waves, "merge_few", few)
    assert topic.scan(reverse=reverse).to_table() == whole
    assert catalog.query("SELECT FROM topic = clicks").to_table() == chosen
    assert small
    assert large


def test_memory(catalog, monkeypatch):
    """Overlapping segments are not in memory all at the same time."""
    monkeypatch.setattr(waves, "WAVE_BYTES", 64 << 10)
    monkeypatch.setattr(waves, "FIRST_ROWS", 100)
    with Allowance(memory_bytes=200_000):
        rows = sum(map(len, catalog.topic("clicks").scan().batches()))
    assert rows == (SEGMENTS + 2) * ROWS


@pytest.mark.parametrize("times", share_of([(-(2**63), 2**63 - 1), (2**63 - 3, 2**63 - 1), (7, 7)], 2), ids=str)
def test_ends_of_time(tmp_path, monkeypatch, times):
    """The first and last possible times, near-last times and equal times are read correctly."""
    monkeypatch.setattr(waves, "FEW_ROWS", 1)
    with aggregator.open(tmp_path / "c", durability="none", tuning=UNMERGED) as catalog:
        topic = catalog.create_topic("clicks")
        for _ in range(18):
            topic.append(pa.table({"space": ["a"] * 4, "timestamp": [*times, *times]}))
            catalog.seal("clicks")
        for reverse in (False, True):
            found = topic.scan(reverse=reverse, limit=50, columns=["timestamp"]).to_table()["timestamp"]
            assert found.cast(pa.int64()).to_pylist() == sorted([*times, *times] * 18, reverse=reverse)[:50]
