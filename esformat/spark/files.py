"""Which segments the paths of a read name, as places that tasks can be told of."""

from __future__ import annotations

from collections.abc import Sequence

from esformat.location import Place, StoredAt
from esformat.location import segments_at as places_at
from esformat.remote import RemoteSource
from esformat.segment import Segment, open_segment


def segments_at(paths: Sequence[str]) -> list[Place]:
    """The segments that files, directories, patterns and prefixes of object stores name, each once, in order.

    Raises UsageError where a path names nothing.
    """
    return [place for place in places_at(list(paths)) if isinstance(place, str | StoredAt)]


def open_place(place: Place, *, cache_bytes: int) -> Segment:
    """The segment at a place."""
    source = RemoteSource(place.store, place.path) if isinstance(place, StoredAt) else place
    return open_segment(source, cache_bytes=cache_bytes)


def name_of(place: Place) -> str:
    """The place as messages show it."""
    return place.name if isinstance(place, StoredAt) else place
