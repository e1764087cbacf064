"""Sort the rows of an index, which arrive in row order, by value in bounded memory.

The rows of each step are grouped by value. When too many are in memory, they are merged and spilled as a sorted run.
Finally the spill files are merged: each step takes the values up to which all files have been read. A value may
continue in the next chunk of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.format.arrays import is_bytes
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.order import Ranked, rank
from esformat.format.packing import decode_ints, encode_ints, read_pack
from esformat.io.temp_file import SpillFile
from esformat.write.block_encoder import I64
from esformat.write.index_builder import IndexRows

CHUNK_ROWS = 16 << 10
FAN_IN = 64
_ROW_BYTES = 32  # approximate: a row number, and a short value with its count
_VALUES, _COUNTS, _ROWS = range(3)


class IndexSorter:
    """Collects the rows of one index, then returns them by value."""

    def __init__(self, directory: Path, most_bytes: int) -> None:
        """`most_bytes`: the memory to fill before rows are spilled to `directory`."""
        self._directory = directory
        self._most_bytes = most_bytes
        self._chunk_rows = max(1, min(most_bytes // (FAN_IN * _ROW_BYTES), CHUNK_ROWS))
        self._held: list[IndexRows] = []
        self._held_bytes = 0
        self._spills: list[tuple[int, SpillFile]] = []  # with the number of times it was merged

    def add(self, ranked: Ranked, first_row: int) -> None:
        """Add the values of the next rows, in row order. Raises OSError."""
        part = group_rows(ranked, first_row)
        if not len(part.values):
            return
        self._held.append(part)
        self._held_bytes += _size(part)
        if self._held_bytes > self._most_bytes:
            self._spill()

    def _spill(self) -> None:
        spill = SpillFile(self._directory)
        self._spills.append((0, spill))
        self._write(spill, [_merge(self._held)])
        self._held, self._held_bytes = [], 0
        while len(self._spills) >= FAN_IN and self._spills[-FAN_IN][0] == self._spills[-1][0]:
            self._compact(FAN_IN)

    def _write(self, spill: SpillFile, parts: Iterable[IndexRows]) -> None:
        for part in parts:
            for first, last in _cut(part, self._chunk_rows):
                spill.append(*_encode(_slice(part, first, last)))

    def _compact(self, count: int) -> None:
        """Merge the last `count` spill files into one."""
        last = self._spills[-count:]
        spill = SpillFile(self._directory)
        try:
            self._write(spill, _merge_spills([file for _, file in last], []))
        except BaseException:
            spill.close()
            raise
        for _, file in last:
            file.close()
        self._spills[-count:] = [(max(level for level, _ in last) + 1, spill)]

    def chunks(self) -> Iterator[IndexRows]:
        """All rows by value, ascending; a value may continue in the next chunk. Raises OSError."""
        while len(self._spills) > FAN_IN:
            self._compact(min(FAN_IN, len(self._spills) - FAN_IN + 1))
        held = [_merge(self._held)] if self._held else []
        self._held = []
        if not self._spills:
            return iter(held)
        return _merge_spills([file for _, file in self._spills], held)

    def close(self) -> None:
        """Free the temporary files."""
        for _, file in self._spills:
            file.close()
        self._spills, self._held = [], []


def group_rows(ranked: Ranked, first_row: int) -> IndexRows:
    """The rows of each value that occurs; the first rank belongs to row `first_row`."""
    ranks, values = ranked.ranks, ranked.values
    order = _stable_order(ranks + 1, len(values) + 1)  # nulls first
    counts = np.bincount(ranks + 1, minlength=len(values) + 1)
    rows = order[counts[0] :] + first_row
    found = counts[1:].nonzero()[0]
    return IndexRows(values.take(pa.array(found)), counts[1:][found], rows)


def _stable_order(numbers: I64, limit: int) -> I64:
    """The order that sorts numbers in 0…limit-1; NumPy sorts 16-bit numbers by counting."""
    order: I64 = np.argsort(numbers.astype(np.uint16) if limit <= 1 << 16 else numbers, kind="stable")
    return order


def _size(part: IndexRows) -> int:
    return 4 * (8 * len(part.rows) + 8 * len(part.values) + int(part.values.nbytes))  # 4: merging needs copies


def _merge(parts: Sequence[IndexRows]) -> IndexRows:
    """Merge parts, each with later rows than the one before."""
    if len(parts) == 1:
        return parts[0]
    ranked = rank(pa.chunked_array([pa.concat_arrays([part.values for part in parts])]))
    counts = np.concatenate([part.counts for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    order = _stable_order(np.repeat(ranked.ranks, counts), len(ranked.values))
    totals = np.bincount(ranked.ranks, weights=counts, minlength=len(ranked.values)).astype(np.int64)
    return IndexRows(ranked.values, totals, rows[order])


def _slice(part: IndexRows, first: int, last: int) -> IndexRows:
    """Rows [first, last) of a part; at least one."""
    edges = np.cumsum(part.counts)
    a = int(np.searchsorted(edges, first, side="right"))
    b = int(np.searchsorted(edges, last, side="left")) + 1
    ends: I64 = np.clip(edges[a:b], first, last)
    counts = ends - np.append(first, ends[:-1])
    return IndexRows(part.values.slice(a, b - a), counts, part.rows[first:last])


# ---------------------------------------------------------------- spill files


_PLAIN = make_compressor(Codec.ZSTD)


def _encode(chunk: IndexRows) -> tuple[pa.Buffer, bytes, bytes]:
    values = pa.record_batch([chunk.values], ["value"])
    steps = np.diff(chunk.rows, prepend=0)
    return _stored(values), encode_ints(chunk.counts, _PLAIN), encode_ints(steps, _PLAIN)


def _cut(part: IndexRows, chunk_rows: int) -> Iterator[tuple[int, int]]:
    """The rows [first, last) of each chunk: at most `chunk_rows`, and at most the bytes of that many short values."""
    sizes = np.full(len(part.rows), 8, dtype=np.int64)
    if is_bytes(part.values.type):
        starts = np.cumsum(part.counts) - part.counts
        sizes[starts] += np.asarray(pc.binary_length(part.values)).astype(np.int64)
    ends = np.cumsum(sizes)
    first = before = 0
    while first < len(part.rows):
        last = max(first + 1, int(np.searchsorted(ends, before + _ROW_BYTES * chunk_rows, side="right")))
        last = min(last, first + chunk_rows)
        yield first, last
        first, before = last, int(ends[last - 1])


def _stored(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


class _Source:
    """A spill file that is being read: the remainder of a chunk, and the first and last values of that remainder."""

    def __init__(self, spill: SpillFile | None, number: int, part: IndexRows | None = None) -> None:
        self._spill = spill
        self._next = 0
        self._decompressor = Decompressor()
        self.number = number
        self.part = part
        self.ends = (None, None) if part is None else _ends(part)

    @property
    def has_more(self) -> bool:
        """Whether there are chunks that have not been read."""
        return self._spill is not None and self._next < len(self._spill)

    def fill(self) -> None:
        """Read the next chunk if no rows are left, and if there is one."""
        if self.part is None and self._spill is not None and self.has_more:
            stored, at = self._spill, self._next
            values = pa.ipc.open_stream(stored.read(at, _VALUES)).read_next_batch().column(0)
            counts = self._numbers(stored.read(at, _COUNTS), len(values))
            rows = np.cumsum(self._numbers(stored.read(at, _ROWS), int(counts.sum())))
            self.part = IndexRows(values, counts, rows)
            self.ends = _ends(self.part)
            self._next += 1

    def _numbers(self, stored: pa.Buffer, count: int) -> I64:
        body = memoryview(stored).cast("B")
        return decode_ints(body, read_pack(body, 0, count), self._decompressor)

    def take(self, value_count: int) -> IndexRows | None:
        """Remove the first values of the part and return them with their rows."""
        part = self.part
        if part is None or not value_count:
            return None
        if value_count == len(part.values):
            self.part = None
            return part
        count = int(part.counts[:value_count].sum())
        self.part = _slice(part, count, len(part.rows))
        self.ends = _ends(self.part)
        return _slice(part, 0, count)


def _ends(part: IndexRows) -> tuple[Any, Any]:
    return _comparable(part.values[0]), _comparable(part.values[-1])


def _comparable(value: pa.Scalar) -> Any:
    """A value as a Python object that compares in the order of an index: text by its bytes."""
    given = value.as_py()
    return given.encode() if isinstance(given, str) else given


def _merge_spills(spills: Sequence[SpillFile], held: Sequence[IndexRows]) -> Iterator[IndexRows]:
    """Merge spill files, then parts in memory, by value. Each must have later rows than the one before."""
    sources = [_Source(spill, number) for number, spill in enumerate(spills)]
    sources += [_Source(None, len(spills) + number, part) for number, part in enumerate(held)]
    while True:
        for source in sources:
            source.fill()
        sources = [source for source in sources if source.part is not None]
        if not sources:
            return
        first = min(sources, key=lambda source: (source.ends[0], source.number))
        if first.part is not None and len(first.part.values) == 1:  # of a frequent value: nothing to compare
            yield first.part
            first.part = None
        else:
            yield _merge(_take_known(sources))


def _take_known(sources: Sequence[_Source]) -> list[IndexRows]:
    """Take from each source the values up to the point to which all sources have been read."""
    parts = [source.part for source in sources if source.part is not None]
    ranks = rank(pa.chunked_array([pa.concat_arrays([part.values for part in parts])])).ranks
    places = np.split(ranks, np.cumsum([len(part.values) for part in parts])[:-1])
    open_ends = [(int(place[-1]), s.number) for s, place in zip(sources, places, strict=True) if s.has_more]
    last, source_number = min(open_ends, default=(len(ranks), 0))
    taken = [
        source.take(int(np.searchsorted(place, last, side="right" if source.number <= source_number else "left")))
        for source, place in zip(sources, places, strict=True)
    ]
    return [part for part in taken if part is not None]
