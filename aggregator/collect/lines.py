"""Split bytes into lines and join lines to records, a piece of a file at a time.

The result depends only on the bytes and on whether the piece begins inside a line, so that reading a piece again gives
the same records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.collect import containers
from aggregator.collect.settings import Cutting
from aggregator.lql.text.predicate import as_string

I64 = npt.NDArray[np.int64]
_NEWLINE = 10


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `length` bytes of some data. skipping: the next piece begins inside a line that is too long."""

    length: int
    skipping: bool = False


@dataclass(frozen=True, slots=True)
class Records:
    """Messages (binary) without their line ends. cut: the number of messages that were too long."""

    messages: pa.Array
    cut: int = 0


def measure(data: bytes, cutting: Cutting, *, skipping: bool = False, complete: bool = False) -> Prefix:
    """Find how many bytes form complete records. complete: no more bytes follow, so that the last line is complete.

    A line that is longer than the limit ends a piece: its beginning becomes a record, the rest of it is skipped.
    """
    if complete:
        return Prefix(len(data))
    if data.startswith(b"\0") and not skipping:  # a hole: the file was truncated while its writer kept its offset
        return Prefix(len(data) - len(data.lstrip(b"\0")))
    newline = data.rfind(b"\n")
    if skipping and newline < 0:
        return Prefix(len(data), skipping=True)
    rest = len(data) - newline - 1
    if rest > cutting.max_bytes:
        return Prefix(newline + 1) if data.startswith(b"\0", newline + 1) else Prefix(len(data), skipping=True)
    if containers.may_hold(data, cutting.container):
        return Prefix(
            containers.closed_length(data[: newline + 1], cutting.container, cutting.first_line, cutting.max_bytes)
        )
    if cutting.first_line is None:
        return Prefix(newline + 1)
    return Prefix(_last_record(data[: newline + 1], cutting, skipping))


def _last_record(data: bytes, cutting: Cutting, skipping: bool) -> int:
    """The start of the last record, which may get more lines; the end of the data if that record is too long."""
    starts = _record_starts(data, cutting, skipping)
    if not len(starts):
        return len(data) if skipping else 0
    last = int(starts[-1])
    return last if len(data) - last <= cutting.max_bytes else len(data)


def split(data: bytes, cutting: Cutting, *, skipping: bool = False) -> Records:
    """Split a piece into records, skipping empty lines."""
    starts = _record_starts(data, cutting, skipping)
    if not len(starts):
        return Records(pa.array([], pa.binary()))
    offsets = np.append(starts, len(data)).astype(np.int32)
    whole = pa.BinaryArray.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    texts = pc.ascii_ltrim(as_string(whole), characters="\0") if b"\0" in data else as_string(whole)
    messages = pc.ascii_rtrim(texts, characters="\r\n").view(pa.binary())
    lengths = pc.binary_length(messages)
    if pc.min(lengths).as_py() == 0:
        filled = pc.greater(lengths, 0)
        messages, lengths = messages.filter(filled), lengths.filter(filled)
    if not len(messages) or pc.max(lengths).as_py() <= cutting.max_bytes:
        return Records(messages)
    long = pc.greater(lengths, cutting.max_bytes)
    return Records(pc.binary_slice(messages, 0, cutting.max_bytes), long.true_count)


def _record_starts(data: bytes, cutting: Cutting, skipping: bool) -> I64:
    """The starts of records; bytes before the first belong to a line that began in an earlier piece."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1
    begin = 0
    if skipping:
        if not len(ends):
            return np.zeros(0, np.int64)
        begin, ends = int(ends[0]), ends[1:]
    starts = np.concatenate([[begin], ends]).astype(np.int64)
    starts = starts[starts < len(data)]
    if cutting.first_line is None or len(starts) < 2:
        return starts
    offsets = np.append(starts, len(data)).astype(np.int32)
    lines = pa.BinaryArray.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    first = np.asarray(pc.match_substring_regex(as_string(lines), cutting.first_line)).copy()
    first[0] = True
    chosen: I64 = starts[first]
    return chosen
