"""Positions returned by clients are read as issued or refused; a changed text is never accepted."""

from __future__ import annotations

import base64
from contextlib import suppress

from aggregator.errors import InvalidRequestError
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.manifest.lineage import BEFORE, Lineage
from aggregator.streams.reading.position import Position, decode, encode

PAST = Lineage(bytes(range(8)), (BEFORE, b"mine"), {})
_PLACES = (
    Position(),
    Position({1: 0, 2: 17}),
    Position({1: 5, 300: 2**40}, {1: 9, 300: 2**62}, (-1, 1, -1)),
    Position({7: 1}, {7: 2}, (2**62, 7, 1)),
)


class _Endless(dict[int, int]):
    """Partitions with any number of records."""

    def get(self, _: int, default: int = 0) -> int:  # type: ignore[override]
        return 2**80


def seeds() -> list[bytes]:
    """Texts of positions, and their bodies."""
    texts = [encode(place, PAST).encode() for place in _PLACES]
    return [*texts, *(_body(text) for text in texts)]


def one_input(data: bytes) -> None:
    """Read the bytes as the text of a position, and as the body of one with a valid checksum."""
    _decode(data.decode("latin-1"))
    body = PAST.identity + b"mine" + data
    _decode(_text(body + checksum64(body).to_bytes(8, "little")[:6]))


def _decode(text: str) -> None:
    with suppress(InvalidRequestError):
        place = decode(text, PAST, _Endless())
        assert decode(encode(place, PAST), PAST, _Endless()) == place


def _text(stored: bytes) -> str:
    return "p1" + base64.urlsafe_b64encode(stored).decode().rstrip("=")


def _body(text: bytes) -> bytes:
    """The part of a text between the incarnation and the checksum."""
    return base64.urlsafe_b64decode(text[2:] + b"=" * (-len(text[2:]) % 4))[12:-6]
