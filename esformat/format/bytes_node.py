"""Nodes of strings and binary, opened: which frames contain which values, so that a read decompresses few of them."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from esformat.core.bytes_nodes import LAST_CODEC
from esformat.core.caches import Cache
from esformat.core.values import FrameValues, cut, cut_places, cut_short, short_offsets, total
from esformat.errors import CorruptSegmentError, UnsupportedVersionError
from esformat.format.codec import Decompressor
from esformat.format.layout import MAX_FRAME_BYTES
from esformat.format.node import FRAMES, MAX_FRAME_ROWS, DecodeContext, Shape, read_head
from esformat.format.packing import decode_ints, plane_bytes, read_pack

FEW_FRAMES = 4  # up to this many frames, one call per frame is faster than one call for all
_ENTRY_TYPES = {2: "H", 4: "I"}  # entry types of a frame table, by their size in bytes


class BytesNode:
    """A node of lengths and bytes, opened: it knows which frames contain which rows, but has decoded nothing yet.

    It contains no decompressor, so threads may share it; its methods take the caller's context.
    """

    __slots__ = (
        "_ends",
        "_seen",
        "at",
        "body",
        "cached_rows",
        "codec",
        "count",
        "edges",
        "end",
        "head",
        "key",
        "length_bytes",
        "lengths",
        "rows",
        "short",
        "table",
    )

    def __init__(self, body: memoryview, at: int, count: int, context: DecodeContext, key: Hashable = None) -> None:
        """`key` identifies the node in a cache. Raises CorruptSegmentError for a broken frame table."""
        self.key = key
        head = read_head(body, at, count, context.plain)
        rows = head.frame_rows
        if head.shape != 4 or not 0 < rows <= MAX_FRAME_ROWS:
            raise CorruptSegmentError(f"a column node has shape {head.shape}, expected {Shape.BYTES:d}")
        self.body, self.head, self.count, self.rows = body, head, count, rows
        self.lengths = lengths = read_pack(body, head.at, count)
        self.edges: npt.NDArray[np.int64] | None = None
        self.length_bytes: bytes | None = None
        self.cached_rows: FrameValues | None = None
        """Serves later reads without this class. None before the first read, and if the node has nulls."""
        self._seen: bytearray | None = None  # one byte per frame, 1 if a read needed it before
        self.short = lengths.width == 1 and not lengths.base  # lengths below 256, one byte each
        frames = -(-count // rows)
        try:
            self.codec, width = FRAMES.unpack_from(body, lengths.end)
        except struct.error:
            raise CorruptSegmentError("a frame table is cut short") from None
        if self.codec > LAST_CODEC:
            raise UnsupportedVersionError(f"unknown codec {self.codec}", hint="read the file with a newer esformat")
        if width not in _ENTRY_TYPES:
            raise CorruptSegmentError(f"a frame table has entries of {width} bytes")
        self.at = lengths.end + 2 + width * frames
        if self.at > len(body):
            raise CorruptSegmentError("a frame table is cut short")
        if frames <= FEW_FRAMES:
            self.table: Sequence[int] = struct.unpack_from(f"<{frames}{_ENTRY_TYPES[width]}", body, lengths.end + 2)
            self._ends: Sequence[int] = list(accumulate(self.table))
        else:  # arrays, not Python integers: a read needs few of the entries, anywhere in the table
            table = np.frombuffer(body, f"<{_ENTRY_TYPES[width]}", frames, lengths.end + 2).astype(np.int64)
            self.table = table.data
            self._ends = np.add.accumulate(table).data
        self.end = self.at + self._ends[-1] if frames else self.at
        if self.end > len(body):
            raise CorruptSegmentError("frames reach beyond their block")

    def validity(self, low: int, high: int) -> npt.NDArray[np.uint8] | None:
        """One byte for each of the rows [low, high), 1 if its value is valid; None if the whole node is valid."""
        return None if self.head.valid is None else self.head.valid[low:high]

    def decompressor(self, context: DecodeContext) -> Decompressor:
        """The decompressor for the node's frames."""
        return context.framed if self.head.needs_dictionary else context.plain

    def all_lengths(self, context: DecodeContext) -> npt.NDArray[np.integer[Any]]:
        """The length of every value, as uint8 if they are stored as bytes.

        Raises CorruptSegmentError if a length is out of bounds.
        """
        if self.short:
            return np.frombuffer(plane_bytes(self.body, self.lengths, context.plain), np.uint8)
        return check_lengths(decode_ints(self.body, self.lengths, context.plain))

    def stored_frames(self, frames: Sequence[int]) -> list[memoryview]:
        """The stored bytes of some frames."""
        return [self._stored(frame, frame + 1) for frame in frames]

    def _stored(self, first: int, last: int) -> memoryview:
        """The stored bytes of frames [first, last)."""
        at, ends = self.at, self._ends
        return self.body[at + ends[first - 1] if first else at : at + ends[last - 1]]

    def values(self, low: int, high: int, context: DecodeContext, frames: Cache) -> list[bytes | None]:
        """Values [low, high) as Python bytes. Decompresses only frames that contain them and are not in `frames`."""
        rows = self.rows
        first, last = low // rows, -(-high // rows)
        values: list[Any]
        if last - first == 1 and self.short:
            lengths, stored = self._frame(first, context, frames)
            values = cut_short(stored, lengths, first * rows, low, high)
        else:
            edges = self.edges_of_values(context)
            values = cut(self._span(first, last, edges, context, frames), edges, low, high, edges[first * rows])
        if self.head.valid is not None:
            return self._with_nulls(values, range(low, high))
        if self.cached_rows is None:
            known = self.length_bytes
            self.cached_rows = FrameValues(frames.shelf, self.key, rows, known, self.edges if known is None else None)
        return values

    def offsets_and_bytes(
        self, low: int, high: int, context: DecodeContext, frames: Cache
    ) -> tuple[bytes | npt.NDArray[np.int32], bytes]:
        """Values [low, high) in Arrow's layout: offsets (one more than values), and the bytes to which these refer."""
        first, last = low // self.rows, -(-high // self.rows)
        if last - first == 1 and self.short:
            lengths, stored = self._frame(first, context, frames)
            return short_offsets(lengths, first * self.rows, low, high), stored
        edges = self.edges_of_values(context)
        stored = self._span(first, last, edges, context, frames)
        return (edges[low : high + 1] - edges[first * self.rows]).astype(np.int32), stored

    def chosen_values(self, places: list[int], context: DecodeContext, frames: Cache) -> list[bytes | None]:
        """The values at ascending places as Python bytes. Decompresses only the frames that contain them."""
        rows = self.rows
        values: list[Any]
        first = places[0] // rows
        if self.short and places[-1] // rows == first:
            lengths, stored = self._frame(first, context, frames)
            near = cut_short(stored, lengths, first * rows, places[0], places[-1] + 1)
            values = [near[place - places[0]] for place in places]
            return values if self.head.valid is None else self._with_nulls(values, places)
        edges = self.edges_of_values(context)
        numbers = list(dict.fromkeys(place // rows for place in places))
        held: list[Any] = [None] * (places[-1] // rows + 1 - first)
        for number, frame in zip(numbers, self._frames(numbers, edges, context, frames), strict=True):
            held[number - first] = frame
        values = cut_places(held, first, rows, edges, places)
        return values if self.head.valid is None else self._with_nulls(values, places)

    def _frame(self, number: int, context: DecodeContext, frames: Cache) -> tuple[bytes, bytes]:
        """For a node with short values: the lengths of all values, and the uncompressed bytes of one frame, which is
        cached when it is read for the second time.
        """
        if self.length_bytes is None:
            self.length_bytes = plane_bytes(self.body, self.lengths, context.plain)
        start = number * self.rows
        size = total(self.length_bytes, start, start + self.rows)
        key = (self.key, number)
        stored: bytes | None = frames.find(key)
        if stored is None:
            stored = self.decompressor(context).decompress(self.codec, self._stored(number, number + 1), size)
            if self._seen is None:
                self._seen = bytearray(len(self.table))
            if self._seen[number]:
                frames.keep(key, stored, len(stored))
            else:  # most frames are needed only once, and reused memory is faster than new memory
                self._seen[number] = 1
        return self.length_bytes, stored

    def edges_of_values(self, context: DecodeContext) -> npt.NDArray[np.int64]:
        """The offset of each value in the bytes of all values, followed by the end of the last one; cached."""
        if self.edges is None:
            edges = np.zeros(self.count + 1, dtype=np.int64)
            np.cumsum(self.all_lengths(context), out=edges[1:])
            if int(edges[-1]) > MAX_FRAME_BYTES:
                raise CorruptSegmentError("the lengths of a block's values are out of bounds")
            self.edges = edges
        return self.edges

    def _span(
        self, first: int, last: int, edges: npt.NDArray[np.int64], context: DecodeContext, frames: Cache
    ) -> bytes:
        """The uncompressed bytes of frames [first, last)."""
        if last - first == 1 and (known := frames.find((self.key, first))) is not None:
            return known  # type: ignore[no-any-return]
        held = self._frames(range(first, last), edges, context, frames)
        return held[0] if len(held) == 1 else b"".join(held)

    def _frames(
        self, numbers: Sequence[int], edges: npt.NDArray[np.int64], context: DecodeContext, frames: Cache
    ) -> list[Any]:
        """Some frames, ascending, decompressed: with one call if many are missing from the cache."""
        key, rows = self.key, self.rows
        known: list[Any] = [frames.find((key, number)) for number in numbers]
        missing = [place for place, frame in enumerate(known) if frame is None]
        if not missing:
            return known
        wanted = np.array([numbers[place] for place in missing])
        sizes = (edges[np.minimum((wanted + 1) * rows, self.count)] - edges[wanted * rows]).tolist()
        stored = self.stored_frames(wanted.tolist())
        decompressor = self.decompressor(context)
        if len(missing) > FEW_FRAMES:
            out = bytearray(sum(sizes))
            decompressor.decompress_run(
                self.codec, memoryview(b"".join(stored)), list(map(len, stored)), sizes, memoryview(out)
            )
            made = [bytes(out[end - size : end]) for end, size in zip(accumulate(sizes), sizes, strict=True)]
        else:
            made = [decompressor.decompress(self.codec, *each) for each in zip(stored, sizes, strict=True)]
        for place, frame in zip(missing, made, strict=True):
            known[place] = frame
            frames.keep((key, numbers[place]), frame, len(frame))
        return known

    def _with_nulls(self, values: list[bytes | None], places: Sequence[int]) -> list[bytes | None]:
        valid = self.head.valid
        assert valid is not None
        return [value if valid[place] else None for value, place in zip(values, places, strict=True)]


def check_lengths(lengths: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `lengths`. Raises CorruptSegmentError if one of them is negative or absurdly large."""
    if not len(lengths) or lengths.dtype == np.uint8:
        return lengths
    if np.minimum.reduce(lengths) < 0 or np.maximum.reduce(lengths) > MAX_FRAME_BYTES:
        raise CorruptSegmentError("a stored length is out of bounds")
    return lengths


def frame_sizes(lengths: npt.NDArray[np.integer[Any]], rows: int) -> npt.NDArray[np.int64]:
    """The uncompressed size of every frame, in bytes, from the lengths of all values."""
    if not len(lengths):
        return np.zeros(0, dtype=np.int64)
    sizes: npt.NDArray[np.int64] = np.add.reduceat(lengths, np.arange(0, len(lengths), rows), dtype=np.int64)
    if int(sizes.sum()) > MAX_FRAME_BYTES:
        raise CorruptSegmentError("the lengths of a block's values are out of bounds")
    return sizes
