"""Invalid batches, which the catalog would refuse, written directly to a closed catalog's log as valid frames."""

from __future__ import annotations

import pyarrow as pa

import aggregator
from aggregator.engine.ingest.append import definition
from aggregator.model import SchemaInfo
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.log.file import MARK_NAME, encode_mark, list_files
from aggregator.storage.log.frame import EventsPrefix, FrameHead, FrameKind, padded
from esformat.parts import EventSchema

LONG = 70_000
"""The bytes of a space, above the limit of segments."""


def log_by_hand(root, topic, batch, *, producer="", sequence=0, columns=None, partition="0"):
    """Append a batch to the log of a closed catalog without a check; return the record index of its first event.

    batch: has the columns of the topic's newest schema or, with `columns`, those of a separate schema, which the log
    then defines as a newer one of the same family.
    """
    with aggregator.open(root, read_only=True) as catalog:
        catalog.topics()
        state = catalog._backend.state.topics[topic]
        place = state.partitions[partition]
        newest = max(state.schemas.values(), key=lambda info: info.number)
        first, head = place.visible_end, b""
        if columns is not None:
            newest = SchemaInfo(1000, newest.topic, newest.family, columns)
        head = definition(state, place, newest)
    prefix = EventsPrefix(newest.number, producer, sequence, 7).encode()
    frames = [
        (FrameKind.DEFINITION, 0, 0, head),
        (FrameKind.EVENTS, len(batch), first, prefix + bytes(batch.serialize())),
    ]
    start, path = list_files(root / "log")[-1]
    stored = path.read_bytes()
    group = start + len(stored)
    for kind, count, index, body in frames:
        frame = FrameHead(kind, len(body), count, group, place.number, index, checksum64(body))
        stored += frame.encode(start + len(stored)) + body + bytes(padded(len(body)) - len(body))
    path.write_bytes(stored)
    (root / "log" / MARK_NAME).write_bytes(encode_mark(start + len(stored)))
    return first


def newest_columns(root, topic) -> EventSchema:
    """The columns of a topic's newest schema."""
    with aggregator.open(root, read_only=True) as catalog:
        catalog.topics()
        schemas = catalog._backend.state.topics[topic].schemas
        return max(schemas.values(), key=lambda info: info.number).schema


def events(schema: EventSchema, rows) -> pa.RecordBatch:
    """Rows, as mappings of columns, as an unchecked batch of the schema."""
    filled = [{"grouping": ""} | row for row in rows]
    return pa.RecordBatch.from_pylist(filled, schema=schema.arrow)


def stored_anywhere(root, text: bytes) -> list[str]:
    """The files of a catalog whose bytes contain a text."""
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and text in path.read_bytes()
    )
