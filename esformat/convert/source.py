"""One input: a file, an object in a store or standard input, decompressed on the fly and readable more than once.

Handles opening, spooling and decompression; `formats` detects the format.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import pyarrow as pa

from esformat.convert.errors import InputError
from esformat.convert.spool import Live, Pipe, Spool
from esformat.io.buffered import in_windows
from esformat.io.location import Place, locate, name_of, source_of
from esformat.io.source import Source as Bytes
from esformat.io.store import StoredAt

_MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b\x08)"
    rb"|(?P<bz2>BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90))"  # magic of the first block, or the end of an empty file
    rb"|(?P<zstd>\x28\xb5\x2f\xfd)"
    rb"|(?P<xz>\xfd7zXZ\x00)"
)
_MAGIC_STARTS = (b"\x1f\x8b\x08", b"BZh", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00")
_UNREADABLE = (
    OSError,
    EOFError,
    zlib.error,
    pa.ArrowException,
    UnicodeDecodeError,
)  # the last: names in binary formats
_PEEK_BYTES = 10
_SPOOL_CHUNK_BYTES = 1 << 20
_READ_BYTES = 64 << 10
_SMALL_BYTES = 1 << 20  # local files up to this size are read into memory once


Stream: TypeAlias = "pa.NativeFile | Live"
"""An object with `read`. For a live input, `read` returns early with fewer bytes than requested."""


Input: TypeAlias = Place
"""A path or URI, "-" for standard input, or a place in a store."""


def is_pipe(path: Input) -> bool:
    """Whether an input can be read only once: standard input, or a path that exists but is not a regular file."""
    if path == "-":
        return True
    place = locate(path)
    return isinstance(place, str) and Path(place).exists() and not Path(place).is_file()


class Source:
    """One input; "-" is standard input. Must be closed, since it may have a temporary file."""

    def __init__(self, path: Input, *, stdin: Pipe | pa.Buffer | None = None, live: bool = False) -> None:
        """Open the input at `path`; `stdin` may be bytes in memory. Raises InputError if the file does not exist.

        live: uncompressed text from a pipe is returned as it arrives, and only once.
        """
        place = locate(path)
        self.path = "<stdin>" if path == "-" else name_of(place)
        self._held: pa.Buffer | None = None
        self._spool: Spool | None = None
        self._live: Live | None = None
        self._stored: Bytes | None = None
        if isinstance(place, StoredAt):
            with self.guard():
                self._stored = in_windows(source_of(place))
        elif path == "-" and isinstance(stdin, pa.Buffer):
            self._held = stdin
        elif path == "-":
            self._take(_standard_input() if stdin is None else stdin, owned=False, live=live)
        elif not self._is_regular_file():
            self._take(self._open_file(), owned=True, live=live)  # a pipe can be read only once
        self._raw: IO[bytes] | pa.NativeFile | None = None  # the file being read
        self.size_bytes = self._size_bytes()

    def _size_bytes(self) -> int:
        """The stored size; 0 if it is known only at the end."""
        if self._held is not None:
            return int(self._held.size)
        if self._stored is not None:
            return self._stored.size
        return 0 if self._spool or self._live else Path(self.path).stat().st_size

    def _take(self, pipe: Pipe, *, owned: bool, live: bool) -> None:
        if live:
            self._live = Live(pipe, owned=owned)
        else:
            self._spool = Spool(pipe, owned=owned)

    def start(self, size: int) -> bytes:
        """Return the first bytes, decompressed."""
        with self.guard():
            if self._live is not None and not self._is_compressed(self._live):
                return self._live.peek(size)
        with self.open() as stream:
            return bytes(stream.read(size))

    @staticmethod
    def _is_compressed(live: Live) -> bool:
        """Detect compression with as few bytes as possible: the next ones of a pipe may arrive late."""
        for size in range(1, _PEEK_BYTES):
            start = live.peek(size)
            if len(start) < size or not any(magic.startswith(start[: len(magic)]) for magic in _MAGIC_STARTS):
                return False
        return compression_of(live.peek(_PEEK_BYTES)) is not None

    def position_bytes(self) -> int:
        """Return the number of stored bytes read in the current pass."""
        if self._held is not None:  # all of it is in memory
            return int(self._held.size)
        return 0 if self._raw is None or self._raw.closed else self._raw.tell()

    def stored_bytes(self) -> int:
        """Return the stored size of the input; for a pipe, the bytes received so far."""
        if self._live is not None:
            return self._live.taken_bytes
        return self.size_bytes if self._spool is None else self._spool.kept_bytes

    @contextmanager
    def open(self) -> Iterator[Stream]:
        """Open for reading from the start, decompressed; a live input only once. Raises InputError, also later."""
        with self.guard():
            if self._live is not None and not self._is_compressed(self._live):
                yield self._live
                return
            self._keep()
        with self._decompressed() as stream:
            yield stream

    @contextmanager
    def _decompressed(self) -> Iterator[pa.NativeFile]:
        with self.guard(), self._plain() as plain:
            compression = compression_of(plain.read(_PEEK_BYTES))
            plain.seek(0)
            if compression is None:
                yield plain
            elif compression == "xz":
                with _unpacked_xz(plain) as stream:
                    yield stream
            elif compression == "gzip":  # Python's reader skips zeros after a member, as gzip(1) does
                with gzip.GzipFile(fileobj=plain) as unpacked, pa.PythonFile(unpacked, mode="r") as stream:
                    yield stream
            else:
                with pa.CompressedInputStream(plain, compression) as stream:
                    yield stream

    @contextmanager
    def open_seekable(self) -> Iterator[pa.NativeFile]:
        """Open for random access, decompressed, through a temporary file if needed."""
        self._keep()
        with self.guard():
            with self._plain() as plain:
                compression = compression_of(plain.read(_PEEK_BYTES))
                if self._spool is None and compression is None:
                    plain.seek(0)
                    yield plain
                    return
            with tempfile.TemporaryFile() as copy:
                with self._decompressed() as stream:
                    while chunk := stream.read(_SPOOL_CHUNK_BYTES):
                        copy.write(chunk)
                copy.seek(0)
                with pa.PythonFile(copy, mode="r") as plain:
                    yield plain

    def _keep(self) -> None:
        """Treat a live input as an ordinary pipe: for compressed bytes, and formats that need random access."""
        if self._live is not None:
            self._spool, self._live = Spool(self._live, owned=True), None

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Convert errors of Arrow, of gzip and of the operating system while this input is read to InputError."""
        try:
            yield
        except InputError:
            raise
        except _UNREADABLE as error:
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = (
                "input that is read twice is copied to the temporary directory; TMPDIR chooses another"
                if full
                else None
            )
            raise InputError(f"cannot be read: {_cause(error)}", path=self.path, hint=hint) from error
        except MemoryError as error:  # usually damaged lengths
            raise InputError("cannot be read: it claims more data than fits into memory", path=self.path) from error

    def close(self) -> None:
        """Close a pipe and delete its temporary file."""
        if self._spool is not None:
            self._spool.free()
        if self._live is not None:
            self._live.close()

    def _is_regular_file(self) -> bool:
        try:
            mode = Path(self.path).stat().st_mode
        except OSError as error:
            raise InputError(_cause(error), path=self.path) from error
        if stat.S_ISDIR(mode):
            raise InputError("is a directory", path=self.path, hint="name the files in it")
        return stat.S_ISREG(mode)

    def _open_file(self) -> io.BufferedReader:
        if self._stored is not None:
            return io.BufferedReader(_SourceFile(self._stored), _READ_BYTES)
        try:
            return Path(self.path).open("rb")
        except OSError as error:
            raise InputError(_cause(error), path=self.path) from error

    @contextmanager
    def _plain(self) -> Iterator[pa.NativeFile]:
        """Open for reading from the start, without decompression."""
        self._hold_small()
        if self._held is not None:
            with pa.BufferReader(self._held) as held:
                self._raw = held
                yield held
            return
        with self._open_file() if self._spool is None else io.BufferedReader(self._spool.reader()) as raw:
            self._raw = raw
            with pa.PythonFile(raw, mode="r") as plain:
                yield plain

    def _hold_small(self) -> None:
        """Read a small local file into memory: otherwise Arrow calls Python for every few bytes."""
        pipe = self._spool is not None or self._live is not None
        if self._held is None and self._stored is None and not pipe and self.size_bytes <= _SMALL_BYTES:
            with self._open_file() as raw:
                data = raw.read(_SMALL_BYTES + 1)
            if len(data) <= _SMALL_BYTES:  # the file may have grown
                self._held = pa.py_buffer(data)


