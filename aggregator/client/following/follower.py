"""`Follower`: keeps a directory as a copy of the catalog on a server.

It has two threads. One copies the log, which has the newest events; its bytes are readable once they are synced. The
other copies the manifest when it has changed, after the segments that it names. If bytes of the log were sealed and
deleted before they were copied, a manifest requested later names segments with their events: the log is then restarted
after the gap, and becomes valid together with that manifest. The directory contains everything needed to continue after
a crash.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from aggregator.base.result import Closing
from aggregator.client.following.source import LogBytes, Source
from aggregator.client.http.connection import Connection, Options
from aggregator.client.http.errors import TruncatedAnswerError, UnavailableError
from aggregator.client.http.retry import Retry
from aggregator.engine.follower import ReaderEngine
from aggregator.engine.seal.quarantine_file import batch_files, batch_path
from aggregator.engine.writer import now_us
from aggregator.errors import (
    CorruptLogError,
    CorruptManifestError,
    InvalidRequestError,
    OverloadedError,
    SegmentMissingError,
)
from aggregator.storage.files.following import Following, read_following, write_following
from aggregator.storage.files.layout import Layout, make_directory, partial_of, replaced, segment_files
from aggregator.storage.files.lock import WriterLock
from aggregator.storage.files.modes import create_directory, create_file
from aggregator.storage.files.pins import Pins
from aggregator.storage.log.copying import LogCopy
from aggregator.storage.manifest import IDENTITY, IncarnationRows, Manifest, StoredRows, refuse_foreign_directory
from aggregator.storage.manifest.copying import block_sums
from aggregator.storage.manifest.lineage import Lineage
from aggregator.storage.segments.file import file_checksum
from aggregator.storage.state.state import CatalogState
from esformat.parts import naming, sync_directory, sync_file

logger = logging.getLogger("aggregator")
_PASSING = (
    UnavailableError, OverloadedError, TruncatedAnswerError, CorruptLogError, CorruptManifestError, SegmentMissingError,
    OSError,
)  # fmt: skip
"""Errors that a retry may resolve, including a log file that was sealed and deleted while it was requested."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_NOTE_EVERY_S = 1.0
_LOOK_S = 10.0
"""Seconds between requests for the manifest even if the log announces no change: some facts do not count as one."""
_FILES_AT_ONCE = 4
_OLD_COPY = "the server has an older copy: promote this follower, or follow into an empty directory"
_TRIES = 3
"""Attempts to fetch a file that the manifest names and the server lacks. After these the server is assumed to have lost
it."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A file that a manifest names."""

    kind: str
    number: int
    checksum: int


