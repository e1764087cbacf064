"""Ranges of a file are those that `os.pread` reads one by one."""

from __future__ import annotations

import os
from array import array
from itertools import chain, takewhile

import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.file_ranges import read_ranges

CONTENT = bytes(range(256)) * 20


@pytest.fixture(scope="module")
def descriptor(tmp_path_factory):
    """A file with CONTENT, open."""
    path = tmp_path_factory.mktemp("ranges") / "content"
    path.write_bytes(CONTENT)
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


@examples(200)
@given(st.lists(st.tuples(st.integers(0, len(CONTENT) + 9), st.integers(0, 600)), max_size=6))
def test_ranges(descriptor, ranges):
    """All ranges up to the first that the file lacks are read, one after another."""
    out = bytearray(sum(length for _, length in ranges))
    whole = list(takewhile(lambda r: len(CONTENT[r[0] : sum(r)]) == r[1], ranges))
    assert read_ranges(descriptor, array("q", chain.from_iterable(ranges)), out) == len(whole)
    model = b"".join(CONTENT[offset : offset + length] for offset, length in whole)
    assert out[: len(model)] == model


def test_what_cannot_be_read(descriptor, tmp_path):
    """Ranges of a file that cannot be read are not complete; a buffer that is too short is refused."""
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        for unreadable in (folder, -1):
            assert read_ranges(unreadable, array("q", (0, 4)), bytearray(4)) == 0
    finally:
        os.close(folder)
    assert read_ranges(descriptor, array("q", (-1, 4)), bytearray(4)) == 0
    for ranges in ((0, 5), (0, 4, 0, 1), (0, -1), (0, 1 << 62), (0, 2, 0, 3)):
        with pytest.raises(ValueError, match="too short"):
            read_ranges(descriptor, array("q", ranges), bytearray(4))
    with pytest.raises((BufferError, TypeError, ValueError)):
        read_ranges(descriptor, array("q", (0, 4)), b"1234")