class _SourceFile(io.RawIOBase):
    """A random-access source as an open file."""

    def __init__(self, source: Bytes) -> None:
        super().__init__()
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        data = self._source.read_at(self._at, max(0, min(len(buffer), self._source.size - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextmanager
def _unpacked_xz(packed: pa.NativeFile) -> Iterator[pa.NativeFile]:
    """Decompress xz, which pyarrow does not read. Raises OSError, also later."""
    with (
        io.BufferedReader(_XzFile(packed), _READ_BYTES) as unpacked,
        pa.PythonFile(unpacked, mode="r") as stream,
    ):
        yield stream


class _XzFile(io.RawIOBase):
    """The content of an xz file. `lzma.LZMAFile` takes a damaged second stream for the end of the file."""

    def __init__(self, packed: pa.NativeFile) -> None:
        import lzma  # here: some builds of Python lack it

        super().__init__()
        self._packed, self._lzma = packed, lzma
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = packed = b""
        while not data:
            if self._stream.eof:
                packed = self._start_of_next()
                if not packed:
                    return 0
                self._stream = self._lzma.LZMADecompressor(self._lzma.FORMAT_XZ)
            elif self._stream.needs_input:
                packed = self._packed.read(_READ_BYTES)
                if not packed:
                    raise OSError("Truncated compressed stream")
            try:
                data = self._stream.decompress(packed, len(buffer))
            except self._lzma.LZMAError as error:
                raise OSError(f"xz decompress failed: {error}") from error
            packed = b""
        buffer[: len(data)] = data
        return len(data)

    def _start_of_next(self) -> bytes:
        """Read the first bytes of the next stream, after zeros between them; none at the end of the file."""
        packed = self._stream.unused_data.lstrip(b"\0")
        while not packed and (piece := self._packed.read(_READ_BYTES)):
            packed = piece.lstrip(b"\0")
        return packed


def _standard_input() -> Pipe:
    if sys.stdin is None:
        raise InputError("standard input is closed", hint="name a file, or give it something to read")
    return cast("Pipe", sys.stdin.buffer)


def compression_of(start: bytes) -> str | None:
    """Return the compression for the first bytes of a file: gzip, bz2, zstd or xz; None if none is recognised."""
    found = _MAGIC.match(start)
    return found.lastgroup if found else None


def _cause(error: BaseException) -> str:
    """Describe an error briefly, without the path, which the message already contains."""
    if isinstance(error, gzip.BadGzipFile) and str(error).startswith("Not a gzipped file"):  # it begins as one
        return "the bytes after its compressed data are not gzip"
    if isinstance(error, OSError) and error.strerror and error.errno is not None:
        return os.strerror(error.errno).lower()
    return " ".join(str(error).split()) or type(error).__name__
