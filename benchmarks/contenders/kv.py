"""Encode events as keys and values of an ordered key-value store: the code that LMDB and RocksDB share.

    events         space NUL timestamp sequence     ->  type NUL country NUL data
    one per index  value NUL space NUL timestamp sequence  (how LMDB and RocksDB store this differs)

Timestamp and sequence are big-endian (8 and 4 bytes), so that byte order is time order. Timestamps before 1970 and
keys with a NUL would need escaping, but these events have none. Keys and values are joined column-wise in Arrow; Python
handles them only as arguments to the stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.contenders.protocol import INDEXES, Digest, Row, TupleReader, digest_of, in_order

NUL = b"\0"
PAST_NUL = b"\1"  # replaces the final NUL of a prefix: the upper bound of its keys
PLACE_BYTES = 12  # timestamp and sequence
CHUNK_ROWS = 65_536
TIMESTAMP = Struct(">Q").unpack_from


class Posting(NamedTuple):
    """The entries of one index, sorted."""

    owners: pa.Array  # value NUL space
    places: pa.Array  # timestamp sequence


class Entries(NamedTuple):
    """All events as sorted keys and values."""

    keys: pa.Array
    values: pa.Array
    postings: dict[str, Posting]


def encode(table: pa.Table) -> Entries:
    """Sort the events and build every key and value."""
    table = in_order(table).combine_chunks()
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    space = columns["space"].cast(pa.binary())
    timestamps = columns["timestamp"].cast(pa.int64()).to_numpy()
    place = _join(_big_endian(timestamps, ">u8"), _big_endian(np.arange(len(table)), ">u4"))
    postings = {}
    for name in INDEXES:
        order = pc.sort_indices(columns[name])  # stable: events of one value stay in order
        owners = _join(columns[name].cast(pa.binary()), NUL, space)
        postings[name] = Posting(owners.take(order), place.take(order))
    values = _join(columns["type"].cast(pa.binary()), NUL, columns["country"].cast(pa.binary()), NUL, columns["data"])
    return Entries(_join(space, NUL, place), values, postings)


def join_posting(posting: Posting) -> pa.Array:
    """Join each entry of an index into one key."""
    return _join(posting.owners, NUL, posting.places)


def items(*columns: pa.Array) -> Iterator[tuple[bytes, ...]]:
    """Yield tuples of the columns' values, converted CHUNK_ROWS rows at a time."""
    starts = range(0, len(columns[0]), CHUNK_ROWS)
    return chain.from_iterable(
        zip(*(column.slice(start, CHUNK_ROWS).to_pylist() for column in columns), strict=True) for start in starts
    )


def _join(*parts: pa.Array | bytes) -> pa.Array:
    return pc.binary_join_element_wise(*(pa.scalar(p) if isinstance(p, bytes) else p for p in parts), pa.scalar(b""))


def _big_endian(numbers: npt.NDArray[np.int64], dtype: str) -> pa.Array:
    raw = numbers.astype(dtype)
    width = pa.binary(raw.dtype.itemsize)
    return pa.Array.from_buffers(width, len(raw), [None, pa.py_buffer(raw.tobytes())]).cast(pa.binary())


def prefix_of(*parts: str) -> tuple[bytes, bytes]:
    """The half-open range of keys that begin with these parts."""
    prefix = "\0".join(parts).encode() + NUL
    return prefix, prefix[:-1] + PAST_NUL


KeyValue = tuple[bytes, bytes]
RawRow = tuple[int, bytes, bytes, bytes]
"""Timestamp, type, country, data: the order in which values are decoded."""


class KeyValueReader(TupleReader):
    """A reader whose answers are lists of tuples decoded from keys and values."""

    def rows(self, answer: list[RawRow]) -> list[Row]:
        return [(timestamp, data, kind.decode(), country.decode()) for timestamp, kind, country, data in answer]

    def table(self, answer: list[tuple[bytes, int, bytes, bytes, bytes]]) -> pa.Table:
        return super().table(
            [(space.decode(), at, data, kind.decode(), country.decode()) for space, at, kind, country, data in answer]
        )


def decode(entries: Iterable[KeyValue], at: int) -> list[RawRow]:
    """Decode events of one space, whose keys have the timestamp at byte `at`."""
    return [(TIMESTAMP(key, at)[0], *value.split(NUL, 2)) for key, value in entries]


def decode_all(entries: Iterable[KeyValue]) -> list[tuple[bytes, int, bytes, bytes, bytes]]:
    """Decode events of any space."""
    return [
        (key[: -PLACE_BYTES - 1], TIMESTAMP(key, len(key) - PLACE_BYTES)[0], *value.split(NUL, 2))
        for key, value in entries
    ]


def digest_of_entries(entries: Iterable[KeyValue]) -> Digest:
    """Consume all entries as tuples of space, timestamp and data."""
    return digest_of(
        (key[: -PLACE_BYTES - 1], TIMESTAMP(key, len(key) - PLACE_BYTES)[0], value.split(NUL, 2)[2])
        for key, value in entries
    )
