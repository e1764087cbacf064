"""The order of a segment: by space, grouping, timestamp, then order of arrival. Keys are compared as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A column as ranks: `values[ranks[i]]` is the i-th value. Values are distinct and ascending; null has rank -1."""

    ranks: I64
    values: pa.Array


def rank(column: pa.ChunkedArray) -> Ranked:
    """Rank a column's values: text and binary by bytes, numbers by size, false before true."""
    if len(column) and not column.null_count and all(map(_is_empty, column.chunks)):  # common for groupings
        return Ranked(np.zeros(len(column), np.int64), pa.array([""], pa.string()).cast(column.type))
    chunks = _encoded(column)
    values = chunks[0].dictionary if chunks else pa.array([], column.type)
    order = np.asarray(pc.sort_indices(values).to_numpy()).astype(np.int64)
    places = np.empty(len(order) + 1, dtype=np.int64)
    places[order] = np.arange(len(order))
    places[-1] = -1  # null
    parts = [places[_indices(chunk)] for chunk in chunks]
    return Ranked(np.concatenate(parts) if parts else np.zeros(0, np.int64), values.take(pa.array(order)))


def _is_empty(array: pa.Array) -> bool:
    """Whether all values are empty text or bytes."""
    if not (pt.is_string(array.type) or pt.is_binary(array.type)):
        return False
    edges = np.frombuffer(array.buffers()[1] or b"", np.int32)
    return not len(array) or bool(edges[array.offset] == edges[array.offset + len(array)])


def _encoded(column: pa.ChunkedArray) -> list[pa.DictionaryArray]:
    """Encode the chunks of a column as codes of one dictionary.

    Arrow gives all chunks the same dictionary but does not detect that: unifying 500 chunks compares the dictionary 500
    times, which dominates if it has many values.
    """
    encoded = column.dictionary_encode()
    if len({_place_of(chunk.dictionary) for chunk in encoded.chunks}) > 1:
        encoded = encoded.unify_dictionaries()
    return list(encoded.chunks)


def _place_of(array: pa.Array) -> tuple[Any, ...]:
    """The location of an array in memory: arrays at the same location are equal."""
    return (len(array), array.offset, *(buffer.address if buffer else 0 for buffer in array.buffers()))


def _indices(chunk: pa.DictionaryArray) -> npt.NDArray[Any]:
    indices = chunk.indices
    return np.asarray((indices.fill_null(-1) if indices.null_count else indices).to_numpy())


def sort_order(keys: I64, timestamps: I64) -> I64 | None:
    """The row numbers in the order of (key, timestamp, arrival); None if the rows are already in that order.

    Sorts by the least significant part first: timestamps arrive nearly sorted, which suits a merge sort, and NumPy
    sorts 16 bits of the keys at a time with a counting sort. For 1 M rows, this is twice as fast as a lexical sort.
    """
    steps = np.diff(keys)
    if not len(steps) or bool(((steps > 0) | (steps == 0) & (timestamps[1:] >= timestamps[:-1])).all()):
        return None
    order: I64 = np.argsort(timestamps, kind="stable")
    highest = int(keys.max())
    for shift in range(0, max(1, highest.bit_length()), 16):
        digits = (keys >> shift).astype(np.uint16)[order]
        order = order[np.argsort(digits, kind="stable")]
    return order


def merge_order(keys: I64, timestamps: I64) -> I64 | None:
    """Like `sort_order`, for rows that consist of several sorted parts, one after another.

    If key and timestamp fit into one number, NumPy's stable sort detects the parts and merges them.
    """
    steps = np.diff(keys)
    if not len(steps) or bool(((steps > 0) | (steps == 0) & (timestamps[1:] >= timestamps[:-1])).all()):
        return None
    low, high = int(timestamps.min()), int(timestamps.max())
    bits = (high - low).bit_length()
    if int(keys.max()).bit_length() + bits > 63:
        order: I64 = np.lexsort((timestamps, keys))
    else:
        order = np.argsort((keys << bits) | (timestamps - low), kind="stable")
    return order
