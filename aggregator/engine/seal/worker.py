"""The child process that writes segments: its requests, its answers, its main loop.

It receives tasks over a socket and does one at a time. A task to seal events comes with the descriptor of a file that
contains them as Arrow streams. The process ends when the socket closes: with the catalog, or with the process that
opened the catalog, however that ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import queue
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from aggregator.engine.seal.table import sealing_table
from aggregator.errors import SealingFailedError
from aggregator.model import ProducerEntry, SchemaInfo, SegmentInfo, TopicInfo
from aggregator.storage.segments.file import Merged, TopicTemplates, merge_segments, write_segment
from aggregator.storage.state.tombstones import Hidden
from esformat import EsdbError

NICE = 5
"""Niceness of the process, which yields to threads that append and read."""
LOOK_S = 1.0
"""Seconds between checks that the parent still exists: a process forked from the parent may keep the socket open."""
_LENGTH = struct.Struct("<Q")
_known = TopicTemplates()


@dataclass(frozen=True, slots=True)
class Task:
    """A segment to write at a staging path, from batches in a shared file; see `SealingProcess.write_segment`."""

    path: Path
    number: int
    topic: TopicInfo
    partition: tuple[int, str]
    schema: SchemaInfo
    producers: tuple[ProducerEntry, ...]
    now_us: int
    threads: int | None
    hidden: Hidden


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A segment to write at a staging path, from files; see `SealingProcess.merge`."""

    path: Path
    sources: tuple[str, ...]
    properties: dict[str, str]


Work = Task | MergeTask


def send(channel: socket.socket, message: object, descriptors: tuple[int, ...] = ()) -> None:
    """Send a message; descriptors go with its length. Raises OSError if the other end is closed."""
    body = pickle.dumps(message)
    socket.send_fds(channel, [_LENGTH.pack(len(body))], descriptors)
    channel.sendall(body)


def receive(channel: socket.socket) -> tuple[Any, list[int]]:
    """Receive the next message, which this program has sent, and its descriptors. Raises EOFError at the end."""
    head, descriptors, _, _ = socket.recv_fds(channel, _LENGTH.size, 1)
    head += _exactly(channel, _LENGTH.size - len(head))
    (length,) = _LENGTH.unpack(head)
    return pickle.loads(_exactly(channel, length)), descriptors  # noqa: S301  only parent and child have the socket


def _exactly(channel: socket.socket, count: int) -> bytes:
    body = bytearray()
    while len(body) < count:
        some = channel.recv(min(count - len(body), 1 << 20))
        if not some:
            raise EOFError
        body += some
    return bytes(body)


# ------------------------------------------------------------ the process


def run(descriptor: int) -> None:
    """Do the tasks that arrive over the socket with that descriptor, until it closes; then the process ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # these are for the parent, which then ends this process
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    channel = socket.socket(fileno=descriptor)
    tasks: queue.SimpleQueue[tuple[Work, list[int]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, tasks, os.getppid()), daemon=True).start()
    while True:
        answer = _answer(*tasks.get())
        try:
            send(channel, answer)
        except OSError:
            return


def _listen(channel: socket.socket, tasks: queue.SimpleQueue[tuple[Work, list[int]]], parent: int) -> None:
    """Receive tasks. End the process with its parent, even in the middle of a task."""
    try:
        while True:
            while not select.select([channel], [], [], LOOK_S)[0]:
                if os.getppid() != parent:
                    os._exit(0)
            task, descriptors = receive(channel)
            if isinstance(task, Task) and len(descriptors) != 1:
                raise ValueError("a task without its events")
            tasks.put((task, descriptors))
    except (EOFError, OSError):
        os._exit(0)
    except BaseException:  # noqa: BLE001  such as a lost descriptor because too many are open
        traceback.print_exc(file=sys.stderr)
        os._exit(1)


def _answer(task: Work, descriptors: list[int]) -> SegmentInfo | Merged | Exception | None:
    """Do a task and return its result, which may be an error."""
    try:
        if isinstance(task, MergeTask):
            return merge_segments(task.sources, task.path, task.properties)
        return _write(task, *descriptors)
    except (EsdbError, OSError, MemoryError) as error:
        return error.with_traceback(None)
    except Exception as error:  # noqa: BLE001  sent to the parent; the traceback goes to stderr
        traceback.print_exc(file=sys.stderr)
        return SealingFailedError(f"writing a segment failed: {error!r}", path=str(task.path))
    finally:
        for each in descriptors:
            os.close(each)


def _write(task: Task, events: int) -> SegmentInfo | None:
    """Write the segment; None, and no file, if every event is hidden."""
    shared = mmap.mmap(events, 0, access=mmap.ACCESS_READ)  # unmapped with the last table that refers to it
    table = sealing_table(_batches(pa.py_buffer(shared)), task.schema.schema, task.hidden)
    if not len(table):
        return None
    return write_segment(
        task.path, [table], number=task.number, topic=task.topic, partition=task.partition, schema=task.schema,
        producers=task.producers, now_us=task.now_us, threads=task.threads,
        templates=_known.of(task.topic, task.schema, table.nbytes),
    )  # fmt: skip


def _batches(shared: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Yield batches of several schemas from consecutive streams."""
    reader = pa.BufferReader(shared)
    while reader.tell() < shared.size:
        with pa.ipc.open_stream(reader) as stream:
            yield from stream
