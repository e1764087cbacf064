"""Bytes read through windows are the same bytes, and few requests."""

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
    """A source that notes what it is told will be read."""

    def __init__(self, source):
        super().__init__(source)
        self.announced = []

    def will_read(self, start, stop):
        self.announced.append((start, stop))


@given(st.lists(st.tuples(st.integers(0, len(DATA)), st.integers(0, 70)), max_size=30))
def test_reads_are_those_of_the_source(places):
    """Anywhere, of any length, in any order."""
    windows = Windows(BytesSource(DATA), WINDOW)
    for offset, length in places:
        stop = min(offset + length, len(DATA))
        assert windows.read_at(offset, stop - offset) == DATA[offset:stop]


def test_reading_in_turn():
    """Each window is read once, and those that follow are announced before."""
    source = Announced(BytesSource(DATA))
    windows = Windows(source, WINDOW)
    parts = [windows.read_at(at, 5) for at in range(0, len(DATA), 5)]
    assert b"".join(parts) == DATA
    assert source.reads == -(-len(DATA) // WINDOW)
    assert source.bytes_read == len(DATA)
    every = [(at, min(at + WINDOW, len(DATA))) for at in range(0, len(DATA), WINDOW)]
    assert {place for place in source.announced if place[0] < place[1]} == set(every[1:])


def test_windows_are_kept():
    """Going back and forth between two places reads neither again."""
    source = Announced(BytesSource(DATA))
    windows = Windows(source, WINDOW)
    for _ in range(5):
        assert (windows.read_at(3, 2), windows.read_at(130, 2)) == (DATA[3:5], DATA[130:132])
    assert source.reads == 2
    assert source.announced == []


def test_many_sources_hold_no_more_than_one():
    """Windows of several that are read at a time are the smaller."""
    data = bytes(WINDOW_BYTES)
    for among in (1, 2, 16):
        source = Announced(BytesSource(data))
        in_windows(source, among).read_at(0, 1)
        assert source.bytes_read == WINDOW_BYTES // among


def test_the_end():
    """Beyond it is the source's own error."""
    with pytest.raises(CorruptSegmentError, match="early"):
        Windows(BytesSource(DATA), WINDOW).read_at(len(DATA) - 3, 4)


def test_files_are_read_as_they_are():
    """Windows are for sources that fetch ahead."""
    source = BytesSource(DATA)
    assert in_windows(source) is source
