"""A source read through windows of some megabytes: for who reads nearly everything of it, in small pieces."""

from __future__ import annotations

from collections import OrderedDict

from esformat.source import Source

WINDOW_BYTES = 4 << 20
WINDOWS_KEPT = 4
WINDOWS_AHEAD = 3
"""So many of those that follow are asked for early, as soon as windows are read in turn."""


class Windows:
    """Another source, whose bytes come in windows of equal size; the last ones used are kept. For one thread."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name, self.size = source.name, source.size
        self._announce = getattr(source, "will_read", None)
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._last = -2  # the window that was fetched last

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length). Raises what the source does."""
        stop = offset + length
        if stop > self.size or length > WINDOW_BYTES * (WINDOWS_KEPT - 1):
            return self._source.read_at(offset, length)
        first, last = offset // WINDOW_BYTES, max(offset, stop - 1) // WINDOW_BYTES
        parts = [self._window(number) for number in range(first, last + 1)]
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        at = offset - first * WINDOW_BYTES
        return whole[at : at + length]

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
        start = number * WINDOW_BYTES
        return min(start, self.size), min(start + WINDOW_BYTES, self.size)


def in_windows(source: Source) -> Source:
    """The source itself where reading is cheap; in windows where each read is a request."""
    return Windows(source) if hasattr(source, "will_read") else source
