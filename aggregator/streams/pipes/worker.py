"""Running pipes: one thread copies for all of them. It is woken by writes, and takes no time while there are none.

A batch of copies is one append to the pipe's stream, with the progress as its note. Both are in one frame of the log,
so a crash keeps or loses both, and the pipe continues exactly after what it copied. A pipe appends only while memory
and log have space to spare, so it never takes what writers need; instead it falls behind.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from aggregator.base.allowance import Allowance
from aggregator.base.interrupts import uninterrupted
from aggregator.base.names import check_name
from aggregator.engine.writer import WriterEngine, now_us
from aggregator.errors import CorruptManifestError, InvalidRequestError, OverloadedError, QueryCancelledError
from aggregator.lql import TagSet, expression_to_text, matches, parse_source, parse_where, source_to_text
from aggregator.lql.parse.tree import CreatePipe
from aggregator.model import DEFAULT_PARTITION, PipeInfo
from aggregator.storage.manifest import PipeRows
from aggregator.storage.state.state import Topic
from aggregator.storage.state.streams import tags_of
from aggregator.streams.pipes.copy import copied_events, refused_columns, slices, with_fields
from aggregator.streams.pipes.pipe import Pipe
from aggregator.streams.pipes.progress import Progress, newest_batch, stored_progress
from aggregator.streams.pipes.round import (
    PIPE_TAG,
    Chosen,
    PipeRound,
    begin_round,
    first_indexes,
    fresh_streams,
    visible_ends,
)
from aggregator.streams.reading.position import Position
from aggregator.streams.reading.record_ranges import distance, first_after, gone_between, lineage_of
from esformat import ClosedError, EsdbError, InvalidEventError, UsageError

logger = logging.getLogger("aggregator")

SLICE_BYTES = 4 << 20
"""A batch of copies has at most about this many bytes, and at most 1/SMALL_SHARE of the memory and log limits."""
SMALL_SHARE = 16
ROOM = 0.75
"""Pipes append only while less than this fraction of the memory and of the log is in use."""
GAP_S = 0.02
"""Records that arrive within this many seconds are copied together."""
MAX_GAP_S = 0.5
"""The maximum of that time if checking takes long, such as with many streams and pipes."""
TURN_S = 1.0
"""A pipe that has copied for this many seconds yields to the next one."""
PATIENCE_S = 10.0
"""How long a round waits for space before it releases the files that it reads."""
KEEP_S = 10.0
"""Seconds between updates of the manifest with the progress of pipes that copied nothing."""
KEPT_STREAMS = 10_000
"""Streams whose reading pipes are cached."""


class _Interrupted(Exception):  # noqa: N818  not an error
    """The round stops at its current position: the catalog closes, the pipe is deleted, or there is no space."""


class Pipes:
    """The pipes of a catalog that is open for writing. Thread-safe."""

    def __init__(self, backend: WriterEngine, target: Callable[[], Topic]) -> None:
        """target: returns the topic that pipes write to, creating it if absent."""
        self._backend, self._target = backend, target
        self._rows = PipeRows(backend.manifest)
        self._lineage = lineage_of(backend)
        self._min_back_off_s, self._max_back_off_s = backend.tuning.pipe_back_off_s
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._allowance = Allowance()
        self._thread: threading.Thread | None = None
        self._pipes: dict[str, Pipe] = {}
        self._passed: dict[int, int] = {}  # the position of resting pipes, unless their own is further
        self._passed_us: int | None = None
        self._readers: dict[tuple[str, str], frozenset[str]] = {}  # identities of pipes by topic and stream
        self._kept_at = time.monotonic()
        self._unkept = False  # whether the manifest lacks the progress of some pipe
        for info in self._rows.all():
            try:
                self._add(info)
            except CorruptManifestError as error:  # the catalog still opens; the pipe can only be deleted
                self._pipes[info.name] = Pipe.lost(info, str(error), now_us())
        if self._pipes:
            self._start()

    def _add(self, info: PipeInfo) -> Pipe:
        progress = stored_progress(self._backend, info)
        pipe = self._pipes[info.name] = Pipe(info, progress, progress)
        self._readers = {}
        return pipe

    def _make(self, info: PipeInfo) -> Pipe:
        self._rows.add(info)
        self._backend.manifest.write_backup()
        return self._add(info)

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="aggregator-pipes", daemon=True)
            thread.start()
            self._thread = thread

    def all(self) -> list[Pipe]:
        """Every pipe, by name."""
        with self._lock:
            return [self._pipes[name] for name in sorted(self._pipes)]

    def create(self, statement: CreatePipe) -> Pipe:
        """Create a pipe durably; return the existing one if it is the same.

        Raises InvalidRequestError if another one has the name, or its condition is invalid; ManifestFailedError.
        """
        name = check_name(statement.name, "pipe")
        TagSet.of({PIPE_TAG: name})
        source = "" if statement.source is None else source_to_text(statement.source)
        condition = "" if statement.where is None else expression_to_text(statement.where)
        with self._lock:
            known = self._pipes.get(name)
            if known is not None:
                same = (known.info.source, known.info.condition, known.info.backfill)
                if same != (source, condition, statement.backfill):
                    raise InvalidRequestError(
                        f"pipe {name!r} already exists with another definition",
                        hint="to replace it, run DELETE PIPE first",
                    )
                self._start()
                return known
            now = Position(visible_ends(self._backend))
            chosen = Chosen(statement.source, statement.where)
            begin_round(self._backend, chosen, now, time.time_ns(), new=True).close()
            start = Position(first_indexes(self._backend)) if statement.backfill else now
            progress = Progress(start).encode(self._lineage)
            identity = f"pipe {secrets.token_hex(8)}"
            info = PipeInfo(name, identity, source, condition, statement.backfill, now_us(), 0, progress)
            pipe = uninterrupted(lambda: self._make(info))
            self._start()
        self._wake()
        return pipe

    def delete(self, name: str) -> Pipe:
        """Delete a pipe durably; its copies stay. Nothing is copied after this returns.

        Raises InvalidRequestError if no pipe has that name; ManifestFailedError.
        """
        with self._lock:
            pipe = self._pipes.get(name)
            if pipe is None:
                raise no_pipe(name)
            with pipe.lock:
                self._rows.remove(pipe.info.identity)
                pipe.deleted = True
            self._backend.manifest.write_backup()
            del self._pipes[name]
        return pipe

    def lag(self, pipe: Pipe) -> int:
        """At most this many records are not examined yet."""
        return distance(self._backend.state, self._standing(pipe).begin, visible_ends(self._backend))

    def level_us(self, pipe: Pipe) -> int | None:
        """When the pipe had last examined everything; None: not since the catalog was opened."""
        passed_us = self._passed_us  # read before `resting`: the pipe may be woken in between
        return passed_us if pipe.resting and passed_us is not None else pipe.level_us

    def _standing(self, pipe: Pipe) -> Position:
        """The position of a pipe; if it rests, it has passed everything that resting pipes have passed."""
        standing, passed = pipe.progress.standing, self._passed  # read before `resting`, as above
        if not pipe.resting:
            return standing
        return Position({**standing.begin, **{n: max(end, standing.begin.get(n, 0)) for n, end in passed.items()}})

    def stop(self) -> None:
        """Stop copying; the next opening continues from here."""
        self._stopping.set()
        self._allowance.cancel("the catalog is closed")
        self._wake()
        if self._thread is not None:
            self._thread.join()
        try:
            self._keep()
        except (EsdbError, OSError) as error:  # then some records are examined again
            logger.warning("cannot save the progress of pipes: %s", error)

    def _wake(self) -> None:
        state = self._backend.state
        with state.view_lock:
            state.arrivals.notify()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        with self._allowance:
            self._copy_all()

    def _copy_all(self) -> None:
        arrivals = self._backend.state.arrivals
        while not self._stopping.is_set() and not arrivals.ended:
            seen = arrivals.count
            began = time.monotonic()
            try:
                pauses = [self._wake_pipes()]
            except (EsdbError, OSError) as error:  # no snapshot or manifest for now
                logger.warning("pipes could not search for records and will retry: %s", error)
                pauses = [self._max_back_off_s]
            pauses += [self._turn(pipe) for pipe in self._awake()]
            pause = min((pause for pause in pauses if pause is not None), default=None)
            took = time.monotonic() - began
            if pause != 0:
                arrivals.wait(seen, pause)
                self._stopping.wait(min(max(GAP_S, took), MAX_GAP_S))  # check at most half of the time

    def _awake(self) -> list[Pipe]:
        with self._lock:
            return [pipe for pipe in self._pipes.values() if not pipe.resting]

    def _wake_pipes(self) -> float | None:
        """Wake the pipes whose streams got records; the others pass these records together. Stores the progress of all
        pipes if that is due; returns the seconds until the next check.
        """
        ends = visible_ends(self._backend)
        if ends != self._passed:
            self._call(fresh_streams(self._backend, self._passed, ends))
            self._passed, self._passed_us, self._unkept = ends, now_us(), True
        if not self._unkept:
            return None
        due = self._kept_at + KEEP_S - time.monotonic()
        if due > 0:
            return due
        self._keep()
        return None

    def _call(self, fresh: set[tuple[str, str]] | None) -> None:
        """Wake the pipes that read one of these streams; None: all pipes."""
        with self._lock:
            mine = None if fresh is None else frozenset().union(*map(self._readers_of, fresh))
            for pipe in self._pipes.values():
                if pipe.resting and (mine is None or pipe.info.identity in mine):
                    pipe.progress = replace(pipe.progress, standing=self._standing(pipe))
                    pipe.resting = False

    def _readers_of(self, stream: tuple[str, str]) -> frozenset[str]:
        known = self._readers.get(stream)
        if known is None:
            tags = tags_of(stream[1])
            known = frozenset()
            if tags is not None and not tags.get(PIPE_TAG):
                known = frozenset(pipe.info.identity for pipe in self._pipes.values() if self._reads(pipe, tags))
            if len(self._readers) >= KEPT_STREAMS:
                self._readers = {}
            self._readers[stream] = known
        return known

    def _reads(self, pipe: Pipe, tags: TagSet) -> bool:
        try:
            return matches(self._chosen(pipe).source, tags)
        except EsdbError:  # reported in its own turn
            return True

    def _turn(self, pipe: Pipe) -> float | None:
        """Let a pipe copy for a while. Returns the seconds until it wants to continue; None: when records arrive."""
        began = time.monotonic()
        if began < pipe.not_before:
            return min(pipe.not_before - began, self._max_back_off_s)
        try:
            level = False
            while not level and time.monotonic() < began + TURN_S:
                level = self._one_round(pipe)
            pipe.problem, pipe.back_off_s = None, 0.0
            if not level:
                return 0.0
            pipe.state, pipe.level_us = "level", now_us()
            pipe.resting = self._unkept = True
            return None
        except (_Interrupted, QueryCancelledError):
            return max(0.0, pipe.not_before - time.monotonic())
        except Exception as error:  # noqa: BLE001  reported as the pipe's problem; other pipes continue
            return self._failed(pipe, error)

    def _failed(self, pipe: Pipe, error: BaseException) -> float:
        message = f"{type(error).__name__}: {error}"
        if message != pipe.problem:
            logger.warning("pipe %r failed and will be retried: %s", pipe.info.name, error)
        if pipe.problem is None:
            pipe.failing_us = now_us()
        pipe.problem, pipe.state = message, "failing"
        newest = newest_batch(self._backend, pipe.info)
        if newest is not None and newest.sequence > pipe.progress.sequence:  # it was stored anyway
            pipe.progress = Progress.decode(newest.note, newest.sequence, self._backend)
        pipe.back_off_s = min(max(2 * pipe.back_off_s, self._min_back_off_s), self._max_back_off_s)
        pipe.not_before = time.monotonic() + pipe.back_off_s
        return pipe.back_off_s

    def _keep(self) -> None:
        """Store the progress of the pipes in the manifest."""
        changed = []
        for pipe in self.all():
            pipe.progress = replace(pipe.progress, standing=self._standing(pipe))
            if pipe.progress != pipe.kept and not pipe.deleted:
                changed.append((pipe, pipe.progress))
        if changed:
            self._backend.log.sync()  # the manifest must not have progress beyond copies that a power cut loses
            self._rows.keep_progress(
                [(pipe.info.identity, made.sequence, made.encode(self._lineage)) for pipe, made in changed]
            )
        for pipe, made in changed:
            pipe.kept = made
        self._kept_at, self._unkept = time.monotonic(), False

    # ------------------------------------------------------------ copying

    def _one_round(self, pipe: Pipe) -> bool:
        """Copy what arrived since the last round; True if that was everything.

        Raises _Interrupted and any error of reading and appending; the pipe is then positioned after its last batch.
        """
        around = begin_round(self._backend, self._chosen(pipe), pipe.progress.standing, time.time_ns())
        try:
            if not around.empty:
                lost = max(0, around.gone - pipe.progress.gaps)
                pipe.progress = replace(
                    pipe.progress, standing=around.standing, gone=pipe.progress.gone + lost, gaps=around.gone
                )
                for batch in around.batches():
                    for part in self._parts(batch):
                        self._copy(pipe, around, part)
            if pipe.progress.standing.end:  # even if the round was stopped after its last record
                pipe.progress = pipe.progress.between_rounds()
            return around.last
        except (_Interrupted, QueryCancelledError):
            self._tighten(pipe, around)
            raise
        finally:
            around.close()

    @staticmethod
    def _chosen(pipe: Pipe) -> Chosen:
        if pipe.chosen is None:
            source, condition = pipe.info.source, pipe.info.condition
            pipe.chosen = Chosen(
                parse_source(source) if source else None, parse_where(condition) if condition else None
            )
        return pipe.chosen

    def _parts(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        limits = self._backend.limits
        most = min(SLICE_BYTES, limits.memory_bytes // SMALL_SHARE, limits.log_bytes // SMALL_SHARE)
        return list(slices(batch, self._backend.tuning.pipe_slice_rows, most))

    def _copy(self, pipe: Pipe, around: PipeRound, part: pa.RecordBatch) -> None:
        events = copied_events(part, pipe.space)
        made = replace(
            pipe.progress,
            standing=around.behind(part),
            sequence=pipe.progress.sequence + 1,
            copied=pipe.progress.copied + len(part),
        )
        note = made.encode(self._lineage)
        patience = time.monotonic() + PATIENCE_S
        while (pause := self._append(pipe, events, made, note)) is not None:
            pipe.state = "waiting"
            if time.monotonic() + pause > patience:
                pipe.not_before = time.monotonic() + pause
                raise _Interrupted
            self._stopping.wait(pause)

    def _append(self, pipe: Pipe, events: pa.Table, made: Progress, note: str) -> float | None:
        """Append a batch; return the seconds to wait if there is no space. Raises _Interrupted if it must stop."""
        with pipe.lock:
            if pipe.deleted or self._stopping.is_set():
                raise _Interrupted
            if not self._has_room():
                return GAP_S
            try:
                self._store(pipe.info.identity, events, made.sequence, note)
            except OverloadedError as error:
                return error.retry_after_s
            except ClosedError:
                raise _Interrupted from None
            pipe.progress, pipe.state = made, "behind"
            return None

    def _store(self, producer: str, events: pa.Table, sequence: int, note: str) -> None:
        """Append copies. Values of columns that the topic cannot accept become text, so that they hold up no record."""
        target, append = self._target(), self._backend.ingest.append
        try:
            append(target, events, DEFAULT_PARTITION, producer, sequence, note)
        except (InvalidEventError, UsageError):
            refused = refused_columns(events, target)
            if not refused:
                raise
            append(target, with_fields(events, refused), DEFAULT_PARTITION, producer, sequence, note)

    def _has_room(self) -> bool:
        budget, log, limits = self._backend.budget, self._backend.log, self._backend.limits
        return budget.held_bytes < ROOM * budget.limit_bytes and log.size_bytes < ROOM * limits.log_bytes

    def _tighten(self, pipe: Pipe, around: PipeRound) -> None:
        """Record exactly which records of a round remain, so that those removed meanwhile are counted correctly."""
        standing = pipe.progress.standing
        if standing.after is None:
            return
        begin = {number: max(end, standing.begin.get(number, 0)) for number, end in standing.end.items()}
        gaps = 0
        for part in around.material.parts:
            for number, _ in part.snapshot.partitions:
                begin[number] = first_after(part.snapshot, number, standing, standing.after, self._backend)
            gaps += gone_between(part.snapshot, begin, standing.end, self._backend.pool)
        pipe.progress = replace(pipe.progress, standing=replace(standing, begin=begin), gaps=gaps)


def no_pipe(name: str) -> InvalidRequestError:
    """The error for a pipe that does not exist."""
    return InvalidRequestError(f"no pipe {name!r}", hint="SHOW PIPES lists them")
