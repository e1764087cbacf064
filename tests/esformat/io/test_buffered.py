"""Buffered reads return the same bytes in few requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat import BytesSource, CorruptSegmentError
from esformat.io.buffered import WINDOW_BYTES, Windows, in_windows
from esformat.io.source import CountingSource

WINDOW = 16
DATA = bytes(range(250))


class Announced(CountingSource):
    """A source that records which reads are announced."""

    def __init__(self, source):
        super().__init__(source)
        self.announced = []

    def will_read(self, start, stop):
        self.announced.append((start, stop))


@given(st.lists(st.tuples(st.integers(0, len(DATA)), st.integers(0, 70)), max_size=30))
def test_reads_are_those_of_the_source(places):
    """Reads at any offset, of any length and in any order return the source's bytes."""
    windows = Windows(BytesSource(DATA), WINDOW)
    for offset, length in places:
        stop = min(offset + length, len(DATA))
        assert windows.read_at(offset, stop - offset) == DATA[offset:stop]


def test_reading_in_turn():
    """In sequential reads each window is read once, and the next ones are announced before."""
    source = Announced(BytesSource(DATA))
    windows = Windows(source, WINDOW)
    parts = [windows.read_at(at, 5) for at in range(0, len(DATA), 5)]
    assert b"".join(parts) == DATA
    assert source.reads == -(-len(DATA) // WINDOW)
    assert source.bytes_read == len(DATA)
    every = [(at, min(at + WINDOW, len(DATA))) for at in range(0, len(DATA), WINDOW)]
    assert {place for place in source.announced if place[0] < place[1]} == set(every[1:])


def test_windows_are_kept():
    """Alternating between two positions reads neither twice."""
    source = Announced(BytesSource(DATA))
    windows = Windows(source, WINDOW)
    for _ in range(5):
        assert (windows.read_at(3, 2), windows.read_at(130, 2)) == (DATA[3:5], DATA[130:132])
    assert source.reads == 2
    assert source.announced == []


def test_many_sources_hold_no_more_than_one():
    """Several sources that are read together have smaller windows, so that they use no more memory than one."""
    data = bytes(WINDOW_BYTES)
    for among in (1, 2, 16):
        source = Announced(BytesSource(data))
        in_windows(source, among).read_at(0, 1)
        assert source.bytes_read == WINDOW_BYTES // among


def test_the_end():
    """A read beyond the end raises the source's own error."""
    with pytest.raises(CorruptSegmentError, match="early"):
        Windows(BytesSource(DATA), WINDOW).read_at(len(DATA) - 3, 4)


def test_files_are_read_as_they_are():
    """A source that does not prefetch is returned unchanged."""
    source = BytesSource(DATA)
    assert in_windows(source) is source
