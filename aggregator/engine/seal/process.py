"""Write segments in a child process, so that encoding never delays appends or reads.

It is begun with the catalog, and anew where something ended it. It writes into a directory of its own in `staging/`;
a segment gets its name here. So a process that outlives its parent for a moment leaves nothing that the next one to
open the catalog could take for a segment.
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

POSSIBLE = hasattr(socket, "send_fds")
"""Where there are Unix sockets."""
PREFIX = "sealing-"
"""How the directories in `staging/` begin; they are swept when a catalog is opened."""
END_S = 10.0
"""How long the process may take to end."""
_PROGRAM = (
    "import json, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = json.loads(sys.argv[2]); "
    "from esformat.parts import hide_pandas, import_late; hide_pandas(); import_late(); "
    "from aggregator.engine.seal.worker import run; run(int(sys.argv[1]))"
)


class SealingProcess:
    """Writes segments in another process, one at a time. Safe to share between threads; close it."""

    def __init__(self, layout: Layout, *, begin: bool = True, called: str = "sealing") -> None:
        """begin: now; else when there is something to write, as where the system gives no process now. called: what its
        command says that it is for.
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
        """Of the process, if there is one."""
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
        """As `segment_file.write_segment`, from batches of schemas of one family; None where every event is hidden.

        Raises also SealingFailedError, whose `ended` says whether the process was ended meanwhile.
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
        """As `segment_file.merge_segments`, from files. Raises also SealingFailedError."""
        merged = self._made(path, lambda staged: self._ask(MergeTask(staged, tuple(sources), dict(properties))))
        assert isinstance(merged, Merged)
        return merged

    def give_up(self) -> None:
        """End the process in the middle of what it does, if anything: whoever waits for that is told that it ended."""
        running = self._running
        if running is not None:
            with contextlib.suppress(OSError):
                running[1].shutdown(socket.SHUT_RDWR)

    def _made(self, path: Path, ask: Callable[[Path], Any]) -> Any:
        """What `ask` gives, which has a file written under a name of its own: it gets the path's, or there is none."""
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
        except BaseException:  # somebody gave up waiting: the answer to this must not be taken for that to another
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
                process = subprocess.Popen(  # noqa: S603  this interpreter, and nothing that anybody gave
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
        """In a forked process: the writing one must see it when its parent ends."""
        if self._running is not None:
            self._running[1].close()

    def close(self) -> None:
        """End the process. What it was writing is given up."""
        with self._lock:
            self._end()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def _shared(batches: Sequence[pa.RecordBatch]) -> Iterator[int]:
    """The descriptor of a file without a name that holds batches as Arrow streams, one after the other, each of one
    schema. It lies in memory where the system has such files.
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
