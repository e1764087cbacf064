"""`segment.scan(grouping=…)` returned wrong timestamps if several spaces with the grouping shared a block."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("reverse", [False, True])
def test_grouping_over_many_spaces_of_one_block(write, reverse):
    """Each space's events have their own times, as events and as columns."""
    rows = [(f"s{n % 3}", b"", 1000 * n, grouping) for n in range(12) for grouping in ("app", "web")]
    segment = write(rows)
    expected = [(space, time) for space, _, time, grouping in sorted(rows, key=lambda row: row[0]) if grouping == "web"]
    expected = expected[::-1] if reverse else expected
    answer = segment.scan(grouping="web", reverse=reverse)
    assert [(event.space, event.timestamp) for event in answer] == expected
    table = answer.to_table()
    assert list(zip(table["space"].to_pylist(), table["timestamp"].cast("int64").to_pylist(), strict=True)) == expected
    assert segment.scan(grouping="web", start=1, reverse=reverse).count() == len(expected) - 1
