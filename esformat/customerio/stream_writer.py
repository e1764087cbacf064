"""Encoding of checked events as a stream, in the order added."""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.customerio.archive_file import LENGTH as TABLE_LENGTH
from esformat.customerio.sst import encode_table
from esformat.customerio.stream_file import CLOSED_MAGIC, LENGTH, MAGIC
from esformat.customerio.varint import I64, encode, encode_many, sizes
from esformat.errors import InvalidEventError
from esformat.format.order import rank

CHUNK_ROWS = 16384
MAX_EVENT_BYTES = (1 << 32) - 1  # limit of an event's length field
_NOTHING = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])[0]
"""An empty value. pyarrow.scalar would import pandas, a fifth of a command's startup time."""


class StreamBuilder:
    """Writes events to a file as they are added, and at the end the footer if the stream is finished."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = len(MAGIC)
        self._tails: dict[bytes, int] = {}
        file.write(MAGIC)

    def add(self, events: pa.Table) -> None:
        """Write checked events."""
        for first in range(0, len(events), CHUNK_ROWS):
            self._add(events.slice(first, CHUNK_ROWS))

    def _add(self, events: pa.Table) -> None:
        entries = _entries(events)
        before = np.array([self._tails.get(text, 0) for text in entries.texts.to_pylist()], dtype=np.int64)
        data = events["data"].combine_chunks().cast(pa.large_binary())
        lengths = np.asarray(pc.binary_length(data).to_numpy()).astype(np.int64)
        counts = np.bincount(entries.rows, minlength=len(events)).astype(np.int64)
        starts, previous = _places(entries, before, lengths, counts, self._size)
        texts = entries.texts.take(pa.array(entries.codes))
        text_lengths = encode_many(np.asarray(pc.binary_length(texts).to_numpy()).astype(np.int64))
        each = pc.binary_join_element_wise(text_lengths, texts, encode_many(previous), _NOTHING)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        tails = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), each), _NOTHING)
        sizes_ = np.diff(starts) - LENGTH.size
        if len(sizes_) and int(sizes_.max()) > MAX_EVENT_BYTES:
            raise InvalidEventError("an event is larger than 4 GiB, which the length of an event cannot say")
        heads = np.ascontiguousarray(sizes_.astype("<u4"))
        head = pa.Array.from_buffers(pa.binary(4), len(heads), [None, pa.py_buffer(heads)])
        parts = [head.cast(pa.large_binary()), encode_many(lengths), data, encode_many(counts), tails, _NOTHING]
        joined = pc.binary_join_element_wise(*(part.cast(pa.large_binary()) for part in parts))
        self._file.write(memoryview(joined.buffers()[2] or b"")[: int(starts[-1]) - self._size])
        keys = entries.texts.to_pylist()
        newest = np.zeros(len(keys), dtype=np.int64)
        np.maximum.at(newest, entries.codes, starts[entries.rows])
        self._tails.update(zip(keys, newest.tolist(), strict=True))
        self._size = int(starts[-1])

    def finish(self, *, closed: bool) -> None:
        """Write the footer if `closed`; an open stream has none."""
        if closed:
            table = encode_table((key, encode(self._tails[key])) for key in sorted(self._tails))
            self._file.write(LENGTH.pack(0) + table + TABLE_LENGTH.pack(len(table)) + CLOSED_MAGIC)


class _Entries(NamedTuple):
    """Index entries of some events, by row, then by name: the row, and the number of the distinct `name:value` text."""

    rows: I64
    codes: I64
    texts: pa.Array


def _entries(events: pa.Table) -> _Entries:
    rows: list[I64] = [np.zeros(0, dtype=np.int64)]
    codes: list[I64] = [np.zeros(0, dtype=np.int64)]
    texts: list[bytes] = []
    for name in sorted(name for name in events.column_names if name.startswith("i")):
        values = rank(events[name])
        having = np.flatnonzero(values.ranks >= 0)
        rows.append(having)
        codes.append(values.ranks[having] + len(texts))
        texts += [name[1:].encode() + b":" + value for value in values.values.to_pylist()]
    every, code = np.concatenate(rows), np.concatenate(codes)
    order = np.argsort(every, kind="stable")
    return _Entries(every[order], code[order], pa.array(texts, pa.binary()))


def _places(entries: _Entries, before: I64, lengths: I64, counts: I64, origin: int) -> tuple[I64, I64]:
    """Return the start of each event and the end of the last, and the previous event of each entry.

    An entry's size depends on the offset of an earlier event, which depends on the entries before it. The sizes start
    too small, and so do the offsets; a few iterations converge to the only solution.
    """
    order = np.argsort(entries.codes, kind="stable")
    code = entries.codes[order]
    first = np.append(True, code[1:] != code[:-1])[: len(order)]
    text_lengths = np.asarray(pc.binary_length(entries.texts).to_numpy()).astype(np.int64)[entries.codes]
    fixed = LENGTH.size + sizes(lengths) + lengths + sizes(counts)
    plain = sizes(text_lengths) + text_lengths
    previous = np.zeros(len(entries.rows), dtype=np.int64)
    while True:
        of_entries = np.bincount(entries.rows, weights=plain + sizes(previous), minlength=len(lengths))
        starts = origin + np.concatenate([[0], np.cumsum(fixed + of_entries.astype(np.int64))])
        mine = starts[entries.rows[order]]
        found = np.empty_like(previous)
        found[order] = np.where(first, before[code], np.append(0, mine[:-1])[: len(order)])
        if (sizes(found) == sizes(previous)).all():
            return starts, found
        previous = found
