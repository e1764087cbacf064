"""`Collector`: stores lines of files in a catalog as they are written, exactly once across restarts and rotation."""

from __future__ import annotations

import glob
import logging
import os
import zlib
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pyarrow as pa

from aggregator.collect.events import Counts, EventBuilder
from aggregator.collect.files import (
    SAMPLE_BYTES,
    FileSlice,
    Found,
    Key,
    OpenFiles,
    Tracked,
    is_compressed,
    match_files,
    renamed_to,
    why_failed,
    why_unreadable,
)
from aggregator.collect.lines import measure
from aggregator.collect.owners import Owners, warn_of_other_collectors
from aggregator.collect.progress import Batch, Part, Progress, ProgressFile
from aggregator.collect.search import Search
from aggregator.collect.settings import Files, Settings
from aggregator.collect.sinks import Sink, StoppedError, TooLargeError
from aggregator.errors import AggregatorError, SequenceConflictError
from aggregator.storage.segments.records import FIELDS
from aggregator.streams.pipes.copy import with_fields
from esformat import InvalidEventError

LOOK_S = 2.0
"""Seconds between searches for new files."""
TWIN_S = 30.0
"""Seconds to hold back a file that begins like another in its folder: it may be a copy that rotation is making."""
GONE_S = 60.0
"""Seconds without new bytes after which a file that was deleted, or renamed beyond the globs, is closed."""
Place = tuple[str, Key]
_PLAIN = ("space", "timestamp", "data", FIELDS)
"""Columns that every batch has."""
_LOG = logging.getLogger(__name__)


