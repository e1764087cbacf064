"""Writes new segment files from old ones: several merged into one, or one without its hidden events.

This only writes files; `removal` replaces the old ones. Each file records which segments it replaces, so that a rebuilt
manifest uses either it or them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import pyarrow as pa

import esformat
from aggregator.engine.seal.process import SealingProcess
from aggregator.errors import SealingFailedError
from aggregator.model import ProducerEntry, SegmentInfo, newest_notes
from aggregator.storage.files.layout import Layout, make_directory
from aggregator.storage.files.modes import settle_file
from aggregator.storage.segments.file import (
    Merged,
    ahead_of_rows,
    file_checksum,
    merge_segments,
    segment_properties,
    stored_facts,
    stored_producers,
    write_segment,
)
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.segments.signature import merged_signature
from aggregator.storage.state.state import PRODUCER_WINDOW, Partition, Topic
from aggregator.storage.state.tombstones import Hidden, without_hidden
from esformat.parts import SharedFile


class Stopped(esformat.ClosedError):
    """The work was aborted because the catalog is being closed."""


class FirstError:
    """Collects errors: run each piece of work in a `with` block of it; `raise_first` then raises the first error.
    `Stopped` is not suppressed.
    """

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, Stopped):
            return False
        self._error = self._error or error
        return True

    def raise_first(self) -> None:
        """Raise the first error, if there was one."""
        if self._error is not None:
            raise self._error.with_traceback(None)


class Rewriter:
    """Writes new segment files. Thread-safe."""

    def __init__(
        self,
        layout: Layout,
        pool: SegmentPool,
        take_number: Callable[[], int],
        process: SealingProcess | None = None,
    ) -> None:
        """process: merges local files, so that this process does not wait for the GIL; None: merge in this process."""
        self._layout, self._pool, self._take_number, self._process = layout, pool, take_number, process
        self._stopping = False

    def stop(self) -> None:
        """Abort what is being written, soon."""
        self._stopping = True
        if self._process is not None:
            self._process.abort()

    def _progress(self, _done: int, _total: int) -> None:
        self.go_on()

    def go_on(self) -> None:
        """Raise Stopped after `stop` was called."""
        if self._stopping:
            raise Stopped("the catalog is being closed", path=str(self._layout.root))

    def merge(self, topic: Topic, partition: Partition, group: Sequence[SegmentInfo]) -> SegmentInfo:
        """Merge segments of one schema, given in the order of their record indexes, into one.

        Uses memory for a few blocks, and a number for each event. Raises OSError, esformat.EsdbError, Stopped; then no
        file is left.
        """
        number = self._take_number()
        info = group[0]._replace(
            number=number,
            last_index=max(s.last_index for s in group),
            min_timestamp=min(s.min_timestamp for s in group),
            max_timestamp=max(s.max_timestamp for s in group),
            min_space=min(s.min_space for s in group),
            max_space=max(s.max_space for s in group),
            level=1 + max(s.level for s in group),
            created_us=max(s.created_us for s in group),
            signature=merged_signature([s.signature for s in group]),
        )
        with self._making(number, topic, group) as out:
            made = self._merged(group, out, self._properties(topic, partition, info, group))
        return info._replace(**made._asdict())

    def _merged(self, group: Sequence[SegmentInfo], out: Path, properties: Mapping[str, str]) -> Merged:
        self.go_on()
        sources = [self._pool.source(segment) for segment in group]
        if self._process is None or not all(isinstance(source, SharedFile) for source in sources):
            return merge_segments(sources, out, properties, self._progress)
        try:
            return self._process.merge(out, [source.name for source in sources], properties)
        except SealingFailedError:
            self.go_on()  # stopping may be the reason
            raise

    def without(
        self, topic: Topic, partition: Partition, segment: SegmentInfo, spaces: Sequence[bytes]
    ) -> SegmentInfo | None:
        """A segment without the events of some spaces, of which it has at least one; None if no event is left.

        Raises as `merge`, and esformat.CorruptSegmentError if the new file still contains any of them.
        """
        source = self._pool.get(segment)
        found = [space for space in map(source.find, spaces) if space is not None]
        if sum(space.num_events for space in found) == source.num_events:
            return None
        number = self._take_number()
        info = segment._replace(number=number)
        with self._making(number, topic, [segment]) as out:
            from esformat import tools  # imported here: slow to import

            report = tools.erase(
                self._pool.source(segment),
                out,
                spaces,
                properties=self._properties(topic, partition, info, [segment]),
                progress=self._progress,
            )
            if not report.ok:
                failed = next(check for check in report.checks if not check.ok)
                reason = f"erasing left residue: {failed.what}: {failed.found}"
                raise esformat.CorruptSegmentError(reason, path=str(out))
            return self._described(out, info)

    @staticmethod
    def _described(out: Path, info: SegmentInfo) -> SegmentInfo:
        """The info, updated from a file without erased spaces."""
        with esformat.open(out, cache_bytes=0) as left:
            low, high = left.min_timestamp, left.max_timestamp
            assert low is not None
            assert high is not None
            min_ahead, max_ahead = ahead_of_rows(left)
            return info._replace(
                rows=left.num_events, min_timestamp=low, max_timestamp=high, min_space=_end_space(left),
                max_space=_end_space(left, reverse=True), size_bytes=left.size_bytes, checksum=file_checksum(out),
                min_ahead=min_ahead, max_ahead=max_ahead,
            )  # fmt: skip

    def without_hidden(
        self, topic: Topic, partition: Partition, segment: SegmentInfo, hidden: Hidden
    ) -> SegmentInfo | None:
        """A segment without its hidden events; None if no event is left. Every event is re-encoded.

        Raises as `merge`.
        """
        source = self._pool.get(segment)

        def left() -> Iterator[pa.Table]:
            for batch in source.scan().batches():
                self.go_on()
                table = without_hidden(pa.Table.from_batches([batch]), hidden)
                if len(table):
                    yield table

        tables = left()
        first = next(tables, None)
        if first is None:
            return None
        number = self._take_number()
        with self._making(number, topic, [segment]) as out:
            made = write_segment(
                out,
                chain([first], tables),
                number=number,
                topic=topic.info,
                partition=(partition.number, partition.name),
                schema=topic.schemas[segment.schema],
                producers=self._producers([segment]),
                level=segment.level,
                now_us=segment.created_us,
                replaces=[segment.number],
                templates=True,
            )
        return made._replace(first_index=segment.first_index, last_index=segment.last_index)

    @contextmanager
    def _making(self, number: int, topic: Topic, group: Sequence[SegmentInfo]) -> Iterator[Path]:
        """The path at which to write a segment that replaces others. On any error the file is deleted."""
        out = self._layout.segment(number)
        make_directory(out.parent)
        old = {segment.number for segment in group}
        topic.rewriting.update(old)
        try:
            yield out
            settle_file(out)
        except BaseException:
            with suppress(OSError):
                out.unlink(missing_ok=True)
            raise
        finally:
            topic.rewriting.difference_update(old)

    def _properties(
        self, topic: Topic, partition: Partition, info: SegmentInfo, group: Sequence[SegmentInfo]
    ) -> dict[str, str]:
        return segment_properties(
            number=info.number,
            topic=topic.info,
            partition=(partition.number, partition.name),
            schema=topic.schemas[info.schema],
            producers=self._producers(group),
            level=info.level,
            created_us=info.created_us,
            replaces=[segment.number for segment in group],
        )

    def _producers(self, group: Iterable[SegmentInfo]) -> list[ProducerEntry]:
        """The producers' batches that the segments record: the newest of each producer."""
        windows: dict[str, dict[int, ProducerEntry]] = {}
        for segment in group:
            facts = stored_facts(self._pool.get(segment).properties)
            for entry in stored_producers(facts) if facts else ():
                windows.setdefault(entry.producer, {})[entry.sequence] = entry
        return newest_notes(window[n] for window in windows.values() for n in sorted(window)[-PRODUCER_WINDOW:])


def _end_space(segment: esformat.Segment, *, reverse: bool = False) -> bytes:
    """The first space of a segment, or with `reverse` the last."""
    (event,) = segment.scan(limit=1, reverse=reverse, columns=["space"])
    return event.space if isinstance(event.space, bytes) else event.space.encode()
