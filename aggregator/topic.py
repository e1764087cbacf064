"""`Topic`: the public interface of a topic."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from aggregator.base.names import check_name
from aggregator.base.reports import CompactionReport, Erasure, RetentionReport, Traces
from aggregator.engine.backend import Backend, writer_of
from aggregator.engine.bulk_load import Added, Batch, BulkLoad
from aggregator.engine.follower import ReaderEngine
from aggregator.engine.ingest.append import batch_key
from aggregator.engine.inspection import would_remove
from aggregator.engine.stats import segment_facts, topic_stats
from aggregator.engine.upkeep.residue import look_for
from aggregator.engine.writer import now_us
from aggregator.errors import InvalidRequestError, PartitionNotFoundError
from aggregator.model import DEFAULT_PARTITION, Receipt
from aggregator.policy import Retention, Roll
from aggregator.read.key_counts import counted_spaces, counted_values
from aggregator.read.query import Query, Scans, check_index, make_query
from aggregator.read.scan import Scan
from aggregator.storage.files.pins import Pin
from aggregator.storage.state.state import Snapshot
from aggregator.storage.state.state import Topic as TopicState
from aggregator.storage.state.tombstones import erased_spaces
from esformat import Source, UsageError
from esformat.parts import Unpicklable, html_facts, html_time

MOST_NAMED = 10
"""Maximum number of partitions that the hint about an unknown partition names."""


class Topic(Unpicklable, Scans[Scan]):
    """A topic of an open catalog. Thread-safe. Created by `Catalog.topic` and `Catalog.create_topic`."""

    def __init__(self, backend: Backend, topic: TopicState) -> None:
        self._backend = backend
        self._topic = topic

    def __repr__(self) -> str:
        return f"<aggregator.Topic {self.name!r}, {len(self.partitions)} partitions>"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the topic's size, times, partitions and indexes."""
        facts = self.stats()
        shown: dict[str, object] = {name: facts[name] for name in ("rows", "bytes", "segments")}
        shown |= {"first": html_time(facts["min_timestamp"]), "last": html_time(facts["max_timestamp"])}
        shown |= {"partitions": ", ".join(facts["partitions"]), "indexes": ", ".join(self.indexes)}
        return html_facts(f"topic {self.name}", shown)

    # ------------------------------------------------------------ facts

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._topic.info.name

    @property
    def indexes(self) -> tuple[str, ...]:
        """Names of the columns with a secondary index."""
        return self._topic.info.indexes

    @property
    def keys(self) -> str:
        """The type of spaces and groupings: "text" or "binary"."""
        return self._topic.info.keys

    @property
    def roll(self) -> Roll:
        """When unsealed events are sealed into a segment."""
        return self._topic.info.roll

    @property
    def retention(self) -> Retention:
        """Which segments the topic keeps."""
        return self._topic.info.retention

    @property
    def partitions(self) -> tuple[str, ...]:
        """Names of the partitions, in order of creation."""
        self._backend.refresh()
        return tuple(self._topic.partitions)

    def spaces(self) -> dict[str | bytes, int]:
        """The spaces in ascending order, each with its number of events, sealed or not. Uses metadata if possible."""
        snapshot, pin = self._snap(None)
        try:
            return counted_spaces(snapshot, self._backend.pool, self.scan)
        finally:
            pin.release()

    def index_values(self, name: str) -> dict[Any, int]:
        """The values of an indexed column in ascending order, each with its number of events.

        Raises UnknownIndexError.
        """
        check_index(name, self.indexes)
        snapshot, pin = self._snap(None)
        try:
            return counted_values(snapshot, self._backend.pool, name, self.scan)
        finally:
            pin.release()

    # ------------------------------------------------------------ appending

    def append(
        self,
        events: Any,
        partition: str = DEFAULT_PARTITION,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Receipt:
        """Store a batch: all of it or nothing. On return it is visible to reads and as durable as the catalog promises.

        events: a pyarrow table or batch, anything with the Arrow C stream (pandas, Polars, DuckDB …), or a list of
            esformat.Event or mappings of column names to values. Their values are converted to the types of the topic's
            columns if that loses nothing but digits of a float. Columns: space, timestamp, optional grouping, data and
            any others; a new column is added to the topic's schema.
        partition: its name; created if it does not exist.
        producer, sequence: identify the batch, so that a retry is recognised. Each partition remembers the last 64
            batches of each producer.

        Raises esformat.InvalidEventError (an event that cannot be stored), SequenceConflictError (the sequence was
        used with other events), OverloadedError (try again later), LogFailedError, ReadOnlyError, esformat.ClosedError.
        """
        return writer_of(self._backend).ingest.append(self._topic, events, partition, producer, sequence)

    async def append_async(
        self,
        events: Any,
        partition: str = DEFAULT_PARTITION,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Receipt:
        """Like `append`, for asyncio.

        A batch or list of up to 64 events without a producer, in columns that the topic knows, needs no thread: all
        waiting batches are stored together. For other batches a thread calls `append`.

        Cancelling does not undo the append: the events may be stored anyway.
        """
        from aggregator.engine.ingest import event_loop  # imports asyncio, which few programs need

        named = producer is not None or sequence is not None
        append = partial(self.append, events, partition, producer=producer, sequence=sequence)
        ingest = writer_of(self._backend).ingest
        return await event_loop.append_async(
            ingest, append, None if named else ingest.small(self._topic, events, partition)
        )

    def add_segments(
        self,
        paths: Sequence[str | bytes | os.PathLike[str] | os.PathLike[bytes]],
        partition: str = DEFAULT_PARTITION,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Added:
        """Add the events of finished segments, all of them or none, without the log: for bulk loads.

        paths: `.esdb` files with the same columns. They are not changed; copies get record indexes of the partition.
        partition, producer, sequence: as for `append`. The partition's unsealed events are sealed first, and appends
            wait while the segments are added.
        Raises esformat.UsageError, InvalidEventError, CorruptSegmentError (the files), and everything `append` raises.
        """
        adder = BulkLoad(writer_of(self._backend), self._topic)
        return adder.add_files([os.fsdecode(path) for path in paths], partition, Batch(batch_key(producer, sequence)))

    # ------------------------------------------------------------ maintenance

    def set_policy(
        self, *, roll: Roll | Mapping[str, Any] | None = None, retention: Retention | Mapping[str, Any] | None = None
    ) -> None:
        """Change the topic's roll or retention policy; None keeps the current one. Takes effect within a second.

        Limits that a mapping does not name stay; `{"age": None}` removes one, `Retention()` all.
        Raises InvalidRequestError, ReadOnlyError, ManifestFailedError.
        """
        writing = writer_of(self._backend)
        with writing.state.edit_lock:
            self._topic.check_there()
            info = self._topic.info
            changed = replace(
                info,
                roll=info.roll if roll is None else Roll.of(roll, info.roll),
                retention=info.retention if retention is None else Retention.of(retention, info.retention),
            )
            writing.manifest.set_policy(info.number, changed.roll, changed.retention)
            with writing.state.view_lock:
                self._topic.info = changed
        writing.manifest.write_backup()
        writing.scheduler.wake()

    def retain(
        self, *, dry_run: bool = False, retention: Retention | Mapping[str, Any] | None = None
    ) -> RetentionReport:
        """Remove the segments that the topic's retention no longer keeps, now. This also happens automatically.

        dry_run: only report them. retention: with dry_run, report by this policy instead. Open scans finish; files are
        deleted after the last of them.
        """
        if retention is not None and not dry_run:
            raise InvalidRequestError(
                "another retention requires a dry run", hint="change the retention of the topic with set_policy"
            )
        instead = None if retention is None else Retention.of(retention)
        if dry_run and isinstance(self._backend, ReaderEngine):
            return would_remove(self._backend, (self.name,), now_us(), instead)
        return writer_of(self._backend).upkeep.retain([self._topic], dry_run=dry_run, instead=instead)

    def compact(self) -> CompactionReport:
        """Merge the topic's segments into larger ones and delete erased events from the disk, now.

        Merging also happens automatically, one level at a time. Record indexes do not change.
        """
        return writer_of(self._backend).upkeep.compact([self._topic])

    def erase(self, space: str | bytes) -> Erasure:
        """Erase every event of a space that is visible now: hidden when this returns, deleted from disk soon after.

        The deletion happens automatically; `compact` does it immediately. `erasures` lists spaces that are not deleted
        yet, and `traces` searches for what remains. Events that are appended later are kept. The report's `events` is 0
        if the space had none, for example because it is misspelled.
        Raises UsageError, ReadOnlyError, ManifestFailedError; StoreUnreachableError if the events are hidden but the
        catalog's store does not know yet, so that another writer would bring them back: erase again.
        """
        writing = writer_of(self._backend)
        erasure = writing.upkeep.erasures.hide(self._topic, self._space(space), self.scan(space=space).count())
        writing.scheduler.wake()
        return erasure

    def erasures(self) -> tuple[str | bytes, ...]:
        """Erased spaces whose events are hidden but still on disk."""
        self._backend.refresh()
        spaces = sorted(erased_spaces(self._topic.tombstones))
        return tuple(space if self._topic.binary_keys else space.decode() for space in spaces)

    def traces(self, space: str | bytes) -> Traces:
        """Search for remains of a space in segments, memory, log, quarantine and manifest. Reads the whole log.

        Raises UsageError, OSError, esformat.CorruptSegmentError, CorruptLogError.
        """
        self._backend.refresh()
        key = self._space(space)
        backend = self._backend
        visible = self.scan(space=space).count()
        snapshot, pin = self._snap(None)
        try:
            return look_for(key, self._topic, snapshot, backend.pool, backend.layout, backend.manifest, visible)
        finally:
            pin.release()

    def ends(self) -> dict[str, int]:
        """The record index after the last event of each partition: the lowest that its next event can get."""
        self._backend.refresh()
        with self._backend.state.view_lock:
            return {name: partition.visible_end for name, partition in self._topic.partitions.items()}

    def stats(self) -> dict[str, Any]:
        """Rows, bytes, segments, unsealed events, times (µs) and record indexes of the topic and of each partition.

        A plain mapping of JSON values.
        """
        self._backend.refresh()
        return topic_stats(self._topic, self._backend.state, self._backend.manifest.quarantined())

    def segments(self) -> list[dict[str, Any]]:
        """The sealed segments in order of time, as plain mappings of JSON values.

        Each has `segment` (its number), `partition`, `level`, `rows`, `bytes`, first and last times (µs) and record
        indexes, both included, `created_us`, and `state`: "sealed", "merging" while it is being rewritten, or "erasing"
        if it may contain events that are hidden but not deleted yet.
        """
        self._backend.refresh()
        return segment_facts(self._topic, self._backend.state)

    def segment_file(self, number: int) -> Path | Source | None:
        """The file of a sealed segment, or a source that reads its object if only the store has it.

        None if the topic has no segment of that number. Merging may remove the file soon.
        """
        self._backend.refresh()
        if number not in self._topic.segments:
            return None
        path = self._backend.layout.segment(number)
        if not path.exists():
            with self._backend.state.view_lock:
                view = self._topic.segments.view()
            for info in view:
                if info.number == number:
                    return self._backend.objects.source(info) or path
        return path

    # ------------------------------------------------------------ reading

    def _snap(self, partition: str | None) -> tuple[Snapshot, Pin]:
        found, pin = self._backend.snapshot(self._topic, partition)
        if found.topic.deleted:
            pin.release()
            self._topic.check_there()
        return found, pin

    def _query(self, **options: Any) -> Query:
        return make_query(binary_keys=self._topic.binary_keys, indexes=self.indexes, **options)

    def _space(self, space: str | bytes) -> bytes:
        """The key of a space. Raises UsageError, also for None, which in a query would mean every space."""
        key = self._query(space=space).space
        if key is None:
            raise UsageError("space must be text or bytes, not None")
        return key

    def _scan(self, conditions: Mapping[str, Any], options: Mapping[str, Any]) -> Scan:
        options = dict(options)
        partition = options.pop("partition", None)
        if partition is not None:
            self._check_partition(partition)
        return Scan(self._snap, self._backend.pool, self._query(conditions=conditions, **options), partition)

    def _check_partition(self, name: str) -> None:
        """Raise PartitionNotFoundError for an unknown partition; in an empty topic the default one counts as known."""
        check_name(name, "partition")
        self._backend.refresh()
        known = self._topic.partitions
        if name in known or (not known and name == DEFAULT_PARTITION):
            return
        some = ", ".join(map(repr, islice(tuple(known), MOST_NAMED))) + (", …" if len(known) > MOST_NAMED else "")
        hint = f"its partitions are {some}" if known else "it has no events"
        raise PartitionNotFoundError(f"no partition {name!r} in topic {self.name!r}", hint=hint)

    def read(
        self,
        partition: str = DEFAULT_PARTITION,
        from_index: int | None = None,
        limit: int | None = None,
        *,
        reverse: bool = False,
        columns: Any = None,
        start: Any = None,
        end: Any = None,
    ) -> Scan:
        """Scan the events of a partition in the order in which they were appended, with their record indexes.

        from_index: the record index to start at. None: the first, or with `reverse` (newest first) the last.
        start, end: only events with timestamps in [start, end), int µs, aware datetimes or ISO 8601; segments without
        such events are skipped. Raises PartitionNotFoundError immediately.
        """
        bounds = {"first_index": from_index} if not reverse else {}
        if reverse and from_index is not None:
            bounds = {"end_index": from_index + 1}
        wanted = {"limit": limit, "reverse": reverse, "columns": columns, "start": start, "end": end}
        return self._scan({}, {"partition": partition, "by_index": True, **wanted, **bounds})
