"""Check data blocks: each has the contents that its directory leaf describes, in order, and all its columns decode."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.errors import CorruptSegmentError
from esformat.format.frame import Block
from esformat.format.layout import MAX_BLOCK_ROWS
from esformat.format.node import NEEDS_DICTIONARY, DecodeContext, Shape
from esformat.format.schema import EventSchema
from esformat.tools.verification.parts import Parts, check_range

I64 = npt.NDArray[np.int64]
Key = tuple[bytes, bytes]
_HEAD = struct.Struct("<qII")  # base, runs, chunks
_ENTRY = struct.Struct("<IIQ")  # of a chunk: offset, length, checksum


@dataclass(frozen=True, slots=True)
class Expected:
    """The directory's description of a block: its runs as (key, rows), and its time span."""

    runs: list[tuple[Key, int]]
    min_timestamp: int
    max_timestamp: int


class DataCheck:
    """Checks data blocks one after another, in file order."""

    def __init__(self, schema: EventSchema, contexts: Callable[[int], list[DecodeContext | None]], own: DecodeContext):
        """contexts: returns each column's decode context for a dictionary number; None for a lost dictionary."""
        self._schema = schema
        self._contexts = contexts
        self._own = own
        self._last: tuple[Key, int] | None = None

    def check(self, block: Block, expected: Expected | None) -> list[pa.Array | None]:
        """The block's columns in schema order; None for those that need a lost dictionary. Raises CorruptSegmentError.

        expected: the directory's description; None if the block is only checked for consistency with itself.
        """
        check_range(1, block.count, MAX_BLOCK_ROWS, "the number of rows of a data block")
        head = Parts(block.body, self._own)
        base, run_count, chunk_count = head.fields(_HEAD)
        if chunk_count != len(self._schema.fields) + 2:
            raise CorruptSegmentError(f"a data block has {chunk_count} chunks for {len(self._schema.fields)} columns")
        keys, timestamps, *columns = self._chunks(block, head, chunk_count)
        check_range(1, run_count, block.count, "the number of runs of a data block")

        runs = self._runs(keys, run_count, block.count)
        times = self._timestamps(timestamps, base, [rows for _, rows in runs])
        if expected is not None:
            if runs != expected.runs:
                raise CorruptSegmentError("the keys of a data block do not match the directory")
            if (int(times.min()), int(times.max())) != (expected.min_timestamp, expected.max_timestamp):
                raise CorruptSegmentError("the time span of a data block does not match the directory")
        self._follow(runs, times)
        contexts = self._contexts(block.dictionary)
        return [
            self._column(chunk, block.count, field.type, context, nullable=field.nullable)
            for chunk, field, context in zip(columns, self._schema.fields, contexts, strict=True)
        ]

    def _chunks(self, block: Block, head: Parts, count: int) -> list[memoryview]:
        """The chunks; their places and checksums were verified with the block's."""
        entries = [head.fields(_ENTRY) for _ in range(count)]
        head.end()
        return [block.chunks[offset : offset + length] for offset, length, _ in entries]

    def _runs(self, chunk: memoryview, count: int, row_count: int) -> list[tuple[Key, int]]:
        parts = Parts(chunk, self._own)
        rows = parts.counts(count, least=1).tolist()
        keys = list(zip(parts.keys(count), parts.keys(count), strict=True))
        parts.end()
        if sum(rows) != row_count:
            raise CorruptSegmentError("the runs of a data block do not add up to its rows")
        if any(a >= b for a, b in pairwise(keys)):
            raise CorruptSegmentError("the runs of a data block do not ascend")
        if not self._schema.binary_keys:
            _check_text(keys)
        return list(zip(keys, rows, strict=True))

    def _timestamps(self, chunk: memoryview, base: int, run_rows: Sequence[int]) -> I64:
        """All timestamps, checked to ascend within each run. Sums are modulo 2^64, as NumPy's are."""
        parts = Parts(chunk, self._own)
        steps = parts.numbers(sum(run_rows))
        parts.end()
        rows = np.array(run_rows, dtype=np.int64)
        starts = np.cumsum(rows) - rows
        sums = np.cumsum(steps)
        times: I64 = sums - np.repeat(sums[starts] - steps[starts], rows) + np.int64(base)
        falls = times[1:] < times[:-1]
        falls[starts[1:] - 1] = False  # timestamps may decrease from one run to the next
        if bool(falls.any()):
            raise CorruptSegmentError("timestamps decrease within a run")
        if int(times.min()) != base:
            raise CorruptSegmentError("the base of a data block is not its smallest timestamp")
        return times

    def _follow(self, runs: list[tuple[Key, int]], times: I64) -> None:
        """Compare the block's first event with the last event of the previous block."""
        first = (runs[0][0], int(times[0]))
        if self._last is not None and first < self._last:
            self._last = None
            raise CorruptSegmentError("the events of a data block do not follow those of the previous block")
        self._last = (runs[-1][0], int(times[-1]))

    def _column(
        self, chunk: memoryview, count: int, kind: pa.DataType, context: DecodeContext | None, *, nullable: bool
    ) -> pa.Array | None:
        if context is None:
            if len(chunk) > 1 and (chunk[0] in (Shape.CODES, Shape.TEMPLATES) or chunk[1] & NEEDS_DICTIONARY):
                return None
            context = self._own
        parts = Parts(chunk, self._own)
        values = parts.values(count, kind, context, nullable=nullable)
        parts.end()
        return values


def _check_text(keys: list[Key]) -> None:
    try:
        for space, grouping in keys:
            space.decode()
            grouping.decode()
    except UnicodeDecodeError as error:
        raise CorruptSegmentError(f"a key is not UTF-8 text: {error}") from None
