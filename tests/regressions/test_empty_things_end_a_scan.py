"""In ESDB an empty payload ended the scan, and an empty space id made the finished file unreadable."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("codec", ["zstd", "lz4", "none"])
@pytest.mark.parametrize("empty_at", [{0}, {4}, {9}, {0, 4, 9}, set(range(10))], ids=str)
def test_empty_payloads(write, codec, empty_at):
    """Empty payloads are read like others: first, last, in between, or all."""
    rows = [("a", b"" if n in empty_at else b"%d" % n, n, "", {"type": "page"}) for n in range(10)]
    segment = write(rows, indexes=["type"], codec=codec)
    expected = [row[1] for row in rows]
    for scan in (segment.scan, segment["a"].scan):
        assert [event.data for event in scan()] == expected
        assert [event.data for event in scan(reverse=True)] == expected[::-1]
        assert scan().to_table()["data"].to_pylist() == expected
    assert [event.data for event in segment["a"].scan_index("type", "page")] == expected


@pytest.mark.parametrize("keys", ["text", "binary"])
def test_empty_keys(write, keys):
    """The empty space, grouping and index value are read like others."""
    shown = str if keys == "text" else str.encode
    rows = [
        (space, b"x", n, grouping, {"type": kind})
        for n, (space, grouping, kind) in enumerate([("", "", ""), ("a", "", "p"), ("", "g", None)])
    ]
    segment = write(rows, indexes=["type"], keys=keys)
    assert list(segment.spaces().items()) == [(shown(""), 2), (shown("a"), 1)]
    assert [event.timestamp for event in segment[""].scan()] == [0, 2]
    assert list(segment[""].groupings()) == [shown(""), shown("g")]
    assert [event.timestamp for event in segment.scan(grouping="")] == [0, 1]
    assert [event.timestamp for event in segment.scan_index("type", "")] == [0]
    assert dict(segment.index_values("type")) == {"": 1, "p": 1}
    assert segment.may_contain("")
    assert list(segment.spaces(prefix="")) == list(segment.spaces())