class Collector:
    """Follows files: `run` until `stop` is called, for example from a signal handler. Not thread-safe."""

    def __init__(self, settings: Settings, sink: Sink, progress_file: Path, clock: Callable[[], int]) -> None:
        """progress_file: the progress file, which several collectors may share. Raises AggregatorError, OSError."""
        self._settings, self._sink, self._progress_file, self._clock = (
            settings,
            sink,
            ProgressFile(progress_file),
            clock,
        )
        self._progress: Progress = self._progress_file.load()
        self._open_files = OpenFiles()
        self._event_builders = {files.name: EventBuilder(files) for files in settings.files}
        self._groups = {files.name: files for files in settings.files}
        self._present: dict[Place, Tracked] = {}
        self._beyond: set[Place] = set()  # files that the globs no longer match
        self._ends: dict[Place, tuple[int, float]] = {}  # where a file ends, and since when
        self._sizes: dict[Key, int] = {}  # of a file when it was first found
        self._held: dict[Key, float] = {}
        self._broken: set[Key] = set()
        self._warned: set[tuple[str, str]] = set()  # pairs of groups that match the same file
        self._looked, self._first_look = float("-inf"), True
        self._most_bytes = settings.batch_bytes  # limit of a batch, lowered after refusals
        self._changed = False
        self.counts = Counts()
        """Counts of what happened to lines and files since the collector was created."""
        self._search = Search(self._open_files, self._progress_file, self.counts)
        self.stopped = False
        self._sleep: Callable[[float], None] = sleep

    def stop(self) -> None:
        """End `run` after the batch that is being stored."""
        self.stopped = True

    def run(self, sleep: Callable[[float], None], *, once: bool = False) -> None:
        """Collect until `stop`. once: until everything that exists now is stored, including last lines without a line
        end, and files that may be copies: it waits as long as they are held back. It does not wait for the end of a
        file that grows meanwhile.

        Raises AggregatorError, EsdbError, OSError; progress is recorded up to there. A StoppedError from a sink that
        waits also ends it.
        """
        self._sleep = sleep
        try:
            with self._turn():
                self._check_catalog()
                self._finish_pending()
            while not self.stopped:
                if self.step(complete=once):
                    continue
                if once and not self._holds_back():
                    break
                sleep(self._settings.interval_s)
        except StoppedError:  # the batch is recorded
            return
        finally:
            self._close()

    def _holds_back(self) -> bool:
        """Whether files are still held back that begin like another one, but may be independent."""
        return any(monotonic() - since < TWIN_S for since in self._held.values())

    def _close(self) -> None:
        with suppress(StoppedError):  # others have the file, which records the last batch anyway
            if self._changed:
                with self._turn():
                    self._save()
        self._open_files.close()
        self._progress_file.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the progress file exclusively until the block ends; reload it if another process changed it."""
        with self._progress_file.exclusive(self._sleep) as is_changed:
            if is_changed:
                self._progress, self._changed, self._looked = self._progress_file.load(), False, float("-inf")
                self._finish_pending()
            yield
            if self._changed and self._progress_file.is_contended():
                self._save()

    def step(self, *, complete: bool = False) -> bool:
        """Store up to one batch of new lines; return whether there were any. complete: take unfinished last lines."""
        with self._turn():
            return self._step(complete=complete)

    def _step(self, *, complete: bool) -> bool:
        now = monotonic()
        if now - self._looked >= LOOK_S or complete:
            self._find_files(now)
        parts: list[Part] = []
        tables: list[pa.Table] = []
        counts = Counts()
        now_us = self._clock()
        left = self._most_bytes
        for part, data in self._news(now, complete):
            table, own = self._events(part, data, now_us)
            parts.append(part)
            tables.append(table)
            counts.add(own)
            left -= part.length
            if left <= 0:
                break
        if not parts:
            if self._changed:
                self._save()
            return False
        self._progress.pending = Batch(self._progress.sequence, now_us, tuple(parts))
        self._save()
        if self._store(tables):
            self.counts.add(counts)
        return True

    # ------------------------------------------------------------ storing

    def _check_catalog(self) -> None:
        """Check that the catalog is the recorded one; start over for another, whose contents are unknown.

        Raises AggregatorError if it is an older copy of the recorded catalog.
        """
        found, progress = self._sink.catalog_end(), self._progress
        if found is None:
            return
        catalog, end = found
        if progress.catalog and catalog != progress.catalog:
            _LOG.warning("the state file belongs to another catalog: collecting everything into this one")
            self._progress = Progress.begin()
        elif progress.catalog and end < progress.end:
            raise AggregatorError(
                f"the catalog's records end at {end:,}, but records up to {progress.end:,} were collected: the "
                "catalog is an older copy",
                path=str(self._progress_file.path),
                hint="restore the newer copy, or remove this file to collect everything again",
            )
        if self._progress.catalog != catalog:
            self._progress.catalog, self._changed = catalog, True

    def _store(self, tables: list[pa.Table]) -> bool:
        """Store the recorded batch. Return False if it was refused as a whole: the next batch is half as large, and
        later ones grow again step by step.
        """
        batch = self._progress.pending
        assert batch is not None
        filled = [table for table in tables if len(table)]
        if filled:
            events = pa.concat_tables(filled, promote_options="default").combine_chunks()
            try:
                end = self._append(events, batch.sequence)
            except (InvalidEventError, TooLargeError):
                self._most_bytes = min(self._most_bytes, sum(part.length for part in batch.parts)) // 2
                if len(events) == 1 or not self._most_bytes:
                    raise
                self._progress.pending = None
                return False
            more = self._most_bytes + self._most_bytes // 4 + 1  # slowly, so that few are refused if the limit is low
            self._most_bytes = min(more, self._settings.batch_bytes)
            self._progress.end = self._progress.end if end is None else max(end, self._progress.end)
            if not self._progress.catalog:  # the topic did not exist before
                self._progress.catalog, _ = self._sink.catalog_end() or ("", 0)
        self._progress.take(batch)
        for part in batch.parts:
            self._present[part.tracked.group, part.tracked.key] = part.after
        self._changed = True  # saved with the next batch, or when idle
        return True

    def _append(self, events: pa.Table, sequence: int) -> int | None:
        """Store events. If the topic refuses a typed column, for example because of its type, store its values as text
        in the fields, so that no line is held up. A batch built again after a crash takes the same path.
        """
        typed = [name for name in events.column_names if name not in _PLAIN]
        refusal = None
        for names in dict.fromkeys([(), *((name,) for name in typed), tuple(typed)]):
            try:
                end = self._sink.append(with_fields(events, names), self._progress.producer, sequence)
            except InvalidEventError as error:
                refusal = refusal or error
                continue
            if refusal is not None:
                _LOG.warning("%s; its values are kept as fields", refusal.message)
            return end
        assert refusal is not None, "one way was tried"
        raise refusal

    def _save(self) -> None:
        if not self._first_look:
            self._progress.forget(self._present)
        self._progress_file.save(self._progress)
        self._changed = False

    def _finish_pending(self) -> None:
        """Store the recorded batch, which may or may not be stored already, built again from the same bytes."""
        batch = self._progress.pending
        if batch is None:
            return
        tables, counts, is_stored = [], Counts(), True
        for part in batch.parts:
            data = self._again(part)
            if data is not None and part.tracked.group in self._event_builders:
                table, own = self._events(part, data, batch.now_us)
                tables.append(table)
                counts.add(own)
            else:
                _LOG.warning(
                    "%s: bytes %d to %d cannot be read again; they may not have been stored",
                    part.tracked.path,
                    part.tracked.offset,
                    part.after.offset,
                )
        try:
            is_stored = self._store(tables)
        except SequenceConflictError:  # stored before with other contents: the settings changed, or a file is gone
            self._progress.take(batch)
        if is_stored:
            self.counts.add(counts)
        self._save()

    def _again(self, part: Part) -> bytes | None:
        """Read the bytes of a part again from the file, wherever it is now, or from a copy; None if not found."""
        tracked = part.tracked
        around = Path(tracked.path)
        paths = [tracked.path, renamed_to(tracked) or tracked.path]
        paths += sorted(str(one) for one in around.parent.glob(f"{glob.escape(around.name)}*"))
        paths += sorted(str(one) for one in around.parent.glob("*"))
        for path in dict.fromkeys(paths):
            found = self._open_files.find(path)
            if found is None or not tracked.head.begins(found.start):
                continue
            try:
                data = self._open_files.read(replace(tracked, path=path, key=found.key), part.length).data
            except (OSError, EOFError, zlib.error):
                continue
            if len(data) == part.length:
                return data
        return None

    def _events(self, part: Part, data: bytes, now_us: int) -> tuple[pa.Table, Counts]:
        tracked = part.tracked
        return self._event_builders[tracked.group].events(data, tracked.name, skipping=tracked.skipping, now_us=now_us)

    # ------------------------------------------------------------ looking

    def _find_files(self, now: float) -> None:
        """Search for files, and match them with the known ones."""
        progress = self._progress
        present: dict[Place, Tracked] = {}
        held: dict[Key, float] = {}
        self._beyond = set()
        owners = Owners(self._settings.files, progress.files, self._warned)
        fresh: list[Found] = []
        for files in self._settings.files:
            searched = {pattern for group, pattern in progress.globs if group == files.name}
            found = owners.own(files, self._search.find(files, searched, first=self._first_look))
            known = [tracked for tracked in progress.files.values() if _belongs(tracked, files, found)]
            for tracked in known:
                place = (files.name, tracked.key)
                if tracked.key in found or tracked.done or not (place in self._present or self._first_look):
                    continue
                self._beyond.add(place)
                moved = self._moved(tracked)
                if moved is not None:
                    found[tracked.key] = moved
                elif self._open_files.is_open(tracked.key):
                    present[place] = tracked
            waited = {key for key, since in self._held.items() if now - since >= TWIN_S}
            gone = [tracked for tracked in progress.gone if _belongs(tracked, files, found)]
            matched = match_files(
                found.values(), known, gone, self._clock(), files.name, waited, self._open_files.continues
            )
            for key in matched.held:
                held[key] = self._held.get(key, now)
            progress.gone += matched.gone
            for tracked in matched.files:
                new = (files.name, tracked.key) not in progress.files
                if new:
                    fresh.append(found[tracked.key])
                if new and found[tracked.key].new and files.begin == "end" and not tracked.compressed:
                    tracked = self._at_end(tracked)
                present[files.name, tracked.key] = tracked
        warn_of_other_collectors(fresh, self._progress_file, progress.catalog)
        for place, tracked in present.items():
            before = progress.files.get(place)
            self._changed |= before is None or (before.head, before.path) != (tracked.head, tracked.path)
            progress.files[place] = tracked
        keys = {tracked.key: tracked for tracked in present.values()}
        self._sizes = {key: self._sizes.get(key, tracked.stamp[0]) for key, tracked in keys.items()}
        for _, key in self._present.keys() - present.keys():
            self._open_files.forget(key)
        self._present, self._held, self._first_look, self._looked = present, held, False, now
        asked = {(files.name, os.path.abspath(pattern)) for files in self._settings.files for pattern in files.path}  # noqa: PTH100 - symbolic links stay
        self._changed |= not asked <= progress.globs
        progress.globs |= asked

    def _at_end(self, tracked: Tracked) -> Tracked:
        """Track a new file from its current end: only lines that begin later are collected."""
        end = max(0, tracked.stamp[0] - 1)
        begin = max(0, end - SAMPLE_BYTES)
        before = self._read(replace(tracked, offset=begin), end - begin)
        last = tracked.last if before is None else before.last(end - begin)
        return replace(tracked, offset=end, last=last, skipping=end > 0)

    def _moved(self, tracked: Tracked) -> Found | None:
        """Find a file that was renamed beyond the globs; None if it is gone."""
        path = renamed_to(tracked)
        found = None if path is None or is_compressed(path) != tracked.compressed else self._open_files.find(path)
        return found if found is not None and found.key == tracked.key else None

    def _news(self, now: float, complete: bool) -> Iterator[tuple[Part, bytes]]:
        """Yield bytes of complete records that are not stored yet, with their parts, file by file."""
        for place, tracked in list(self._present.items()):
            if tracked.done or (complete and not tracked.compressed and tracked.offset >= self._sizes[tracked.key]):
                continue
            cutting = self._groups[tracked.group].cutting
            length = max(self._settings.batch_bytes, 2 * cutting.max_bytes + 2)  # fits a record and its end
            found = self._read(tracked, length)
            if found is None:
                continue
            data = found.data
            if tracked.offset == 0 and self._is_no_text(tracked, data):
                continue
            waited_s = self._seconds_unchanged(place, tracked.offset + len(data), now)
            if not data:
                if tracked.compressed or (place in self._beyond and waited_s >= GONE_S):
                    self._finish(place, tracked)
                continue
            ended = len(data) < length
            last = ended and (complete or tracked.compressed or waited_s >= self._settings.flush_s)
            piece = measure(data, cutting, skipping=tracked.skipping, complete=last)
            if piece.length > self._most_bytes < self._settings.batch_bytes:
                for end in (self._most_bytes, data.find(b"\n", self._most_bytes) + 1):  # a line at least
                    shorter = measure(data[:end], cutting, skipping=tracked.skipping)
                    if shorter.length:
                        piece, last = shorter, False
                        break
            if piece.length:
                done = tracked.compressed and last
                tracked = replace(tracked, head=found.head)
                yield Part(tracked, piece.length, found.last(piece.length), piece.skipping, done), data[: piece.length]

    def _is_no_text(self, tracked: Tracked, data: bytes) -> bool:
        """Whether a file has no lines of text; warns once about it."""
        why = why_unreadable(tracked.path, data[:SAMPLE_BYTES])
        if why is not None and tracked.key not in self._broken:
            self._broken.add(tracked.key)
            self.counts.unread += 1
            _LOG.warning("%s is not collected: %s", tracked.path, why)
        return why is not None

    def _seconds_unchanged(self, place: Place, end: int, now: float) -> float:
        """Seconds since the end of a file last changed."""
        before, since = self._ends.get(place, (-1, now))
        self._ends[place] = (end, since if before == end else now)
        return now - self._ends[place][1]

    def _read(self, tracked: Tracked, length: int) -> FileSlice | None:
        try:
            return self._open_files.read(tracked, length)
        except FileNotFoundError:  # renamed, or rewritten: search again
            self._looked = float("-inf")
        except (OSError, EOFError, zlib.error) as error:
            if tracked.key not in self._broken:
                self._broken.add(tracked.key)
                self.counts.unread += 1
                _LOG.warning("%s cannot be read: %s", tracked.path, why_failed(error))
        return None

    def _finish(self, place: Place, tracked: Tracked) -> None:
        """Mark a file as read to its final end, and close it."""
        self._present[place] = self._progress.files[place] = replace(tracked, done=True)
        self._open_files.forget(tracked.key)
        self._ends.pop(place, None)
        self._changed = True


def _belongs(tracked: Tracked, files: Files, found: Container[Key]) -> bool:
    """Whether a recorded file belongs to this group and its globs, not to another collector that shares the file."""
    return tracked.group == files.name and (tracked.key in found or files.may_name(tracked.name))
