"""Looks for what is left of a space, wherever the catalog keeps events or keys."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import esformat
from aggregator.errors import CorruptLogError
from aggregator.files import Layout, manifest_files
from aggregator.log_file import Frame, list_files, read_file, read_frames
from aggregator.log_frame import EventsPrefix, FrameKind
from aggregator.reports import Traces
from aggregator.state import CatalogState, Topic
from aggregator.tombstones import erased_spaces

LEAST_SEARCHED_BYTES = 4
"""Shorter keys stand by chance in any file."""


def look_for(
    space: bytes, topic: Topic, state: CatalogState, layout: Layout, waiting: list[int], visible: int
) -> Traces:
    """Search segments, memory, log and manifest. waiting: retired segments whose files may still be there.

    Raises OSError, esformat.CorruptSegmentError for a segment that cannot be read.
    """
    with state.view_lock:
        numbers = [info.number for info in topic.segments.view()]
        parts = [part for p in topic.partitions.values() for part in (p.sealing, p.unsealed) if part is not None]
        batches = [piece.batch for part in parts for piece in part.pieces]
        partitions = {p.number for p in topic.partitions.values()}
    held = [number for number in (*numbers, *waiting) if _holds(layout.segment(number), space)]
    quarantined = list(layout.quarantine.iterdir()) if layout.quarantine.is_dir() else []
    in_manifest = sum(_stored(path, space) for path in manifest_files(layout.manifest))
    return Traces(
        visible, tuple(held), sum(_count(batch, space) for batch in batches),
        _logged(layout.log, topic, partitions, space), in_manifest,
        space in erased_spaces(topic.tombstones), len(quarantined),
    )  # fmt: skip


def _holds(path: Path, space: bytes) -> bool:
    try:
        with esformat.open(path, cache_bytes=0) as segment:
            return segment.find(space) is not None
    except FileNotFoundError:
        return False


def _count(batch: pa.RecordBatch, space: bytes) -> int:
    spaces = batch.column("space")
    with contextlib.suppress(pa.ArrowInvalid):  # bytes that are no text: no event can have them
        wanted = pa.scalar(space, pa.binary()).cast(spaces.type)
        return int(pc.sum(pc.equal(spaces, wanted)).as_py() or 0)
    return 0


def _logged(directory: Path, topic: Topic, partitions: set[int], space: bytes) -> int:
    """Events of the space in the log's files."""
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
                schema = topic.schemas[prefix.schema].schema.arrow
                count += _count(pa.ipc.read_record_batch(pa.py_buffer(item.body[begin:]), schema), space)
    return count


def _stored(path: Path, space: bytes) -> int:
    if len(space) < LEAST_SEARCHED_BYTES:
        return 0
    try:
        return path.read_bytes().count(space)
    except FileNotFoundError:
        return 0
