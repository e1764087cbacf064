"""Inputs open whatever their compression, can be read twice even from a pipe, and fail with their name."""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import os
import threading

import pyarrow as pa
import pytest

from esformat.convert.errors import InputError
from esformat.convert.load import InputOptions, Load
from esformat.convert.roles import Roles
from esformat.convert.source import Source

DATA = b"some bytes, again and again\n" * 5000


def read(source: Source) -> bytes:
    with source.open() as stream:
        return b"".join(iter(lambda: stream.read(1000), b""))


def read_from(source: Source, offset: int) -> bytes:
    with source.open_seekable() as stream:
        stream.seek(offset)
        return stream.read()


def test_bytes_in_memory(compression):
    """Bytes in memory are read like a file: repeatedly, from any position, decompressed, without a copy to a spool."""
    _, compress = compression
    stored = compress(DATA)
    source = Source("-", stdin=pa.py_buffer(stored))
    assert read(source) == DATA
    assert read(source) == DATA
    assert read_from(source, 100_000) == DATA[100_000:]
    assert (source.size_bytes, source.stored_bytes()) == (len(stored), len(stored))
    source.close()


def test_any_compression(tmp_path, compression):
    """The compression is recognised by the content, not the name; any position can be read."""
    _, compress = compression
    path = tmp_path / "no-extension"
    path.write_bytes(compress(DATA))
    source = Source(str(path))
    assert read(source) == DATA
    assert read(source) == DATA
    assert read_from(source, 100_000) == DATA[100_000:]
    assert source.stored_bytes() == len(compress(DATA))


def test_several_members(tmp_path, compression):
    """Concatenated compressed files are one file, as for their tools."""
    _, compress = compression
    path = tmp_path / "file"
    path.write_bytes(compress(b"first ") + compress(b"second"))
    assert read(Source(str(path))) == b"first second"


def test_empty(tmp_path, compression):
    """An empty input is not an error at this level."""
    _, compress = compression
    path = tmp_path / "file"
    path.write_bytes(compress(b""))
    assert read(Source(str(path))) == b""
    assert read_from(Source(str(path)), 0) == b""


def test_stdin_reads_twice(compression):
    """Standard input can be read again, even if the first pass stopped midway."""
    _, compress = compression
    source = Source("-", stdin=io.BytesIO(compress(DATA)))
    with source.open() as stream:
        assert stream.read(10) == DATA[:10]
    assert read(source) == DATA
    assert read(source) == DATA
    assert read_from(source, 100_000) == DATA[100_000:]
    assert source.path == "<stdin>"
    assert source.stored_bytes() == len(compress(DATA))
    source.close()


def test_named_pipe(tmp_path):
    """A named pipe is read like standard input."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(DATA,))
    writer.start()
    source = Source(str(path))
    assert [read(source), read(source)] == [DATA, DATA]
    writer.join()
    source.close()


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.99])
def test_truncated(tmp_path, compression, keep):
    """A truncated compressed file is an error that names it, never a short result."""
    extension, compress = compression
    if extension:
        stored = compress(os.urandom(5000))
        path = tmp_path / "file"
        path.write_bytes(stored[: int(len(stored) * keep)])
        with pytest.raises(InputError, match=r"file: cannot be read: .*([Tt]runcated|file ended before)"):
            read(Source(str(path)))


def test_several_streams(tmp_path, compression):
    """A file of several compressed streams is read to its end; a damaged second one is an error, too."""
    extension, compress = compression
    if extension:
        path = tmp_path / "file"
        stored = compress(DATA)
        path.write_bytes(stored * 2)
        assert read(Source(str(path))) == DATA * 2
        path.write_bytes(stored + bytes([stored[0] ^ 1]) + stored[1:])
        with pytest.raises(InputError, match="file: cannot be read"):
            read(Source(str(path)))


@pytest.mark.parametrize("compress", [lzma.compress, gzip.compress])
def test_zeros_after_a_stream(tmp_path, compress):
    """Streams of xz and gzip may be followed by zeros; of xz, any multiple of four."""
    path = tmp_path / "file"
    stored = compress(DATA)
    path.write_bytes(stored + bytes(4) + stored + bytes(1 << 20))
    assert read(Source(str(path))) == DATA * 2


def test_damaged(tmp_path):
    """So is damaged compressed data."""
    stored = bytearray(gzip.compress(os.urandom(5000)))
    stored[-8] ^= 1  # the checksum
    path = tmp_path / "file.gz"
    path.write_bytes(stored)
    with pytest.raises(InputError, match=r"file\.gz: cannot be read: .*CRC check failed"):
        read(Source(str(path)))


def test_damaged_after_the_first_member(tmp_path, compression):
    """A damaged compressed file behind another one is an error, not the end; and so is anything else there."""
    extension, compress = compression
    if extension:
        path = tmp_path / "file"
        for more in (b"?" + compress(b"second")[1:], compress(b"second")[:-5], b"something else"):
            path.write_bytes(compress(b"first ") + more)
            with pytest.raises(InputError, match=r"file: cannot be read: "):
                read(Source(str(path)))


def test_missing(tmp_path):
    """A missing file is refused immediately."""
    with pytest.raises(InputError, match="nowhere: no such file or directory"):
        Source(str(tmp_path / "nowhere"))


def test_directory(tmp_path):
    """A directory is refused as an input."""
    with pytest.raises(InputError, match="is a directory; name the files in it"):
        Source(str(tmp_path))


def test_looks_like_bz2(tmp_path):
    """Text that begins like a compressed file is read as text."""
    path = tmp_path / "file"
    path.write_bytes(b"BZh9 is how bzip2 begins\n")
    assert read(Source(str(path))) == b"BZh9 is how bzip2 begins\n"


def live(pipe):
    return Load(["-"], Roles(space="space", timestamp="timestamp"), stdin=pipe, live=True)


@pytest.fixture
def pipe():
    """The two ends of a pipe."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb", buffering=0) as writer:
        yield reader, writer


