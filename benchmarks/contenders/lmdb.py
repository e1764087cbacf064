"""LMDB, one file without subdirectory or lock.

The events are stored as described in `kv`. Each index is a DUPSORT/DUPFIXED database from (value, space) to the sorted
(timestamp, sequence) of its events, which is a fifth smaller than one key per entry and is read in one call. Everything
is appended in key order in large transactions without syncing, followed by one sync (the harness syncs again, at no
cost). A writable map was tried: it is no faster, and the file stays sparse at full map size. Reading uses one long read
transaction and its cursors, and `getmulti` for the events of an index.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import lmdb
import pyarrow as pa

from benchmarks.contenders import kv
from benchmarks.contenders.protocol import INDEXES, MAIN, OBJECTS_ONLY, Contender, Digest

FILE = "events.lmdb"
EVENTS = b"events"
MAP_PER_ARROW_BYTE = 8  # bytes of the map per byte of Arrow; the map's size is only an upper bound


class LMDBReader(kv.KeyValueReader):
    """One environment, one read transaction."""

    def __init__(self, path: Path) -> None:
        self._env = lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=1 + len(INDEXES))
        events = self._env.open_db(EVENTS, create=False)
        postings = {
            name: self._env.open_db(name.encode(), dupsort=True, dupfixed=True, create=False) for name in INDEXES
        }
        self._txn = self._env.begin()
        self._events = self._txn.cursor(events)
        self._postings = {name: self._txn.cursor(database) for name, database in postings.items()}

    def close(self) -> None:
        for cursor in (self._events, *self._postings.values()):
            cursor.close()
        self._txn.abort()
        self._env.close()

    def history(self, space: str) -> list[kv.RawRow]:
        first, past = kv.prefix_of(space)
        if not self._events.set_range(first):
            return []
        return kv.decode(takewhile(lambda item: item[0] < past, self._events.iternext()), len(first))

    def latest(self, space: str, limit: int) -> list[kv.RawRow]:
        first, past = kv.prefix_of(space)
        cursor = self._events
        if not (cursor.prev() if cursor.set_range(past) else cursor.last()):
            return []
        found = (item for _, item in zip(range(limit), cursor.iterprev(), strict=False))
        return kv.decode(takewhile(lambda item: item[0] >= first, found), len(first))

    def indexed(self, space: str, index: str, value: str) -> list[kv.RawRow]:
        first, _ = kv.prefix_of(space)
        entries = self._postings[index].getmulti([f"{value}\0{space}".encode()], dupdata=True)
        keys = [first + place for _, place in reversed(entries)]
        return kv.decode(self._events.getmulti(keys), len(first))

    def matching(self, index: str, value: str) -> list[tuple[bytes, int, bytes, bytes, bytes]]:
        first, past = kv.prefix_of(value)
        cursor = self._postings[index]
        if not cursor.set_range(first):
            return []
        entries = takewhile(lambda item: item[0] < past, cursor.iternext())
        keys = [owner[len(first) :] + kv.NUL + place for owner, place in entries]
        return kv.decode_all(self._events.getmulti(keys))

    def objects(self) -> Digest:
        self._events.first()
        return kv.digest_of_entries(self._events.iternext())


class LMDB(Contender):
    """See the module."""

    def write(self, table: pa.Table, target: Path, layout: str) -> None:
        entries = kv.encode(table)
        env = lmdb.open(
            str(target / FILE),
            map_size=MAP_PER_ARROW_BYTE * table.nbytes + (64 << 20),
            subdir=False,
            max_dbs=1 + len(INDEXES),
            sync=False,
            metasync=False,
            lock=False,
        )
        _append(env, env.open_db(EVENTS), kv.items(entries.keys, entries.values))
        for name, posting in entries.postings.items():
            _append(env, env.open_db(name.encode(), dupsort=True, dupfixed=True), kv.items(*posting))
        env.sync(True)
        env.close()

    def open(self, target: Path, layout: str) -> LMDBReader:
        return LMDBReader(target / FILE)


def _append(env: lmdb.Environment, database: lmdb._Database, items: Iterator[tuple[bytes, ...]]) -> None:
    with env.begin(write=True, db=database) as txn, txn.cursor() as cursor:
        cursor.putmulti(items, append=True)


CONTENDER = LMDB(name="lmdb", distribution="lmdb", layouts={MAIN: "ordered keys, DUPSORT indexes"}, lacks=OBJECTS_ONLY)
