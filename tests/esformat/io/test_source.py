"""Sources of bytes: files, memory and anything that reads at an offset; counted; closed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import esformat
from esformat.errors import ClosedError, CorruptSegmentError
from esformat.io.source import BytesSource, ClosedSource, CountingSource, FileSource, Source

CONTENT = bytes(range(256)) * 8


@pytest.fixture(params=["file", "bytes"])
def source(request, tmp_path):
    """CONTENT, in a file and in memory."""
    if request.param == "bytes":
        return BytesSource(CONTENT)
    (tmp_path / "content").write_bytes(CONTENT)
    return FileSource(tmp_path / "content")


def test_any_place(source):
    """Every source returns exactly the bytes at an offset."""
    assert isinstance(source, Source)
    assert source.size == len(CONTENT)
    for offset, length in ((0, 0), (0, 5), (100, 300), (len(CONTENT) - 1, 1), (0, len(CONTENT))):
        assert source.read_at(offset, length) == CONTENT[offset : offset + length]


def test_reading_beyond_the_end(source):
    """A read beyond the end is an error with the number of missing bytes."""
    with pytest.raises(CorruptSegmentError, match="ends 3 bytes early"):
        source.read_at(len(CONTENT) - 2, 5)


def test_counting(source):
    """Reads and bytes are counted; name and size are those of the source."""
    counted = CountingSource(source)
    assert (counted.name, counted.size) == (source.name, source.size)
    assert counted.read_at(5, 7) == CONTENT[5:12]
    counted.read_at(0, 3)
    assert (counted.reads, counted.bytes_read) == (2, 10)


def test_closed(source):
    """A closed source raises ClosedError."""
    closed = ClosedSource(source)
    with pytest.raises(ClosedError, match="the segment is closed"):
        closed.read_at(0, 1)


def test_file_that_is_cut_short_while_open(tmp_path):
    """A file cut short while open raises an error, and does not kill the process."""
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    source = FileSource(path)
    os.truncate(path, 100)
    with pytest.raises(CorruptSegmentError, match="ends 50 bytes early") as caught:
        source.read_at(50, 100)
    assert (caught.value.path, caught.value.offset) == (str(path), 100)


def test_reads_that_stop_early(tmp_path, monkeypatch):
    """A short read of the kernel is continued; only zero bytes mean the end."""
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    pread, preadv, reads = os.pread, os.preadv, []

    def short(descriptor, buffers, offset):
        reads.append(offset)
        return preadv(descriptor, [buffers[0][:100]], offset)

    monkeypatch.setattr(os, "pread", lambda descriptor, length, offset: pread(descriptor, min(length, 100), offset))
    monkeypatch.setattr(os, "preadv", short)
    monkeypatch.setattr("esformat.io.source.read_ranges", lambda descriptor, ranges, out: 0)  # nothing at once
    source = FileSource(path)
    assert source.read_at(10, 1000) == CONTENT[10:1010]
    assert source.view_at(10, 1000) == CONTENT[10:1010]
    assert reads == 2 * list(range(10, 1010, 100))


def test_views(tmp_path):
    """A view is read-only and outlives its source. A length that the file lacks is refused before it is allocated."""
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    source = FileSource(path)
    view, size = source.view_at(10, 1000), len(CONTENT)
    assert source.view_at(size, 0) == b""
    for offset, length, missing, at in ((0, 1 << 60, (1 << 60) - size, size), (size + 5, 7, 7, size + 5)):
        with pytest.raises(CorruptSegmentError, match=f"ends {missing} bytes early") as caught:
            source.view_at(offset, length)
        assert caught.value.offset == at
    del source
    assert view.readonly
    assert view == CONTENT[10:1010]


def test_descriptor_is_given_back(tmp_path):
    """The file is closed when nothing refers to the source, and not before."""
    path = tmp_path / "content"
    path.write_bytes(CONTENT)

    def held() -> int:
        return sum(os.path.realpath(link) == str(path) for link in Path("/proc/self/fd").iterdir())

    source = FileSource(path)
    assert held() == 1
    del source
    assert held() == 0


def test_missing_file(tmp_path):
    """A missing file, or a directory, raises the usual OSError."""
    with pytest.raises(FileNotFoundError):
        esformat.open(tmp_path / "nothing.esdb")
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        esformat.open(tmp_path)


def test_threads_read_side_by_side(source):
    """Threads read in parallel without a shared position."""
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: source.read_at(n, 50), range(1000)))
    assert found == [CONTENT[n : n + 50] for n in range(1000)]
