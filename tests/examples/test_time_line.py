"""The events that the time line shows."""

from __future__ import annotations

import numpy as np
import pytest

from examples.demo.contest import ESDB, Figure
from examples.demo.event_set import EventSet
from examples.demo.time_line import DOTS_AT_MOST, OTHER, SPACES_SHOWN, choose_time_line

HOUR_US = 3_600_000_000


def events(rows, indexes=("kind",)):
    """The `EventSet` of these (space, timestamp, kind)."""
    return EventSet.from_rows(
        "test", "made up",
        [{"space": s, "grouping": "", "timestamp": t, "data": b"", "kind": k} for s, t, k in rows],
        indexes,
    )  # fmt: skip


def test_whole_time_when_all_of_it_is_lively():
    """Events spread over the whole time are all shown, earliest space first."""
    line = choose_time_line(events([(f"s{2 - at % 3}", at * HOUR_US, "ab"[at % 2]) for at in range(120)]))
    assert list(line.spaces) == ["s2", "s1", "s0"]
    assert sorted(line.timestamps_us) == [at * HOUR_US for at in range(120)]
    assert list(line.values) == ["a", "b"]
    for row, timestamp, code in zip(line.rows, line.timestamps_us, line.value_codes, strict=True):
        at = timestamp // HOUR_US
        assert (row, code) == (at % 3, at % 2)


def test_a_burst_is_looked_at_closely():
    """If nearly everything happens in one burst, the time line shows the burst, not the years around it."""
    burst = [("s", 10**15 + at * 1_000_000, "a") for at in range(1_000)]
    line = choose_time_line(events([("s", 0, "a"), *burst, ("s", 2 * 10**15, "a")]))
    assert line.timestamps_us.min() >= 10**15
    assert line.timestamps_us.max() < 10**15 + 1_000 * 1_000_000
    assert len(line.timestamps_us) >= 100


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_events(count):
    """One event makes a time line, too."""
    line = choose_time_line(events([("s", 7, None)] * count))
    assert len(line.rows) == count
    assert list(line.values) == [""]


def test_never_is_not_drawn(tmp_path):
    """Times that stand for "never" do not hide the others; without others the time line is empty, and can be drawn."""
    never = 253_402_214_400_000_000  # 9999-12-31
    line = choose_time_line(events([("s", never, "a"), ("s", -(2**62), "a"), ("s", 10**15, "a")]))
    assert line.timestamps_us.tolist() == [10**15]
    empty = choose_time_line(events([("s", never, "a")]))
    assert not empty.spaces
    from examples.demo.picture import draw  # loads matplotlib, which most tests do not need

    draw(tmp_path / "x.png", "nothing", "nothing", empty, {ESDB: 1.0}, Figure("read", "µs", True, {ESDB: 1.0}))
    assert (tmp_path / "x.png").exists()


def test_limits():
    """Spaces, values and events are limited to what can be distinguished; rare values share a colour."""
    rows = [(f"s{at % 40}", at * HOUR_US, f"k{min(at % 17, 9)}") for at in range(30_000)]
    line = choose_time_line(events(rows))
    assert len(line.spaces) == SPACES_SHOWN
    assert len(line.rows) <= DOTS_AT_MOST
    assert line.values[-1] == OTHER
    assert set(np.unique(line.value_codes)) == set(range(len(line.values)))
    assert line.rows.max() < len(line.spaces)


def test_no_index():
    """Events without an index have one colour."""
    line = choose_time_line(events([("s", at, None) for at in range(10)], indexes=()))
    assert list(line.values) == [""]
    assert not line.value_codes.any()
