"""Where messages of syslog end in a stream of bytes: counted, or a line each."""

from __future__ import annotations

import re

MAX_MESSAGE_BYTES = 65_536
"""What is longer is cut there, and marked."""


class Framer:
    """Messages out of the bytes of a TCP connection: counted octets where a count stands first, else up to line ends.

    Holds at most one message of MAX_MESSAGE_BYTES.
    """

    _COUNT = re.compile(rb"([1-9]\d{0,8}) (?=<)")

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._left: int | None = None  # of a counted message, behind what is held; None: it ends with its line
        self._dropping = False  # the message was given, cut; its end is looked for

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """Messages that end in `data`, and whether each was cut."""
        self._held += data
        found: list[tuple[bytes, bool]] = []
        while self._held and self._step(found):
            pass
        return found

    def finish(self) -> list[tuple[bytes, bool]]:
        """What is held when the connection ends: a last line without its end; half a counted message, cut."""
        held, self._held = bytes(self._held), bytearray()
        return [(held, self._left is not None)] if held.strip() and not self._dropping else []

    def _step(self, found: list[tuple[bytes, bool]]) -> bool:
        """Take one thing off what is held; False where more bytes are needed."""
        if self._left is not None:
            return self._counted(self._left, found)
        if not self._dropping:
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
        if self._dropping:
            gone = min(left, len(self._held))
            del self._held[:gone]
            self._left = left - gone
            if self._left:
                return False
            self._left, self._dropping = None, False
            return True
        wanted = min(left, self._max_bytes)
        if len(self._held) < wanted:
            return False
        found.append((bytes(self._held[:wanted]), left > wanted))
        del self._held[:wanted]
        self._left, self._dropping = (left - wanted, True) if left > wanted else (None, False)
        return True

    def _line(self, found: list[tuple[bytes, bool]]) -> bool:
        line = self._held.find(b"\n")
        null = self._held.find(b"\0", 0, line if line >= 0 else len(self._held))
        end = null if null >= 0 else line
        if self._dropping:
            del self._held[: end + 1 if end >= 0 else len(self._held)]
            self._dropping = end < 0
            return end >= 0
        if end < 0 and len(self._held) <= self._max_bytes:
            return False
        size = end if 0 <= end <= self._max_bytes else self._max_bytes
        found.append((bytes(self._held[:size]), size != end))
        self._dropping = size != end
        del self._held[: size if self._dropping else size + 1]
        return True
