"""Decoding of the sections of an archive: events of groupings, and index entries that point to events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from esformat.customerio.blocks import Sections
from esformat.customerio.varint import I64, U8, decode, decode_many
from esformat.errors import CorruptSegmentError

ENTRY = np.dtype([("block", "<i8"), ("offset", "<u2")])
"""An index entry: the block in which an event starts (its offset in the space), and the offset in the block's bytes."""
TIMESTAMP_BYTES = 4
_FEW_SECTIONS = 32  # more sections are walked in parallel by NumPy; fewer one at a time by Python
_WALK_BYTES = 1 << 20  # Python converts its list to an array after so many bytes: a list takes five times the memory


@dataclass(frozen=True, slots=True)
class Events:
    """Events in the order of their sections, newest first in each. All arrays have one element per event."""

    places: I64
    """The offset of each event in the sections' bytes."""
    sections: I64
    """The section number of each event."""
    seconds: I64
    data_starts: I64
    data_ends: I64


def read_events(sections: Sections) -> Events:
    """Decode the events of grouping sections. Raises CorruptSegmentError."""
    places = _event_places(sections)
    lengths, ends = decode_many(sections.array, places)
    stamps = sections.array[ends[:, None] + np.arange(TIMESTAMP_BYTES)]
    starts = ends + TIMESTAMP_BYTES
    return Events(
        places=places,
        sections=np.searchsorted(sections.starts, places, side="right") - 1,
        seconds=np.ascontiguousarray(stamps).view("<u4").reshape(-1).astype(np.int64),
        data_starts=starts,
        data_ends=starts + lengths,
    )


def _event_places(sections: Sections) -> I64:
    """Return the offsets of events, each of which gives the next: many sections in parallel, the longest one by one."""
    starts, ends = sections.starts[:-1], sections.starts[1:] - 1  # the last byte is the end mark
    if (ends <= starts).any() or sections.array[ends].any():
        raise CorruptSegmentError("a section of events does not hold events and a zero byte")
    found: list[I64] = []
    at, last = starts, ends
    going = at < last
    while going.sum() > _FEW_SECTIONS:
        at, last = at[going], last[going]
        found.append(at)
        lengths, after = decode_many(sections.array, at)
        lengths = np.minimum(lengths, len(sections.data))  # a false length must not overflow
        at = after + TIMESTAMP_BYTES + lengths
        _check_ends(at, last)
        going = at < last
    for first, end in zip(at[going].tolist(), last[going].tolist(), strict=True):
        found.extend(_walk(sections.data, first, end))
    return np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)


def _check_ends(at: I64, last: I64) -> None:
    if (at > last).any():
        raise CorruptSegmentError("an event reaches beyond its section")


def _walk(data: bytes, at: int, end: int) -> Iterator[I64]:
    """Yield the offsets of the events between two bytes. One step costs less than NumPy's cheapest call."""
    while at < end:
        places: list[int] = []
        add = places.append
        stop = min(end, at + _WALK_BYTES)
        while at < stop:
            add(at)
            length = data[at]
            if length < 0x80:
                at += 1 + TIMESTAMP_BYTES + length
            else:
                length, at = decode(data, at)
                at += TIMESTAMP_BYTES + length
        yield np.array(places, dtype=np.int64)
    if at != end:
        raise CorruptSegmentError("an event reaches beyond its section")


def read_entries(sections: Sections) -> tuple[I64, I64, I64]:
    """Decode the entries of index sections: block, offset and section number of each. Raises CorruptSegmentError."""
    lengths = np.diff(sections.starts)
    ends = sections.starts[1:] - 1
    if (lengths % ENTRY.itemsize != 1).any() or sections.array[ends].any():
        raise CorruptSegmentError("an index section does not hold whole entries and a zero byte")
    kept: U8 = np.ones(len(sections.data), dtype=np.uint8)
    kept[ends] = 0
    kept[sections.starts[-1] :] = 0
    entries = sections.array[kept.view(np.bool_)].view(ENTRY)
    numbers = np.repeat(np.arange(len(lengths)), lengths // ENTRY.itemsize)
    return entries["block"].astype(np.int64), entries["offset"].astype(np.int64), numbers


def entry_rows(events: Events, sections: Sections, blocks: I64, offsets: I64) -> I64:
    """Return the numbers of the events that start at `offsets` in `blocks`, given by their offsets in the buffer.

    Raises CorruptSegmentError if no event starts there.
    """
    numbers = np.searchsorted(sections.block_offsets, blocks)
    if not _found(sections.block_offsets, numbers, blocks):
        raise CorruptSegmentError("an index entry names a block that is none of a grouping")
    ends = np.append(sections.block_starts, sections.starts[-1])[1:]
    places = sections.block_starts[numbers] + offsets
    rows: I64 = np.searchsorted(events.places, places)
    if (places > ends[numbers]).any() or not _found(events.places, rows, places):  # end: starts the next block
        raise CorruptSegmentError("an index entry names a place where no event starts")
    return rows


def _found(ascending: I64, numbers: I64, wanted: I64) -> bool:
    """Whether each wanted value is at the position that a search returned."""
    if len(numbers) and int(numbers.max()) >= len(ascending):
        return False
    return bool((ascending[numbers] == wanted).all())
