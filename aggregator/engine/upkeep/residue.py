"""Search a catalog for residue of an erased space."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import esformat
from aggregator.base.reports import Traces
from aggregator.engine.seal.quarantine_file import count_space, damaged_files
from aggregator.errors import CorruptLogError, SegmentMissingError
from aggregator.model import QuarantinedBatch, SegmentInfo, StoredSegment
from aggregator.storage.files.layout import Layout, manifest_files
from aggregator.storage.log.file import Frame, list_files, read_file, read_frames
from aggregator.storage.log.frame import EventsPrefix, FrameKind
from aggregator.storage.manifest import Manifest, StoredRows
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import Snapshot, Topic
from aggregator.storage.state.tombstones import erased_spaces

LEAST_SEARCHED_BYTES = 4
"""Minimum length of keys to search for in the manifest: shorter ones occur by chance in any file."""


def look_for(
    space: bytes, topic: Topic, snapshot: Snapshot, pool: SegmentPool, layout: Layout, manifest: Manifest, visible: int
) -> Traces:
    """Search segments (including retired ones and those in the store), memory, log, quarantined batches and manifest.
    The snapshot must be pinned.

    Raises OSError, esformat.CorruptSegmentError for a segment, CorruptLogError for a batch that cannot be read.
    """
    batches = [batch.events for part in snapshot.memtables for batch in part.batches]
    partitions = {number for number, _ in snapshot.partitions}
    stored = {each.number: each for each in StoredRows(manifest).all()}
    retired = [  # read before the search: the snapshot has those merged meanwhile
        stored.get(number, StoredSegment(number, 0, size, local=True)) for number, size, _ in manifest.retired()
    ]
    held = [each.number for each in (*snapshot.segments, *retired) if _holds(pool, each, space)]
    batches_aside = [batch for batch in manifest.quarantined() if batch.partition in partitions]
    longer = manifest.keys_with(space)
    in_manifest = sum(_stored(path, space, longer) for path in (*manifest_files(layout.manifest), layout.facts))
    in_manifest += _noted(layout.facts, space)
    return Traces(
        visible,
        tuple(held),
        sum(_count(batch, space) for batch in batches),
        _logged(layout.log, topic, partitions, space),
        in_manifest,
        space in erased_spaces(topic.tombstones),
        len(damaged_files(layout)),
        sum(_set_aside(layout, batch, space) for batch in batches_aside),
    )


def _holds(pool: SegmentPool, segment: SegmentInfo | StoredSegment, space: bytes) -> bool:
    try:
        with esformat.open(pool.source(segment), cache_bytes=0) as opened:
            return opened.find(space) is not None
    except (SegmentMissingError, esformat.SegmentChangedError):
        return False


def _count(batch: pa.RecordBatch, space: bytes) -> int:
    spaces = batch.column("space")
    with contextlib.suppress(pa.ArrowInvalid):  # bytes that are not text: no event can have them
        wanted = pa.scalar(space, pa.binary()).cast(spaces.type)
        return int(pc.sum(pc.equal(spaces, wanted)).as_py() or 0)
    return 0


def _set_aside(layout: Layout, batch: QuarantinedBatch, space: bytes) -> int:
    try:
        return count_space(layout, batch, space)
    except FileNotFoundError:  # deleted meanwhile
        return 0


def _logged(directory: Path, topic: Topic, partitions: set[int], space: bytes) -> int:
    """Number of events of the space in the log's files."""
    count = 0
    for start, path in list_files(directory):
        try:
            data = read_file(path, start)
        except FileNotFoundError:  # deleted meanwhile
            continue
        except CorruptLogError:
            data = memoryview(path.read_bytes())
        for item in read_frames(data, path, start):
            if isinstance(item, Frame) and item.head.kind == FrameKind.EVENTS and item.head.partition in partitions:
                prefix, begin = EventsPrefix.decode(item.body)
                schema = topic.schemas.get(prefix.schema)
                if schema is not None:  # else another process has just added it
                    batch = pa.ipc.read_record_batch(pa.py_buffer(item.body[begin:]), schema.schema.arrow)
                    count += _count(batch, space)
    return count


def _stored(path: Path, space: bytes, longer: set[bytes]) -> int:
    """How often the bytes occur in a file, except as a part of longer keys."""
    if len(space) < LEAST_SEARCHED_BYTES:
        return 0
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return 0
    shapes = {(place, len(key)) for key in longer for place in _places(key, space)}
    return sum(
        not any(stored[max(0, at - place) : at - place + length] in longer for place, length in shapes)
        for at in _places(stored, space)
    )


def _noted(path: Path, space: bytes) -> int:
    """How often the manifest backup records the space as hidden."""
    try:
        return path.read_bytes().count(b'"space":"%s"' % space.hex().encode())
    except FileNotFoundError:
        return 0


def _places(stored: bytes, part: bytes) -> Iterator[int]:
    """The offsets at which `part` occurs."""
    at = stored.find(part)
    while at >= 0:
        yield at
        at = stored.find(part, at + 1)
