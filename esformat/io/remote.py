"""`RemoteSource`: an object of a store as a source of bytes, which prefetches announced ranges."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import cache
from threading import Lock
from time import monotonic

from esformat.errors import CorruptSegmentError, SegmentChangedError
from esformat.io.ranges import Range, join
from esformat.io.retry import retry
from esformat.io.store import Store

HELD_BYTES = 64 << 20
"""Maximum bytes of ranges that were announced and not yet read, per source."""
STALE_SECONDS = 30.0
FETCH_THREADS = 16  # requests for announced ranges that a process sends in parallel


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """The threads that prefetch, one pool per process: threads do not survive a fork."""
    return ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="esformat-fetch")


class RemoteSource:
    """An object of a store: every read is one request, which is retried after transient failures.

    Bytes of two versions of an object are never mixed: each block's checksum is stored in the block that refers to it,
    and after a failed read or an unexpected block, `changed_error` checks whether the object has changed.
    """

    def __init__(self, store: Store, path: str) -> None:
        """Raises FileNotFoundError or another OSError; UsageError if the extra `cloud` is not installed."""
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
        """Start to fetch bytes [start, stop), which will be read soon, with one request."""
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

    def will_read_again(self, start: int, stop: int) -> None:
        """Keep announced bytes [start, stop) for one more read."""
        self._ahead.keep(start, stop)

    def changed_error(self) -> SegmentChangedError | None:
        """The error to raise instead of another if the object is gone or was replaced; else None. Takes one request."""
        try:
            now = self._store.facts(self._path)
        except OSError:  # unknown at the moment
            return None
        if now == self._facts:
            return None
        return SegmentChangedError(
            "the object was replaced or removed while it was open", path=self.name, hint="open it again"
        )


class _Piece:
    """One announced range, with the parts already taken, and the number of their bytes to be taken once more."""

    __slots__ = ("announced", "data", "once_more", "start", "stop", "taken")

    def __init__(self, start: int, stop: int, data: Future[bytes]) -> None:
        self.start, self.stop, self.data = start, stop, data
        self.taken: list[Range] = []
        self.once_more = 0
        self.announced = monotonic()

    def take(self, start: int, stop: int) -> None:
        """Note that bytes [start, stop) are taken."""
        before = sum(b - a for a, b in self.taken)
        self.taken = join([*self.taken, (start, stop)], 0)
        repeated = stop - start - (sum(b - a for a, b in self.taken) - before)
        self.once_more = max(0, self.once_more - repeated)

    @property
    def done(self) -> bool:
        """Whether all bytes were taken, as often as expected."""
        return not self.once_more and self.taken == [(self.start, self.stop)]


class ReadAhead:
    """Announced ranges that are being fetched or wait to be read.

    While they have too many bytes, no more ranges are accepted, so that later ranges do not displace those that are
    read first. Ranges that nobody reads, because a scan ended early, are dropped after a while.
    """

    def __init__(self, fetch: Callable[[int, int], bytes]) -> None:
        self._fetch = fetch
        self._pieces: OrderedDict[int, _Piece] = OrderedDict()  # by start, oldest first
        self._starts: list[int] = []
        self._held = 0
        self._lock = Lock()

    def announce(self, start: int, stop: int) -> None:
        """Start to fetch bytes [start, stop), except those that were already announced."""
        with self._lock:
            self._forget_stale()
            while start < stop and self._held < HELD_BYTES:
                here = self._piece_at(start)
                if here is not None:
                    start = here.stop
                    continue
                after = bisect_right(self._starts, start)
                end = min(stop, self._starts[after]) if after < len(self._starts) else stop
                self._pieces[start] = _Piece(start, end, _pool(os.getpid()).submit(self._fetch, start, end - start))
                self._starts.insert(after, start)
                self._held += end - start
                start = end

    def keep(self, start: int, stop: int) -> None:
        """Expect bytes [start, stop) to be taken once more, as far as they are announced."""
        with self._lock:
            while start < stop and (piece := self._piece_at(start)) is not None:
                piece.once_more += min(stop, piece.stop) - start
                start = piece.stop

    def take(self, offset: int, length: int) -> bytes | None:
        """Bytes of announced ranges, once they are fetched; None if they were not announced."""
        if not self._pieces:
            return None
        pieces: list[_Piece] = []
        with self._lock:
            at, stop = offset, offset + length
            while at < stop:
                piece = self._piece_at(at)
                if piece is None:
                    return None
                pieces.append(piece)
                at = piece.stop
            for piece in pieces:
                piece.take(max(offset, piece.start), min(stop, piece.stop))
                if piece.done:
                    self._drop(piece)
        try:
            parts = [p.data.result()[max(offset - p.start, 0) : stop - p.start] for p in pieces]
        except CancelledError:
            return None
        except BaseException:
            with self._lock:
                for piece in pieces:
                    if self._pieces.get(piece.start) is piece:
                        self._drop(piece)
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _piece_at(self, offset: int) -> _Piece | None:
        """The piece that contains byte `offset`; None if it was not announced."""
        at = bisect_right(self._starts, offset) - 1
        piece = self._pieces[self._starts[at]] if at >= 0 else None
        return piece if piece is not None and offset < piece.stop else None

    def _forget_stale(self) -> None:
        while self._pieces and self._held >= HELD_BYTES:
            oldest = next(iter(self._pieces.values()))
            if monotonic() - oldest.announced < STALE_SECONDS:
                return
            self._drop(oldest).data.cancel()

    def _drop(self, piece: _Piece) -> _Piece:
        del self._pieces[piece.start]
        self._starts.remove(piece.start)
        self._held -= piece.stop - piece.start
        return piece
