"""In ESDB a scan within another scan's loop corrupts both, and a missing key crashes the documented example."""

from __future__ import annotations

import pytest

import esformat


def test_loops_within_loops(write):
    """Three nested scans of one segment each have the same results as alone."""
    rows = [(f"s{n % 4}", b"%d" % n, n, f"g{n % 3}", {"type": f"t{n % 2}"}) for n in range(120)]
    segment = write(rows, indexes=["type"])
    alone = {space: [e.data for e in segment[space].scan()] for space in segment.spaces()}
    indexed = [e.data for e in segment.scan_index("type", "t1", reverse=True)]
    outer = []
    for event in segment.scan():
        outer.append(event)
        for at, other in enumerate(segment[event.space].scan()):
            assert other.data == alone[event.space][at]
            if at == 2:
                assert [e.data for e in segment.scan_index("type", "t1", reverse=True)] == indexed
                break
    assert outer == list(segment.scan())


def test_missing_key(write):
    """For a missing key `find` returns None, and brackets raise a KeyError that names it."""
    segment = write([("a", b"", 1)])
    assert segment.find("b") is None
    with pytest.raises(esformat.SpaceNotFoundError, match="no space 'b'"):
        segment["b"]
    with pytest.raises(KeyError):
        segment["b"]
    assert list(segment["a"].scan(grouping="missing")) == []
    assert list(segment.scan(grouping="missing")) == []
