"""The log that is read when a catalog opens: damaged files, and frames with arbitrary contents and valid checksums."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

import aggregator
from aggregator.engine.recovery.replay import Replay
from aggregator.errors import CorruptLogError, UnknownVersionError
from aggregator.storage.log.file import Damage, Frame, decode_mark, list_files, read_frames
from aggregator.storage.log.frame import FILE_HEADER_BYTES, FrameHead, FrameKind, decode_file_header
from aggregator.storage.manifest import Contents
from aggregator.storage.state.state import CatalogState

_EVENTS = pa.table(
    {
        "space": ["a", "b", "a"],
        "timestamp": [1, 2, 3],
        "data": [b"x", b"", b"yy"],
        "n": [1, None, 2],
        "tags": [["t"], [], None],
    }
)


def _catalog() -> tuple[bytes, Contents]:
    """A log file with batches of two schemas, one of them of a producer, and the state that the manifest has of it."""
    with tempfile.TemporaryDirectory() as folder, aggregator.open(Path(folder) / "c", durability="none") as catalog:
        topic = catalog.create_topic("t", indexes=["n"])
        topic.append(_EVENTS)
        topic.append(_EVENTS.append_column("more", [[True] * 3]), producer="p", sequence=1)
        contents = catalog._backend.manifest.load()
        ((_, path),) = list_files(Path(folder) / "c" / "log")
        return path.read_bytes(), contents


_FILE, _CONTENTS = _catalog()
_START = decode_file_header(_FILE)


def seeds() -> list[bytes]:
    """A log file, and the bodies of its frames, each after a byte with its number of events."""
    frames = [frame for frame in read_frames(memoryview(_FILE), Path("log"), _START) if isinstance(frame, Frame)]
    assert len(frames) > 2
    return [_FILE, *(bytes([frame.head.count]) + bytes(frame.body) for frame in frames)]


def one_input(data: bytes) -> None:
    """Read the bytes as a log file, as the mark beside it, and as the body of each kind of frame."""
    with suppress(CorruptLogError, UnknownVersionError):
        decode_file_header(data)
    decode_mark(data[:16])
    at = _START + FILE_HEADER_BYTES
    for found in read_frames(memoryview(data), Path("log"), _START):
        begin, at = found.position, found.end
        assert begin < at
        if isinstance(found, Damage):
            assert found.message
    assert at >= _START + len(data)
    for kind in FrameKind:
        _replay(kind, data[:1], data[1:])


def _replay(kind: FrameKind, count: bytes, body: bytes) -> None:
    state = CatalogState(_CONTENTS)
    replay = Replay(state, None, lambda: 1)
    (number,) = state.partitions
    head = FrameHead(kind, len(body), sum(count), 0, number, 0, 0)
    replay.take(Frame(0, head, memoryview(body)))
    _, partition = state.partitions[number]
    assert replay.unreadable or kind == FrameKind.DEFINITION or partition.next_index == sum(count)
    for batch in partition.memtable.batches:
        assert len(batch.events) == batch.end_index - batch.first_index
        batch.events.validate(full=True)
        batch.events.drop_columns(["timestamp"]).to_pylist()  # times may be beyond Python's range
