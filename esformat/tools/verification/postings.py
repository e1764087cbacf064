"""Check each number and each rule of posting lists, which are in a page or in chunks."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from esformat.errors import CorruptSegmentError
from esformat.format.layout import MAX_PAGE_ENTRIES, BlockKind
from esformat.format.node import DecodeContext
from esformat.format.postings import CHUNK_ENTRIES, CHUNKED
from esformat.tools.verification.blocks import Blocks
from esformat.tools.verification.parts import Parts, check_range

I64 = npt.NDArray[np.int64]
_LIST = struct.Struct("<IQ")  # numbers, first number
_TABLE = struct.Struct("<I")  # chunks
MAX_NUMBER = 1 << 62


def numbers_of(
    form: int, stored: memoryview, blocks: Blocks, context: DecodeContext, limit: int
) -> Iterator[I64 | None]:
    """The numbers of a posting list, ascending and below `limit`, a chunk at a time; None for a damaged chunk.

    Raises CorruptSegmentError if the list itself breaks the format.
    """
    if not form & CHUNKED:
        yield _list(stored, context, -1, limit)
        return
    parts = Parts(stored, context)
    (count,) = parts.fields(_TABLE)
    check_range(1, count, MAX_PAGE_ENTRIES, "the number of chunks of a posting list")
    firsts = parts.numbers(count).tolist()
    handles = parts.handles(count)
    parts.end()
    last = -1
    for first, handle in zip(firsts, handles, strict=True):
        block = blocks.read(handle, BlockKind.POSTINGS)
        if block is None:
            yield None
            continue
        numbers = _list(block.body, context, last, limit)
        if int(numbers[0]) != first or len(numbers) != block.count:
            raise CorruptSegmentError("a chunk of a posting list does not match its table", offset=block.offset)
        last = int(numbers[-1])
        yield numbers


def _list(stored: memoryview, context: DecodeContext, last: int, limit: int) -> I64:
    """Read one list, whose numbers must be above `last`."""
    parts = Parts(stored, context)
    count, first = parts.fields(_LIST)
    check_range(1, count, CHUNK_ENTRIES, "the number of entries of a posting list")
    steps = parts.counts(count - 1, least=1)
    parts.end()
    check_range(last + 1, first, MAX_NUMBER, "the first number of a posting list")
    if len(steps) and int(steps.max()) > MAX_NUMBER // CHUNK_ENTRIES:
        raise CorruptSegmentError("a posting list takes too large a step")
    numbers = np.cumsum(np.append(np.int64(first), steps))
    check_range(0, int(numbers[-1]), limit - 1, "the last number of a posting list")
    return numbers
