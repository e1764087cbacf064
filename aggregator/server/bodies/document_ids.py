"""`DocumentIds`: which documents are stored, by their `_id`, so that one that is created twice is stored once.

Shippers that send documents with their own `_id` as `create` rely on this: they retry until they get a response. The
newest KNOWN ids are in memory. They are also fields of the records; after a start they are read from the last KNOWN
records of a partition, on the first request that creates documents with ids in it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from aggregator import Catalog, TopicNotFoundError, lql
from aggregator.model import RECORD_INDEX
from aggregator.storage.segments.records import FIELDS
from esformat import EsdbError
from esformat.parts import as_text

KNOWN = 1 << 17
ID_FIELD = "_id"
INDEX_TAG = "index"
_log = logging.getLogger("aggregator.server")


class DocumentIds:
    """The ids of all topics of a server. Thread-safe."""

    def __init__(self, known: int = KNOWN) -> None:
        self._most = known
        self._known: dict[bytes, int] = {}  # record indexes of documents, oldest first
        self._claimed: set[bytes] = set()
        self._read: set[tuple[str, str]] = set()
        self._lock, self._reading = Lock(), Lock()

    def read_back(self, catalog: Catalog, topic: str, partition: str) -> None:
        """Load the ids of a partition, once in the life of a server."""
        with self._reading:
            if (topic, partition) in self._read:
                return
            found: list[tuple[bytes, int]] = []
            try:
                found += islice(_stored(catalog, topic, partition, self._most, reverse=True), self._most)
            except TopicNotFoundError:
                pass  # nothing is stored in it
            except EsdbError as error:  # continue with fewer ids; refusing documents would lose more
                _log.warning(
                    "cannot read the ids of stored documents in topic %r, partition %r: %s",
                    topic,
                    partition,
                    error.message,
                )
            with self._lock:
                self._known = dict(reversed(found)) | self._known
                self._forget()
            self._read.add((topic, partition))

    def forget_gone(self, catalog: Catalog, topic: str, partition: str, keys: Iterable[bytes]) -> None:
        """Forget those of the keys whose documents no longer exist. Otherwise they would be refused although not
        stored.
        """
        with self._lock:
            known = {key: self._known[key] for key in keys if key in self._known}
        if not known:
            return
        first, last = min(known.values()), max(known.values())
        try:
            there = {key for key, _ in _stored(catalog, topic, partition, last - first + 1, first)}
        except TopicNotFoundError:
            there = set()
        except EsdbError as error:  # storing duplicates would be worse
            _log.warning(
                "cannot check the ids of documents in topic %r, partition %r: %s", topic, partition, error.message
            )
            return
        with self._lock:
            for key, place in known.items():
                if key not in there and self._known.get(key) == place:
                    del self._known[key]

    def claim(self, key: bytes) -> str:
        """Begin to store a document; `settle` ends it. Return "new", "known", or "claimed" (by another request)."""
        with self._lock:
            if key in self._known:
                return "known"
            if key in self._claimed:
                return "claimed"
            self._claimed.add(key)
            return "new"

    def settle(self, claimed: Iterable[bytes], stored: Mapping[bytes, int]) -> None:
        """End what `claim` began. Remember the ids that were stored, claimed or not, with their record indexes."""
        with self._lock:
            self._claimed.difference_update(claimed)
            self._known |= stored
            self._forget()

    def _forget(self) -> None:
        for key in list(islice(self._known, max(0, len(self._known) - self._most))):
            del self._known[key]


def key_of(topic: str, partition: str, index: str, document_id: str) -> bytes:
    """Return a short, fixed-size key for a document."""
    parts: Sequence[bytes] = [part.encode("utf-8", "backslashreplace") for part in (topic, partition, index)]
    whole = b"".join(b"%d:%b" % (len(part), part) for part in parts) + document_id.encode("utf-8", "backslashreplace")
    return hashlib.blake2b(whole, digest_size=16).digest()


def _stored(
    catalog: Catalog, topic: str, partition: str, most: int, first: int | None = None, *, reverse: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Yield the documents of a partition with their record indexes.

    Reads up to `most` records, starting at `first`, or backwards from the last with `reverse`.
    """
    opened = catalog.topic(topic)
    names = opened.scan().schema.names
    columns = ["space", RECORD_INDEX, *(name for name in (ID_FIELD, FIELDS) if name in names)]
    indexes: dict[str, str | None] = {}
    if partition not in opened.partitions:
        return
    for batch in opened.read(partition, first, most, reverse=reverse, columns=columns).batches():
        for space, document_id, place in _with_ids(batch):
            if space not in indexes:
                indexes[space] = _index(space)
            index = indexes[space]
            if index is not None:
                yield key_of(topic, partition, index, document_id), place


def _with_ids(batch: pa.RecordBatch) -> Iterator[tuple[str, str, int]]:
    """Return the space, the id and the record index of each record that has an id."""
    ids = pa.nulls(len(batch), pa.string())
    if ID_FIELD in batch.schema.names:
        ids = as_text(batch.column(ID_FIELD)).cast(pa.string())
    if FIELDS in batch.schema.names and pa.types.is_map(batch.schema.field(FIELDS).type):
        mapped = batch.column(FIELDS)
        ids = pc.coalesce(ids, as_text(pc.map_lookup(mapped, pa.scalar(ID_FIELD, mapped.type.key_type), "first")))
    there = pc.is_valid(ids)
    found = (as_text(batch.column("space")), ids, batch.column(RECORD_INDEX))
    return zip(*(column.filter(there).to_pylist() for column in found), strict=True)


def _index(space: str) -> str | None:
    try:
        return lql.TagSet.parse(space).as_dict().get(INDEX_TAG)
    except lql.LqlError:
        return None
