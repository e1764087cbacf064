"""The framing of syslog messages in a stream of bytes: octet counting, or one message per line."""

from __future__ import annotations

import re

MAX_MESSAGE_BYTES = 65_536
"""Longer messages are split into parts of this size; all but the last are marked as truncated."""
_HALF = re.compile(rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z")
"""An incomplete UTF-8 character at the end."""


class Framer:
    """Splits the bytes of a TCP connection into messages: octet counting if a count precedes, else up to line ends.

    Buffers at most one message of MAX_MESSAGE_BYTES. It skips no bytes: with a wrong count or a missing line end,
    everything after it would be lost.
    """

    _COUNT = re.compile(rb"([1-9]\d{0,8}) (?=<)")

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._left: int | None = None  # bytes left of a counted message; None: it ends with its line

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Return the messages that end in `data`, each with whether it was truncated."""
        self._held += data
        found: list[tuple[bytes, bool]] = []
        while self._held and self._step(found):
            pass
        return found

    def finish(self) -> list[tuple[bytes, bool]]:
        """Return what is buffered when the connection ends: a last line, or part of a counted message."""
        held, self._held = bytes(self._held), bytearray()
        cut = self._left is not None
        return [(_whole_characters(held) if cut else held, cut)] if held.strip() else []

    def _step(self, found: list[tuple[bytes, bool]]) -> bool:
        """Consume one item of the buffer; return False if more bytes are needed."""
        if self._left is not None:
            return self._counted(self._left, found)
        if self._held[0] in b"\n\r\0":
            del self._held[:1]
            return True
        count = self._COUNT.match(self._held)
        if count is not None:
            self._left = int(count[1])
            del self._held[: count.end()]
            return True
        if len(self._held) < 12 and re.fullmatch(rb"[1-9]\d{0,8} ?", self._held):
            return False
        return self._line(found)

    def _counted(self, left: int, found: list[tuple[bytes, bool]]) -> bool:
        if len(self._held) < min(left, self._max_bytes):
            return False
        self._left = left - self._give(left, found) or None
        return True

    def _line(self, found: list[tuple[bytes, bool]]) -> bool:
        line = self._held.find(b"\n")
        null = self._held.find(b"\0", 0, line if line >= 0 else len(self._held))
        end = null if null >= 0 else line
        if end < 0 and len(self._held) <= self._max_bytes:
            return False
        self._give(end if end >= 0 else len(self._held), found)
        return True

    def _give(self, size: int, found: list[tuple[bytes, bool]]) -> int:
        """Move a message, or its first part, out of the buffer without splitting a character; return its size."""
        message = bytes(self._held[: min(size, self._max_bytes)])
        cut = len(message) < size
        if cut:
            message = _whole_characters(message)
        found.append((message, cut))
        del self._held[: len(message)]
        return len(message)


def _whole_characters(message: bytes) -> bytes:
    """Return the text without an incomplete character at its end."""
    half = _HALF.search(message, max(0, len(message) - 3))
    return message if half is None else message[: half.start() or None]
