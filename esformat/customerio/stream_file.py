"""Events of a stream file and their positions; decodes many events of a stretch of the file at a time."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.customerio.layout import MAX_INDEXES
from esformat.customerio.pieces import pieces, take_pieces
from esformat.customerio.varint import I64, PADDING, decode, decode_many
from esformat.errors import CorruptSegmentError

MAGIC = b"ESDBstream"
CLOSED_MAGIC = b"closedESDBstream"
LENGTH = struct.Struct("<I")  # of an event, excluding the length field; 0 precedes the footer


class Walk(NamedTuple):
    """The offsets of the events in a stretch, the end of the last one, and why the walk stopped."""

    starts: I64
    end: int
    stop: str
    """"more" (the stretch ends in the middle of an event), "end" (on its edge), "mark" (a length of zero)."""


def walk(data: bytes, at: int) -> Walk:
    """Walk the events of a stretch; the length of each gives the offset of the next."""
    starts: list[int] = []
    add, unpack, size = starts.append, LENGTH.unpack_from, LENGTH.size
    last = len(data) - size
    stop = "end"
    while at <= last:
        (length,) = unpack(data, at)
        after = at + size + length
        if not length or after > len(data):
            stop = "more" if length else "mark"
            break
        add(at)
        at = after
    if stop == "end" and at != len(data):
        stop = "more"
    return Walk(np.array(starts, dtype=np.int64), at, stop)


class StreamEvents:
    """The events of a stretch of a stream, in arrays with one element per event."""

    def __init__(self, data: bytes, starts: I64, end: int) -> None:
        """`starts`: the offsets of the events in `data`; the last one ends at `end`. Raises CorruptSegmentError."""
        self._padded = data + PADDING
        self._array = np.frombuffer(self._padded, dtype=np.uint8)
        self.starts = starts
        self._ends = np.append(starts[1:], end)[: len(starts)]
        lengths, at = decode_many(self._array, starts + LENGTH.size)
        self._check(lengths <= self._ends - at)
        self.data_starts, self.data_ends = at, at + lengths
        self._check(self.data_ends < self._ends)
        self.rows, self.pairs, self.previous = self._read_indexes()

    def __len__(self) -> int:
        return len(self.starts)

    def data(self, rows: I64) -> pa.Array:
        """Return the payloads of these rows."""
        return take_pieces(pieces(self._padded, self.data_starts, self.data_ends), rows)

    def _read_indexes(self) -> tuple[I64, pa.DictionaryArray, I64]:
        """Decode row, `name:value` and previous event of each index entry, in row order."""
        counts, at = decode_many(self._array, self.data_ends)
        self._check(counts <= MAX_INDEXES)
        rows: list[I64] = []
        previous: list[I64] = []
        pairs: list[pa.Array] = []
        going = np.flatnonzero(counts)
        for number in range(int(counts.max(initial=0))):
            going = going[counts[going] > number]
            ends = self._ends[going]
            lengths, starts = decode_many(self._array, at[going])
            self._check(lengths <= ends - starts)
            before, after = decode_many(self._array, starts + lengths)
            self._check(after <= ends)
            texts = pieces(self._padded, starts, starts + lengths)
            pairs.append(take_pieces(texts, np.arange(len(going))))
            rows.append(going)
            previous.append(before)
            at[going] = after
        self._check(at == self._ends)
        every = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
        order = np.argsort(every, kind="stable")
        texts = pa.chunked_array(pairs, pa.binary()).combine_chunks()
        found = np.concatenate(previous)[order] if previous else every
        return every[order], pc.dictionary_encode(texts.take(pa.array(order))), found

    def _check(self, fits: np.ndarray) -> None:
        if not fits.all():
            raise CorruptSegmentError("an event of the stream does not fit its length")


def is_torn_event(data: bytes) -> bool:
    """Whether the bytes are the beginning of an incompletely written event.

    They are not if an event ends within them although its length says that it continues: then the length is wrong.
    """
    at, end = LENGTH.size, len(data)
    if end <= at:
        return True
    try:
        length, at = decode(data, at)
        at += length
        if at >= end:
            return True
        count, at = decode(data, at)
        for _ in range(min(count, MAX_INDEXES + 1)):
            length, at = decode(data, at)
            at += length
            if at >= end:
                return True
            _, at = decode(data, at)
    except CorruptSegmentError:
        return len(data) - at < len(PADDING)  # a number truncated at the end
    return False
