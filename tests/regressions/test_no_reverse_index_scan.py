"""ESDB documents `RevScanIndex`, but does not have it."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("value", ["page", "rare", "absent"])
def test_newest_first_by_index(write, value):
    """A reverse index scan has the exact opposite order, including ties; in a space, a grouping and the file."""
    rows = [
        (f"s{n % 3}", b"%d" % n, n // 4, ("", "web")[n % 2], {"type": "rare" if n % 97 == 0 else "page"})
        for n in range(3000)
    ]
    segment = write(rows, indexes=["type"])
    for scan_index, options in (
        (segment.scan_index, {}),
        (segment.scan_index, {"grouping": "web"}),
        (segment["s1"].scan_index, {}),
        (segment["s1"].scan_index, {"grouping": "web"}),
        (segment["s1"].scan_index, {"start": 100, "end": 500}),
    ):
        forward = list(scan_index("type", value, **options))
        assert list(scan_index("type", value, reverse=True, **options)) == forward[::-1]
        assert list(scan_index("type", value, reverse=True, limit=3, **options)) == forward[::-1][:3]
        assert (len(forward) > 0) == (value != "absent")
