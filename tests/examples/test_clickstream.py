"""The generated click stream: the same events every time, in the shape that the benchmarks need."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from examples.demo.clickstream import COUNTRIES, LARGEST_SPACE, TYPES, generate, space_sizes, until


@pytest.mark.parametrize("events", [0, 1, 49, 50, 1_000, 123_457, 1_000_000])
def test_space_sizes_sum_up(events):
    """Every event has a space, and no size is negative or above the limit."""
    sizes = space_sizes(events)
    assert sizes.sum() == events
    assert sizes.min() >= 0
    assert sizes.max() <= LARGEST_SPACE


def test_sizes_are_skewed():
    """Most spaces are small, a few are very large."""
    sizes = space_sizes(1_000_000)
    assert len(sizes) == 20_000
    assert 4 <= np.median(sizes) <= 16
    assert sizes.max() == LARGEST_SPACE


def test_same_seed_same_events():
    """Count and seed determine every byte; another seed generates other events."""
    assert generate(2_000, seed=3).equals(generate(2_000, seed=3))
    assert not generate(2_000, seed=3).equals(generate(2_000, seed=4))


def test_events_of_today():
    """All events are moved by the same time, so that the newest is at a given moment; nothing else changes."""
    table = generate(2_000)
    moved = until(table, 5_000_000)
    times, before = (each["timestamp"].cast(pa.int64()).to_numpy() for each in (moved, table))
    assert times.max() == 5_000_000
    assert len(set((times - before).tolist())) == 1
    assert moved.schema == table.schema
    assert moved.drop(["timestamp"]).equals(table.drop(["timestamp"]))


def test_columns():
    """The table has the columns of `Writer.add_table`, and each payload is distinct JSON."""
    table = generate(2_000)
    assert table.schema == pa.schema(
        {
            "space": pa.string(),
            "timestamp": pa.timestamp("us", "UTC"),
            "data": pa.binary(),
            "type": pa.string(),
            "country": pa.string(),
        }
    )
    assert set(table["type"].to_pylist()) <= set(TYPES)
    assert set(table["country"].to_pylist()) <= set(COUNTRIES)
    payloads = [json.loads(data) for data in table["data"].to_pylist()]
    assert len({payload["session"] for payload in payloads}) == len(payloads)
    assert 110 <= np.mean([len(data) for data in table["data"].to_pylist()]) <= 140


def test_arrival_is_nearly_in_order():
    """Events arrive in time order except for the jitter, so that a writer has to sort them."""
    timestamps = generate(5_000)["timestamp"].cast(pa.int64()).to_numpy()
    backwards = np.diff(timestamps)
    assert (backwards < 0).any()
    assert backwards.min() >= -4_000_000
