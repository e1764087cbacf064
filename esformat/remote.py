"""`RemoteSource`: an object of a store as a source of bytes, with ranges fetched before they are asked for."""

from __future__ import annotations

import os
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import cache
from threading import Lock

from esformat.errors import CorruptSegmentError, SegmentChangedError
from esformat.retry import retry
from esformat.store import Store

HELD_BYTES = 64 << 20
"""What a source holds at most of ranges that were announced and not yet read."""
FETCH_THREADS = 16  # requests that a process has under way for announced ranges


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """The threads that fetch ahead, one pool a process: threads do not survive a fork."""
    return ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="esformat-fetch")


class RemoteSource:
    """An object of a store: every read is one request, tried again after failures that may pass.

    Bytes of two versions of an object are never mixed: each block's checksum stands in the block that leads to it, and
    a read that fails, or a block that is not the expected one, makes it look again (`changed_error`).
    """

    def __init__(self, store: Store, path: str) -> None:
        """Raises FileNotFoundError or another OSError; UsageError where the extra `cloud` is not installed."""
        self._store, self._path = store, path
        self.name = store.name_of(path)
        self._facts, self._read = retry(store.open, path)
        self.size = self._facts.size
        self._ahead = ReadAhead(self._fetch)

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length). Raises CorruptSegmentError, SegmentChangedError, OSError."""
        found = self._ahead.take(offset, length)
        return self._fetch(offset, length) if found is None else found

    def will_read(self, start: int, stop: int) -> None:
        """Begin to fetch bytes [start, stop) with one request: they will be read soon."""
        self._ahead.announce(start, min(stop, self.size))

    def _fetch(self, offset: int, length: int) -> bytes:
        if not length:
            return b""
        try:
            data = retry(self._read, offset, length)
        except OSError as error:
            raise self.changed_error() or error from None
        if len(data) != length:
            raise self.changed_error() or CorruptSegmentError(
                f"the object ends {length - len(data)} bytes early", path=self.name, offset=offset + len(data)
            )
        return data

    def changed_error(self) -> SegmentChangedError | None:
        """What to raise instead of an odd answer: the object is gone or another one by now. One request."""
        if retry(self._store.facts, self._path) == self._facts:
            return None
        return SegmentChangedError(
            "the object was replaced or removed while it was open", path=self.name, hint="open it again"
        )


class _Piece:
    """One announced range. `left`: bytes of it that nobody has read."""

    __slots__ = ("data", "left", "start", "stop")

    def __init__(self, start: int, stop: int, data: Future[bytes]) -> None:
        self.start, self.stop, self.data = start, stop, data
        self.left = stop - start


class ReadAhead:
    """Announced ranges that are being fetched or wait to be read; the oldest give way when there are too many."""

    def __init__(self, fetch: Callable[[int, int], bytes]) -> None:
        self._fetch = fetch
        self._pieces: OrderedDict[int, _Piece] = OrderedDict()  # by start, oldest first
        self._starts: list[int] = []
        self._held = 0
        self._lock = Lock()

    def announce(self, start: int, stop: int) -> None:
        """Begin to fetch bytes [start, stop), unless they are here already."""
        with self._lock:
            if stop <= start or start in self._pieces or self._covering(start, stop) is not None:
                return
            self._pieces[start] = _Piece(start, stop, _pool(os.getpid()).submit(self._fetch, start, stop - start))
            insort(self._starts, start)
            self._held += stop - start
            while self._held > HELD_BYTES and len(self._pieces) > 1:
                self._drop(next(iter(self._pieces.values()))).data.cancel()

    def take(self, offset: int, length: int) -> bytes | None:
        """Bytes of an announced range, once they have come; None where nobody announced them."""
        if not self._pieces:
            return None
        with self._lock:
            piece = self._covering(offset, offset + length)
            if piece is None:
                return None
            piece.left -= length
            if piece.left <= 0:
                self._drop(piece)
        try:
            data = piece.data.result()
        except CancelledError:
            return None
        except BaseException:
            with self._lock:
                if self._pieces.get(piece.start) is piece:
                    self._drop(piece)
            raise
        at = offset - piece.start
        return data if len(data) == length else data[at : at + length]

    def _covering(self, start: int, stop: int) -> _Piece | None:
        at = bisect_right(self._starts, start) - 1
        piece = self._pieces[self._starts[at]] if at >= 0 else None
        return piece if piece is not None and stop <= piece.stop else None

    def _drop(self, piece: _Piece) -> _Piece:
        del self._pieces[piece.start]
        self._starts.remove(piece.start)
        self._held -= piece.stop - piece.start
        return piece
