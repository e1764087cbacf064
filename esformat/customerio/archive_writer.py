"""Encoding of checked events as an archive, a few whole spaces at a time to limit memory.

Two constraints of the Go reader: it takes an index entry whose block offset is a multiple of 256 as the end of the
index, so no block of events begins at one; and index blocks contain whole entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.customerio.archive_file import LENGTH, SPACE_MARK
from esformat.customerio.archive_sections import ENTRY
from esformat.customerio.blocks import write_section
from esformat.customerio.sst import Pair, encode_table
from esformat.customerio.varint import I64, encode, encode_many
from esformat.errors import InvalidEventError
from esformat.format.order import rank


class ArchiveBuilder:
    """Writes spaces to a file as they are added, and their table at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = 0
        self._spaces: list[Pair] = []

    def add(self, events: pa.Table, seconds: I64) -> None:
        """Write whole spaces: checked events in any order, but after all spaces written before."""
        for key, stored in write_spaces(events, seconds):
            if self._spaces and key <= self._spaces[-1][0]:
                raise InvalidEventError(f"space {key!r} comes after {self._spaces[-1][0]!r}", hint="sort the events")
            self._spaces.append((key, LENGTH.pack(self._size) + LENGTH.pack(len(stored))))
            self._file.write(stored)
            self._size += len(stored)

    def finish(self) -> None:
        """Write the table of spaces after the last space."""
        table = encode_table(self._spaces)
        self._file.write(table + LENGTH.pack(len(table)))


class _Placed(NamedTuple):
    """Events of some spaces encoded as sections, and the position of each input row in them."""

    blocks: I64
    """The offset in the space of the block in which each row begins."""
    offsets: I64
    """The offset of each row in that block's bytes."""
    sections: list[list[tuple[bytes, bytes]]]
    """The key and stored bytes of each section, by space."""


def write_spaces(events: pa.Table, seconds: I64) -> Iterator[Pair]:
    """Yield the key and stored bytes of each space, in key order."""
    spaces = rank(events["space"])
    placed = _write_events(events, seconds, spaces.ranks, len(spaces.values))
    for number, key, section in _index_sections(events, seconds, spaces.ranks, placed):
        entries = write_section(memoryview(section), 0, entry_bytes=ENTRY.itemsize)
        placed.sections[number].append((key, b"".join(block for block, _ in entries)))
    for key, sections in zip(spaces.values.to_pylist(), placed.sections, strict=True):
        at = 1
        directory = []
        for name, stored in sections:
            directory.append((name, encode(at) + encode(len(stored))))
            at += len(stored)
        table = encode_table(directory)
        yield key, b"".join([bytes([SPACE_MARK]), *(stored for _, stored in sections), table, LENGTH.pack(len(table))])


def _write_events(events: pa.Table, seconds: I64, spaces: I64, space_count: int) -> _Placed:
    groupings = rank(events["grouping"])
    order = np.lexsort((-seconds, groupings.ranks, spaces))  # ties keep insertion order
    of_space, of_grouping = spaces[order], groupings.ranks[order]
    first = np.append(True, (of_space[1:] != of_space[:-1]) | (of_grouping[1:] != of_grouping[:-1]))[: len(order)]
    last = np.append(first[1:], True)[: len(order)]
    stored = _section_bytes(events["data"], seconds, order, last)
    places = np.frombuffer(stored.buffers()[1], dtype=np.int64)[stored.offset : stored.offset + len(order) + 1]
    payload = memoryview(stored.buffers()[2] or b"")
    names = groupings.values.to_pylist()

    sections: list[list[tuple[bytes, bytes]]] = [[] for _ in range(space_count)]
    block_starts: list[int] = []
    block_offsets: list[int] = []
    space, origin = -1, 1
    starts, ends = places[:-1][first].tolist(), places[1:][last].tolist()
    owners, groups = of_space[first].tolist(), of_grouping[first].tolist()
    for start, end, owner, group in zip(starts, ends, owners, groups, strict=True):
        if owner != space:
            space, origin = owner, 1
        blocks = []
        at = start
        for block, taken in write_section(payload[start:end], origin, avoid_markers=True):
            block_starts.append(at)
            block_offsets.append(origin)
            blocks.append(block)
            at += taken
            origin += len(block)
        sections[owner].append((b"g" + names[group], b"".join(blocks)))

    found = np.searchsorted(block_starts, places[:-1], side="right") - 1
    edges = np.array(block_starts, dtype=np.int64)
    found -= (edges[found] == places[:-1]) & ~first  # as in Go: the previous block was full, not yet written
    blocks_of, offsets_of = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    blocks_of[order] = np.array(block_offsets, dtype=np.int64)[found]
    offsets_of[order] = places[:-1] - edges[found]
    return _Placed(blocks_of, offsets_of, sections)


def _section_bytes(data: pa.ChunkedArray, seconds: I64, order: I64, last: np.ndarray) -> pa.Array:
    """Encode each event as in a section, with the end mark after the last one of each section; one contiguous array."""
    payloads = data.combine_chunks().cast(pa.large_binary()).take(pa.array(order))
    lengths = encode_many(np.asarray(pc.binary_length(payloads).to_numpy()).astype(np.int64)).cast(pa.large_binary())
    stamps = np.ascontiguousarray(seconds[order].astype("<u4"))
    times = pa.Array.from_buffers(pa.binary(4), len(order), [None, pa.py_buffer(stamps)]).cast(pa.large_binary())
    marks = pa.array([b"", b"\0"], pa.large_binary()).take(pa.array(last.astype(np.int64)))
    return pc.binary_join_element_wise(lengths, times, payloads, marks, pa.scalar(b"", pa.large_binary()))


def _index_sections(events: pa.Table, seconds: I64, spaces: I64, placed: _Placed) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the space, key and bytes of each index section, sorted by space and key; newest entries first."""
    keys: list[bytes] = []
    rows, pairs = [], []
    for name in events.column_names:
        if name.startswith("i"):
            values = rank(events[name])
            having = np.flatnonzero(values.ranks >= 0)
            rows.append(having)
            pairs.append(values.ranks[having] + len(keys))
            keys += [name.encode() + b":" + value for value in values.values.to_pylist()]
    if not keys:
        return
    by_key = sorted(range(len(keys)), key=keys.__getitem__)
    places = np.empty(len(keys), dtype=np.int64)
    places[by_key] = np.arange(len(keys))
    row, pair = np.concatenate(rows), places[np.concatenate(pairs)]
    order = np.lexsort((row, -seconds[row], pair, spaces[row]))
    row, pair = row[order], pair[order]
    entries = np.empty(len(row), dtype=ENTRY)
    entries["block"], entries["offset"] = placed.blocks[row], placed.offsets[row]
    stored = entries.tobytes()
    owner = spaces[row]
    starts = np.flatnonzero(np.append(True, (owner[1:] != owner[:-1]) | (pair[1:] != pair[:-1]))[: len(row)])
    edges = (np.append(starts, len(row)) * ENTRY.itemsize).tolist()
    for number, start in enumerate(starts.tolist()):
        section = stored[edges[number] : edges[number + 1]] + b"\0"
        yield int(owner[start]), keys[by_key[pair[start]]], section
