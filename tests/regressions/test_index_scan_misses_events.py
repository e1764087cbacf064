"""In ESDB an index scan failed once a space's index exceeded about 4 KB, and stopped at certain block offsets."""

from __future__ import annotations

import pytest
from effort import long


@pytest.mark.parametrize("count", [10, 500, 5000, pytest.param(40_000, marks=long)])
@pytest.mark.parametrize("reverse", [False, True])
def test_index_of_a_large_space(write, count, reverse):
    """Every event with the value is found, however many the space has."""
    rows = [
        ("large", b"%d" % n, n, "", {"type": ("page", "click", "rare")[n % 3 if n % 1000 else 2]}) for n in range(count)
    ]
    segment = write([*rows, ("other", b"x", 5, "", {"type": "page"})], indexes=["type"])
    for value in ("page", "click", "rare"):
        expected = [row[1] for row in rows if row[4]["type"] == value]
        found = [event.data for event in segment["large"].scan_index("type", value, reverse=reverse)]
        assert found == (expected[::-1] if reverse else expected)


@pytest.mark.parametrize("size", [0, 1, 100, 231, 232, 233, 256, 1024])
def test_events_at_any_offset(write, size):
    """No length of payloads, and so no block offset, ends a scan early: here each block begins at another offset."""
    rows = [(f"s{n % 5}", bytes([n % 251]) * size, n, "", {"type": "page"}) for n in range(700)]
    segment = write(rows, indexes=["type"], codec="none")
    assert segment.scan_index("type", "page").count() == 700
    assert len(list(segment.scan_index("type", "page"))) == 700
    for space in segment.spaces():
        expected = [row[1] for row in rows if row[0] == space]
        assert [event.data for event in segment[space].scan_index("type", "page")] == expected
        assert [event.data for event in segment[space].scan()] == expected