class Follower(Closing):
    """Follows a server while it is open. A context manager; any process may read the directory at any time."""

    def __init__(self, url: str, root: str | os.PathLike[str], *, token: str | None = None, **options: Any) -> None:
        """Begin to follow, or continue. options: `ca_file`, `client_cert` and `timeout_s` of `Client`.

        Raises CatalogLockedError (a writer or another follower has it), InvalidRequestError (a directory with other
        contents), OSError.
        """
        self._options = Options(url, token, retry=Retry(attempts=1), **options)
        self._layout = Layout(Path(root).absolute())
        self.on_arrival: Callable[[], None] = lambda: None
        """Called when there is more to read."""
        self._stop, self._wanted, self._whole = Event(), Event(), Event()
        self._installing = Lock()
        self._failed: Exception | None = None
        self._troubles: dict[Callable[[], None], str] = {}  # by thread: log or files
        with ExitStack() as opened:
            self._open(opened)
            self._threads = [
                Thread(target=self._repeat, args=(work,), name=f"follow-{name}", daemon=True)
                for name, work in (("log", self._copy_log), ("files", self._copy_files))
            ]
            for thread in self._threads:
                thread.start()
            opened.callback(self._join)
            self._opened = opened.pop_all()

    def _open(self, opened: ExitStack) -> None:
        layout = self._layout
        create_directory(layout.root)
        refuse_foreign_directory(layout)
        note = read_following(layout.following)
        if note is None and (layout.manifest.exists() or layout.log.exists() or layout.segments.exists()):
            raise InvalidRequestError(
                "the directory already contains a catalog", path=str(layout.root), hint="follow into another directory"
            )
        lock = WriterLock(layout.writer_lock)
        opened.callback(lock.release)
        for directory in (layout.log, layout.segments, layout.quarantine):
            make_directory(directory)
        self._note = replace(note or Following(""), url=self._options.url, trouble="")
        write_following(layout.following, self._note)
        lock.announce(None)
        self._pins = Pins(layout.reader_locks, read_only=False)
        opened.callback(self._pins.close)
        self._log = LogCopy(layout.log)
        opened.callback(self._log.close)
        connection = Connection(self._options)
        opened.callback(connection.close)
        self._source = Source(connection)
        self._lacking, self._oldest, self._noted_s = 0, 0, 0.0
        self._sums = block_sums(layout.manifest) if layout.manifest.exists() else b""
        self._incarnation, self._installed = (
            "",
            "",
        )  # server incarnations: the log's, possibly, and the manifest's newest
        self._seen = ""  # the last incarnation found to continue from this copy
        self._caught_up = 0  # how often nothing was missing: a count, as clocks may be set back
        self._absent: Counter[tuple[str, int]] = Counter()
        self._gone: dict[Path, int] = {}
        self._there = self._found()
        if self._note.whole:
            self._whole.set()

    def _found(self) -> dict[tuple[str, int], int]:
        """Return the checksums of existing files. Those that the manifest names were verified when they were copied."""
        layout, known = self._layout, {}
        if layout.manifest.exists():
            with contextlib.closing(Manifest(layout.manifest, read_only=True)) as manifest:
                known = {(each.kind, each.number): each.checksum for each in _named(manifest)}
                self._installed = IncarnationRows(manifest).newest().hex()
        paths = {("segments", number): path for number, path in segment_files(layout).items()}
        paths |= {("quarantine", number): path for number, path in batch_files(layout).items()}
        return {key: known[key] if key in known else file_checksum(path) for key, path in paths.items()}

    # ------------------------------------------------------------ the threads' work

    def _repeat(self, work: Callable[[], None]) -> None:
        pause = _PAUSE_S
        while not self._stop.is_set():
            try:
                work()
                pause = _PAUSE_S
                if self._troubles.pop(work, None) is not None:
                    self._note_trouble()
            except _PASSING as error:
                if self._troubles.get(work) != str(error):
                    logger.warning("following %s: %s", self._note.url, error)
                self._troubles[work] = str(error)
                self._note_trouble()
                self._stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            except Exception as error:  # noqa: BLE001  `check` raises it
                logger.error("following %s stopped: %s", self._note.url, error)
                self._failed = error
                self._troubles[work] = str(error)
                self._note_trouble()
                self._stop.set()
                self._wanted.set()
                self._whole.set()

    def _copy_log(self) -> None:
        """Copy what the server has acknowledged since the last call."""
        log = self._log
        answer = self._source.log(log.position, log.last, self._lacking)
        self._check_identity(answer.identity)
        if self._note.whole and answer.incarnation not in (self._installed, self._seen):
            self._wanted.set()  # its manifest shows whether it continues from this copy: copy nothing before
            self._stop.wait(_PAUSE_S)
            return
        with self._installing:
            self._incarnation = answer.incarnation  # from now on the log may have bytes of this incarnation
        if answer.lost:
            with self._installing:
                log.begin_anew()
                self._note = replace(self._note, whole=False, begin=answer.position)
                write_following(self._layout.following, self._note)
            self._whole.clear()
            self._wanted.set()
        self._lacking = log.add(answer.file, answer.position, answer.data) if answer.data else 0
        if answer.oldest > self._oldest:
            self._wanted.set()
        self._oldest = answer.oldest
        with self._installing:
            if self._note.whole and answer.data and self._incarnation == self._installed:
                log.acknowledge(self._note.change)
        if answer.data:
            self.on_arrival()
        if answer.change != self._note.change:
            self._wanted.set()
        self._note_reached(answer)

    def _check_identity(self, identity: str) -> None:
        if self._note.identity not in ("", identity):
            raise InvalidRequestError(
                "the server has a different catalog from the one followed so far",
                path=self._note.url,
                hint="follow it into another directory",
            )

    def _check_past(self, past: Lineage, theirs: CatalogState) -> None:
        """Refuse a server that continues without records that were copied here.

        It has an older copy of its directory, or another follower's, which skipped record indexes that it did not know.
        """
        with contextlib.closing(ReaderEngine(self._layout, now_us)) as mine:
            ends = {number: partition.visible_end for number, (_, partition) in mine.state.partitions.items()}
            passed_over = any(
                _given(theirs, number, end) < _given(mine.state, number, end) for number, end in ends.items()
            )
            if passed_over or not past.has(mine.state.lineage.name_of(ends), ends, ends):
                raise InvalidRequestError("the server lacks records that were copied from it", hint=_OLD_COPY)

    def _copy_files(self) -> None:
        """Copy the manifest and the files that it names."""
        self._wanted.wait(_LOOK_S if self._note.whole else _PAUSE_S)
        asked = self._wanted.is_set()
        self._wanted.clear()
        if self._stop.is_set() or self._log.position is None:
            self._stop.wait(_PAUSE_S)
            return
        begin, oldest = self._note.begin, self._oldest
        base = self._layout.manifest if self._sums else None
        partial = partial_of(self._layout.manifest)
        partial.unlink(missing_ok=True)
        with naming(str(partial), "the follower will retry"), os.fdopen(create_file(partial, os.O_RDWR), "r+b") as file:
            sums = self._source.manifest(file, base, self._sums)
            file.flush()
            sync_file(file.fileno())
        if sums == self._sums and self._note.whole:
            self._log.drop_before(oldest)
            return
        with contextlib.closing(Manifest(partial, read_only=True)) as manifest:
            change, identity = manifest.change(), manifest.get(IDENTITY) or ""
            incarnation = IncarnationRows(manifest).newest().hex()
            named = _named(manifest)
            self._check_identity(identity)
            if self._note.whole and incarnation != self._installed:
                self._check_past(IncarnationRows(manifest).lineage(), CatalogState(manifest.load()))
                self._seen = incarnation
        if change < self._note.change:
            raise InvalidRequestError(
                f"the server's manifest ends with change {change}, but it had reached change {self._note.change}",
                hint=_OLD_COPY,
            )
        try:
            self._fetch(named)
        except SegmentMissingError:  # it was merged or removed, so the manifest has changed
            self._wanted.set()
            self._stop.wait(_PAUSE_S / 10)
            return
        if not self._install(
            partial, sums, replace(self._note, identity=identity, change=change), begin, oldest, incarnation
        ):
            self._wanted.set()
            self._stop.wait(_PAUSE_S)
            return
        self._sweep(named, change)
        if asked:
            self._stop.wait(_PAUSE_S)  # copy many successive changes together

    def _fetch(self, named: Iterable[_Wanted]) -> None:
        missing = [each for each in named if self._there.get((each.kind, each.number)) != each.checksum]
        missing = [each for each in missing if self._absent[each.kind, each.number] < _TRIES]
        if not missing:
            return
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            for _ in pool.map(self._fetch_one, missing):
                pass

    def _fetch_one(self, wanted: _Wanted) -> None:
        if self._stop.is_set():
            raise TruncatedAnswerError("the follower was stopped")
        key = (wanted.kind, wanted.number)
        path = self._path(*key)
        make_directory(path.parent)
        try:
            with replaced(path) as file:
                self._source.file(wanted.kind, wanted.number, file, wanted.checksum)
        except SegmentMissingError:
            self._absent[key] += 1
            raise
        self._there[key] = wanted.checksum
        self._absent.pop(key, None)

    def _path(self, kind: str, number: int) -> Path:
        return self._layout.segment(number) if kind == "segments" else batch_path(self._layout, number)

    def _install(self, partial: Path, sums: bytes, note: Following, begin: int, oldest: int, incarnation: str) -> bool:
        """Publish the manifest for readers, and drop the parts of the log that its segments contain.

        Return False, and change nothing, if the log may have bytes of a later incarnation of the server: positions
        after them would be attributed to the manifest's incarnation.
        """
        layout = self._layout
        with self._installing:
            if incarnation != self._incarnation:
                return False
            self._installed = incarnation
            partial.replace(layout.manifest)
            sync_directory(layout.root)
            self._sums = sums
            completes = not self._note.whole and self._note.begin == begin
            whole = self._note.whole or completes
            if completes:
                self._log.drop_before(begin)
            if whole:
                self._log.acknowledge(note.change)
                self._log.drop_before(oldest)
            # last: callers that wait for this may read immediately
            self._note = replace(self._note, identity=note.identity, change=note.change, whole=whole)
            if completes:
                write_following(layout.following, self._note)
                self._whole.set()
        self.on_arrival()
        return True

    def _sweep(self, named: Iterable[_Wanted], change: int) -> None:
        """Delete files that the manifest no longer names and no scan reads."""
        keep = {(each.kind, each.number) for each in named}
        for key in [key for key in self._there if key not in keep]:
            del self._there[key]
            self._gone[self._path(*key)] = change
        self._pins.keep_file()
        for path, since in list(self._gone.items()):
            if not self._pins.holds_before(since):
                path.unlink(missing_ok=True)
                del self._gone[path]

    # ------------------------------------------------------------ progress

    def _note_reached(self, answer: LogBytes) -> None:
        position = self._log.position or 0
        current = self._note.change == answer.change and self._installed == answer.incarnation
        reached = position >= answer.end and self._note.whole and current
        now = now_us()
        self._caught_up += reached
        caught_up = now if reached else self._note.caught_up_us
        with self._installing:
            self._note = replace(
                self._note,
                identity=answer.identity,
                position=position,
                end=answer.end,
                heard_us=now,
                caught_up_us=caught_up,
            )
        self._note_trouble()

    def _note_trouble(self) -> None:
        with self._installing, contextlib.suppress(OSError):
            trouble = "; ".join(dict.fromkeys(self._troubles.values()))
            changed, self._note = trouble != self._note.trouble, replace(self._note, trouble=trouble)
            if changed or time.monotonic() - self._noted_s > _NOTE_EVERY_S:
                self._noted_s = time.monotonic()
                write_following(self._layout.following, self._note)

    @property
    def lag(self) -> dict[str, Any]:
        """How far the copy is behind: `lag_bytes` of the log, `lag_seconds`, and more. See `Catalog.stats`."""
        return self._note.lag(now_us())

    def check(self) -> None:
        """Raise the error that stopped the follower, if any: AccessDeniedError, InvalidRequestError …"""
        if self._failed is not None:
            raise self._failed

    def wait_until_whole(self, timeout_s: float | None = None) -> bool:
        """Wait until the directory is a complete catalog; return False after `timeout_s`. Raises as `check`."""
        found = self._whole.wait(timeout_s)
        self.check()
        return found and self._note.whole

    def wait_until_caught_up(self, patience_s: float = math.inf) -> None:
        """Wait until the copy has all that the server had at some request after this call, or the follower stops.

        Raises as `check`, and UnavailableError after `patience_s` of uninterrupted trouble.
        """
        before, ends = self._caught_up, time.monotonic() + patience_s
        while not self.wait(_PAUSE_S / 10):
            if self._caught_up > before:
                return
            trouble = next(iter(list(self._troubles.values())), None)
            if trouble is None:
                ends = time.monotonic() + patience_s
            elif time.monotonic() > ends:
                raise UnavailableError(
                    trouble, status=None, maybe_stored=False, hint="run it again: it resumes where it stopped"
                )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the follower is stopped or cannot continue; return False after `timeout_s`. Raises as `check`."""
        found = self._stop.wait(timeout_s)
        self.check()
        return found

    def stop(self) -> None:
        """Stop soon; `close` waits for it. From any thread, and from signal handlers."""
        self._stop.set()

    def _join(self) -> None:
        self._stop.set()
        self._wanted.set()
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Stop. The copy remains, and the next follower continues it."""
        self._opened.close()


def _given(state: CatalogState, number: int, end: int) -> int:
    """Return how many record indexes of a partition below `end` were assigned, without the skipped ones."""
    topic, partition = state.partitions.get(number, (None, None))
    if topic is None or partition is None:
        return 0
    return end if topic.info.deleted else sum(last - first for first, last in partition.outside_holes(0, end))


def _named(manifest: Manifest) -> list[_Wanted]:
    """Return the files that a manifest names, except segments that only the catalog's store has: readers fetch these
    there.
    """
    far = {segment.number for segment in StoredRows(manifest).all() if not segment.local}
    segments = (segment for segment in manifest.load().segments if segment.number not in far)
    found = [_Wanted("segments", segment.number, segment.checksum) for segment in segments]
    return found + [_Wanted("quarantine", batch.number, batch.checksum) for batch in manifest.quarantined()]