def test_a_live_pipe_gives_lines_as_they_come(pipe):
    """Events are returned while the pipe is open; half a line waits for its end."""
    reader, writer = pipe
    writer.write(b'{"space":"a","timestamp":1}\n{"space":"b","timestamp":2,"n":null}\n{"spa')
    with live(reader) as load:
        batches = load.batches()
        assert next(batches).to_pydict()["space"] == ["a", "b"]
        writer.write(b'ce":"c","timestamp":3,"n":4}\n')
        batch = next(batches)
        assert (batch["space"].to_pylist(), batch["n"].to_pylist()) == (["c"], [4])
        writer.close()
        assert list(batches) == []


def test_a_live_pipe_of_short_lines(pipe):
    """The search for a compression waits for no more bytes than it needs."""
    reader, writer = pipe
    options = InputOptions(format="csv")
    with Load(["-"], Roles(space="s", timestamp="t"), options, stdin=reader, live=True) as load:
        batches = load.batches()
        writer.write(b"s,t\na,1\n")
        assert next(batches)["space"].to_pylist() == ["a"]
        writer.write(b"b,2\n")
        assert next(batches)["space"].to_pylist() == ["b"]


def test_a_live_pipe_of_compressed_lines(compression):
    """Compressed lines from a live pipe are read."""
    _, compress = compression
    with live(io.BytesIO(compress(b'{"space":"a","timestamp":1}\n'))) as load:
        assert [batch.num_rows for batch in load.batches()] == [1]


def test_a_live_pipe_of_arrow():
    """A binary format from a live pipe is read as from any pipe."""
    out = io.BytesIO()
    table = pa.table({"space": ["a"], "timestamp": [1]})
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    with live(io.BytesIO(out.getvalue())) as load:
        assert [batch.num_rows for batch in load.batches()] == [1]


def test_a_small_file_is_read_once(tmp_path, monkeypatch):
    """A small file is read once, a large one each time it is opened; a small file that grew is read whole."""
    opened = []
    real = Source._open_file
    monkeypatch.setattr(Source, "_open_file", lambda self: opened.append(self.path) or real(self))
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(DATA)
    large.write_bytes(b"x" * (2 << 20))
    for path, times in ((small, 1), (large, 3)):
        source = Source(str(path))
        assert [len(read(source)), len(read(source)), len(read_from(source, 0))] == [path.stat().st_size] * 3
        assert opened.count(str(path)) == times
    source = Source(str(small))
    small.write_bytes(b"x" * (2 << 20))
    assert len(read(source)) == 2 << 20


def test_no_room_for_a_copy_of_a_pipe(monkeypatch):
    """If there is no room to keep a pipe for a second pass, the error suggests another TMPDIR."""

    def full(_: object, __: int, ___: int) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("esformat.convert.spool.Spool.read_at", full)
    source = Source("-", stdin=io.BytesIO(DATA))
    with pytest.raises(InputError, match=r"<stdin>: cannot be read: no space left on device; .*TMPDIR"):
        read(source)
    source.close()
