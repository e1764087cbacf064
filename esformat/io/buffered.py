"""Buffered reads, for callers that read most of a source in small steps: it is read in windows of some megabytes."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from esformat.errors import EsdbError
from esformat.io.source import Source

WINDOW_BYTES = 4 << 20
LEAST_WINDOW_BYTES = 64 << 10
WINDOWS_KEPT = 4
WINDOWS_AHEAD = 3
"""The next windows to announce, once windows are read in sequence."""


class Windows:
    """Reads another source in windows of equal size, and caches the last ones used. One read at a time."""

    def __init__(self, source: Source, window_bytes: int) -> None:
        self._source = source
        self._window_bytes = window_bytes
        self.name, self.size = source.name, source.size
        self._announce = getattr(source, "will_read", None)
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._last = -2  # the window fetched last
        self._lock = Lock()

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length). Raises what the source raises."""
        stop = offset + length
        if stop > self.size or length > self._window_bytes * (WINDOWS_KEPT - 1):
            return self._source.read_at(offset, length)
        first, last = offset // self._window_bytes, max(offset, stop - 1) // self._window_bytes
        with self._lock:
            parts = [self._window(number) for number in range(first, last + 1)]
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        at = offset - first * self._window_bytes
        return whole[at : at + length]

    def changed_error(self) -> EsdbError | None:
        """The result of the source's `changed_error`; None if it has no such method."""
        look = getattr(self._source, "changed_error", None)
        return None if look is None else look()

    def _window(self, number: int) -> bytes:
        found = self._kept.get(number)
        if found is None:
            if self._announce is not None and number == self._last + 1:
                for following in range(number, number + 1 + WINDOWS_AHEAD):
                    if following not in self._kept:
                        self._announce(*self._range(following))
            start, stop = self._range(number)
            found = self._kept[number] = self._source.read_at(start, stop - start)
            self._last = number
            if len(self._kept) > WINDOWS_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return found

    def _range(self, number: int) -> tuple[int, int]:
        start = number * self._window_bytes
        return min(start, self.size), min(start + self._window_bytes, self.size)


def in_windows(source: Source, among: int = 1) -> Source:
    """The source itself if reads are cheap; a source that reads it in windows if each read is a request.

    among: the number of sources read at the same time; the memory of all their windows does not grow with it.
    """
    if not hasattr(source, "will_read"):
        return source
    return Windows(source, max(LEAST_WINDOW_BYTES, WINDOW_BYTES // among))
