"""Writes segments in a child process, so that encoding never delays appends or reads.

The process starts with the catalog, and again after it has ended. It writes into its own directory in `staging/`, and
this process renames the segment into place. So a child that outlives its parent for a moment leaves nothing that the
next opening could mistake for a segment.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from aggregator.base.forked import leave_when_forked
from aggregator.engine.seal.worker import MergeTask, Task, Work, receive, send
from aggregator.errors import SealingFailedError
from aggregator.model import ProducerEntry, SchemaInfo, SegmentInfo, TopicInfo
from aggregator.storage.files.layout import Layout, make_directory
from aggregator.storage.files.staging import staging
from aggregator.storage.segments.file import Merged
from aggregator.storage.state.tombstones import Hidden
from esformat import UsageError
from esformat.parts import sync_directory

PROCESSES_SUPPORTED = hasattr(socket, "send_fds")
"""Whether the system has the Unix sockets that this needs."""
PREFIX = "sealing-"
"""Prefix of the directories in `staging/`, which are deleted when a catalog is opened."""
END_S = 10.0
"""Seconds that the process may take to end, before it is killed."""
_PROGRAM = (
    "import json, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = json.loads(sys.argv[2]); "
    "from esformat.parts import hide_pandas, import_late; hide_pandas(); import_late(); "
    "from aggregator.engine.seal.worker import run; run(int(sys.argv[1]))"
)


class SealingProcess:
    """Writes segments in another process, one at a time. Thread-safe; close it after use."""

    def __init__(self, layout: Layout, *, begin: bool = True, called: str = "sealing") -> None:
        """begin: start the process now; else, or if the system cannot start it now, when there is something to write.
        called: its purpose, shown in its command line.
        """
        self._layout, self._called = layout, called
        self._folder = staging(layout) / f"{PREFIX}{secrets.token_hex(8)}"
        self._lock = Lock()
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        leave_when_forked(self)
        if begin:
            with contextlib.suppress(OSError):
                self._running = self._start()

    @property
    def pid(self) -> int | None:
        """The id of the process; None if there is none."""
        return None if self._running is None else self._running[0].pid

    def write_segment(
        self,
        path: Path,
        batches: Sequence[pa.RecordBatch],
        *,
        number: int,
        topic: TopicInfo,
        partition: tuple[int, str],
        schema: SchemaInfo,
        producers: Iterable[ProducerEntry] = (),
        now_us: int,
        threads: int | None = None,
        hidden: Hidden | None = None,
    ) -> SegmentInfo | None:
        """Like `segments.file.write_segment`, from batches with schemas of one family; None if every event is hidden.

        Also raises SealingFailedError, whose `ended` says whether the process ended meanwhile.
        """
        given = tuple(producers)

        def ask(staged: Path) -> Any:
            task = Task(staged, number, topic, partition, schema, given, now_us, threads, hidden or {})
            with _shared(batches) as events:
                return self._ask(task, events)

        info = self._made(path, ask)
        assert info is None or isinstance(info, SegmentInfo)
        return info

    def merge(self, path: Path, sources: Sequence[str], properties: Mapping[str, str]) -> Merged:
        """Like `segments.file.merge_segments`, from files. Also raises SealingFailedError."""
        merged = self._made(path, lambda staged: self._ask(MergeTask(staged, tuple(sources), dict(properties))))
        assert isinstance(merged, Merged)
        return merged

    def abort(self) -> None:
        """End the process even in the middle of a task: the waiting caller gets SealingFailedError."""
        running = self._running
        if running is not None:
            with contextlib.suppress(OSError):
                running[1].shutdown(socket.SHUT_RDWR)

    def _made(self, path: Path, ask: Callable[[Path], Any]) -> Any:
        """Call `ask` with a staging path to write a file there, rename the file to `path`, and return the result. On
        errors, or if `ask` returns None, no file is written.
        """
        if path.exists():
            raise UsageError("the file exists", path=str(path))
        staged = self._folder / path.name
        with self._lock:
            make_directory(self._folder.parent)
            make_directory(self._folder)
            try:
                made = ask(staged)
                if made is None:
                    return None
                make_directory(path.parent.parent)
                make_directory(path.parent)
                staged.rename(path)
                sync_directory(path.parent)
            except BaseException:
                shutil.rmtree(self._folder, ignore_errors=True)
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                raise
        return made

    def _ask(self, task: Work, *descriptors: int) -> SegmentInfo | Merged | None:
        if self._running is None:
            self._running = self._start()
        process, channel = self._running
        try:
            send(channel, task, descriptors)
            answer, _ = receive(channel)
        except (EOFError, OSError):
            self._end()
            raise SealingFailedError(
                f"the process that writes segments ended {_how(process.returncode)}",
                path=str(self._layout.root),
                hint="the next attempt starts it again; if it keeps failing, give it more memory or seal in threads",
                ended=True,
            ) from None
        except BaseException:  # waiting was interrupted: the late answer must not be mistaken for another task's
            self._end()
            raise
        if isinstance(answer, Exception):
            raise answer
        assert answer is None or isinstance(answer, SegmentInfo | Merged)
        return answer

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        mine, its = socket.socketpair()
        with its:
            try:
                modules = json.dumps([path for path in sys.path if isinstance(path, str)])
                command = [sys.executable, "-P", "-c", _PROGRAM, str(its.fileno()), modules, self._called]
                process = subprocess.Popen(  # noqa: S603  this interpreter, without user input
                    [*command, str(self._layout.root)],
                    pass_fds=[its.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            except BaseException:
                mine.close()
                raise
        return process, mine

    def _end(self) -> None:
        if self._running is not None:
            (process, channel), self._running = self._running, None
            channel.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def leave_to_parent(self) -> None:
        """In a forked process: close the socket, so that the writing process notices when its parent ends."""
        if self._running is not None:
            self._running[1].close()

    def close(self) -> None:
        """End the process. What it is writing is abandoned."""
        with self._lock:
            self._end()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def _shared(batches: Sequence[pa.RecordBatch]) -> Iterator[int]:
    """The descriptor of an unnamed file that contains batches as consecutive Arrow streams, each of one schema. The
    file is in memory if the system supports that.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("aggregator-sealing")
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp(prefix="aggregator-sealing-")
    try:
        try:
            with pa.OSFile(path, "wb") as file:
                for _, alike in groupby(batches, key=lambda batch: batch.schema):
                    some = list(alike)
                    with pa.ipc.new_stream(file, some[0].schema) as stream:
                        for batch in some:
                            stream.write_batch(batch)
        finally:
            if not path.startswith("/proc/"):
                Path(path).unlink()
        yield descriptor
    finally:
        os.close(descriptor)


def _how(status: int | None) -> str:
    return f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
