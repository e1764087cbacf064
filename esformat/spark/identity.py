"""Identities of files, independent of name and location, by which jobs and streams recognise what they have read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from esformat.format.checksum import checksum64
from esformat.io.location import Place, source_of
from esformat.read.segment import Segment, open_segment

MADE_FROM = "made_from"
"""The property of a segment that a job made from others: its number of events and the identities of the originals."""
WHOLE_BYTES = 8 << 20
"""Files of other formats up to this size are hashed whole; of larger ones, the ends and samples in between."""
_ENDS_BYTES = 1 << 20
_SAMPLES, _SAMPLE_BYTES = 64, 16 << 10
_TAIL_BYTES = 64 << 10  # of a segment: footer and directory checksums, which cover all blocks
_MANY = 3  # identities listed in a message


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a segment's events. identities: of the original files; an original segment has its own."""

    events: int
    identities: tuple[str, ...]

    def as_property(self, events: int | None = None) -> dict[str, str]:
        """The property of a segment with `events` of these events; None: all of them."""
        return {MADE_FROM: " ".join([str(self.events if events is None else events), *self.identities])}


def content_identity(path: str) -> str:
    """The identity of a file of another format: its size and a hash of its content. Raises OSError."""
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        return _named(size, file.read() if size <= WHOLE_BYTES else _sampled(file, size))


def _sampled(file: BinaryIO, size: int) -> bytes:
    step = (size - 2 * _ENDS_BYTES) // _SAMPLES
    places = [(0, _ENDS_BYTES), *((_ENDS_BYTES + step * number, _SAMPLE_BYTES) for number in range(_SAMPLES))]
    content = []
    for offset, length in [*places, (size - _ENDS_BYTES, _ENDS_BYTES)]:
        file.seek(offset)
        content.append(file.read(length))
    return b"".join(content)


def origin_of(place: Place) -> Origin:
    """Read the origin of a segment's events. Raises OSError, CorruptSegmentError."""
    with open_segment(place, cache_bytes=0) as segment:
        return Origin(segment.num_events, _noted(segment) or (segment_identity(place),))


def segment_identity(place: Place) -> str:
    """The identity of a segment file: its size and a hash of its end, which depends on all its checksums."""
    source = source_of(place)
    length = min(source.size, _TAIL_BYTES)
    return _named(source.size, source.read_at(source.size - length, length))


def _noted(segment: Segment) -> tuple[str, ...]:
    """The originals recorded in a segment's property.

    A property copied to a part of that segment, which has fewer events, is ignored.
    """
    count, *identities = segment.properties.get(MADE_FROM, "").split() or [""]
    return tuple(identities) if count == str(segment.num_events) else ()


def joined(origins: list[Origin]) -> Origin:
    """The origin of a segment that was merged from all of these."""
    identities = dict.fromkeys(identity for origin in origins for identity in origin.identities)
    return Origin(sum(origin.events for origin in origins), tuple(identities))


def _named(size: int, content: bytes) -> str:
    return f"{size:x}-{checksum64(content):016x}"
