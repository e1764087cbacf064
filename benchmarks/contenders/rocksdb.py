"""RocksDB through rocksdict, in raw mode.

The events are stored as described in `kv`; each index is a column family with one key per entry and no value. Sorted
SST files are written and ingested by moving, the documented way to bulk-load (write batches with compaction take 1.7 ×
as long). It uses zstd blocks of 16 KiB, bloom filters of 10 bits, and a block cache of 1 GiB that holds everything once
warm. Ranges are bounded by `iterate_upper_bound`, without which the iterator reads far ahead. In rocksdict 0.3.29,
`set_iterate_lower_bound` sets the upper bound, so the latest events are read by stepping backwards one by one. One
iterator seeks the events of an index in order, which is slightly faster here than `multi_get`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path

import pyarrow as pa
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    ReadOptions,
    SstFileWriter,
)

from benchmarks.contenders import kv
from benchmarks.contenders.protocol import INDEXES, MAIN, OBJECTS_ONLY, Contender, Digest

DATABASE = "events.rocksdb"
BLOCK_BYTES = 16_384
BLOCK_CACHE_BYTES = 1 << 30
BLOOM_BITS_PER_KEY = 10


def _options(cache: Cache) -> Options:
    table = BlockBasedOptions()
    table.set_block_size(BLOCK_BYTES)
    table.set_block_cache(cache)
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_compression_type(DBCompressionType.zstd())
    options.set_block_based_table_factory(table)
    options.increase_parallelism(2)
    return options


def _open(path: Path, access: AccessType) -> Rdict:
    cache = Cache(BLOCK_CACHE_BYTES)
    families = {name: _options(cache) for name in INDEXES}
    return Rdict(str(path), _options(cache), column_families=families, access_type=access)


class RocksDBReader(kv.KeyValueReader):
    """One database, opened read-only."""

    def __init__(self, path: Path) -> None:
        self._events = _open(path, AccessType.read_only())
        self._postings = {name: self._events.get_column_family(name) for name in INDEXES}

    def close(self) -> None:
        self._postings.clear()
        self._events.close()

    def warm(self) -> None:
        super().warm()
        for family in self._postings.values():
            deque(family.keys(), maxlen=0)

    def history(self, space: str) -> list[kv.RawRow]:
        first, past = kv.prefix_of(space)
        return kv.decode(self._events.items(from_key=first, read_opt=_until(past)), len(first))

    def latest(self, space: str, limit: int) -> list[kv.RawRow]:
        first, past = kv.prefix_of(space)
        iterator = self._events.iter()
        iterator.seek_for_prev(past)
        found: list[kv.KeyValue] = []
        while len(found) < limit and iterator.valid() and (key := iterator.key()) >= first:
            found.append((key, iterator.value()))
            iterator.prev()
        return kv.decode(found, len(first))

    def indexed(self, space: str, index: str, value: str) -> list[kv.RawRow]:
        keys = self._named(index, value, space)
        return kv.decode(self._seek(keys), len(space.encode()) + 1)[::-1]

    def matching(self, index: str, value: str) -> list[tuple[bytes, int, bytes, bytes, bytes]]:
        return kv.decode_all(self._seek(self._named(index, value)))

    def objects(self) -> Digest:
        return kv.digest_of_entries(self._events.items())

    def _named(self, index: str, value: str, *space: str) -> list[bytes]:
        """The keys of the events of an index entry, in order."""
        first, past = kv.prefix_of(value, *space)
        skipped = len(value.encode()) + 1
        return [key[skipped:] for key in self._postings[index].keys(from_key=first, read_opt=_until(past))]

    def _seek(self, keys: list[bytes]) -> list[kv.KeyValue]:
        if not keys:
            return []
        iterator = self._events.iter()
        seek, value = iterator.seek, iterator.value
        return [(key, value()) for key in keys if seek(key) is None]


def _until(past: bytes) -> ReadOptions:
    bounds = ReadOptions()
    bounds.set_iterate_upper_bound(past)
    return bounds


class RocksDB(Contender):
    """See the module."""

    def write(self, table: pa.Table, target: Path, layout: str) -> None:
        entries = kv.encode(table)
        database = _open(target / DATABASE, AccessType.read_write())
        _ingest(database, target / "events.sst", kv.items(entries.keys, entries.values))
        for name, posting in entries.postings.items():
            keys = kv.items(kv.join_posting(posting))
            _ingest(
                database.get_column_family(name),
                target / f"{name}.sst",
                zip((key for (key,) in keys), repeat(b""), strict=False),
            )
        database.close()

    def open(self, target: Path, layout: str) -> RocksDBReader:
        return RocksDBReader(target / DATABASE)


def _ingest(family: Rdict, path: Path, items: Iterable[kv.KeyValue]) -> None:
    writer = SstFileWriter(_options(Cache(0)))
    writer.open(str(path))
    for key, value in items:
        writer[key] = value
    writer.finish()
    moving = IngestExternalFileOptions()
    moving.set_move_files(True)
    family.ingest_external_file([str(path)], moving)


CONTENDER = RocksDB(
    name="rocksdb",
    distribution="rocksdict",
    layouts={MAIN: "zstd, blocks of 16 KiB, one column family per index"},
    lacks=OBJECTS_ONLY,
)
