"""`Topic`: the verbs of a topic, as users have it."""

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
from aggregator.errors import InvalidRequestError
from aggregator.model import DEFAULT_PARTITION, Receipt
from aggregator.policy import Retention, Roll
from aggregator.read.key_counts import counted_spaces, counted_values
from aggregator.read.query import Question, Scans, check_index, make_question
from aggregator.read.scan import Scan
from aggregator.storage.files.pins import Pin
from aggregator.storage.state.state import Snapshot
from aggregator.storage.state.state import Topic as TopicState
from aggregator.storage.state.tombstones import erased_spaces
from esformat import Source, UsageError
from esformat.parts import Unpicklable, html_facts, html_time

MOST_NAMED = 10
"""Of partitions, in the hint about one that is not there."""


class Topic(Unpicklable, Scans[Scan]):
    """A topic of an open catalog. Safe to share between threads. Made by `Catalog.topic` and `create_topic`."""

    def __init__(self, backend: Backend, topic: TopicState) -> None:
        self._backend = backend
        self._topic = topic

    def __repr__(self) -> str:
        return f"<aggregator.Topic {self.name!r}, {len(self.partitions)} partitions>"

    def _repr_html_(self) -> str:
        """What the topic holds, as notebooks show it."""
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
        """What spaces and groupings are: "text" or "binary"."""
        return self._topic.info.keys

    @property
    def roll(self) -> Roll:
        """When unsealed events become a segment."""
        return self._topic.info.roll

    @property
    def retention(self) -> Retention:
        """What is kept."""
        return self._topic.info.retention

    @property
    def partitions(self) -> tuple[str, ...]:
        """Names of the partitions, in the order in which they came to be."""
        self._backend.refresh()
        return tuple(self._topic.partitions)

    def spaces(self) -> dict[str | bytes, int]:
        """The spaces, ascending, and how many events each has, sealed or not; from metadata where that tells."""
        snapshot, pin = self._snap(None)
        try:
            return counted_spaces(snapshot, self._backend.pool, self.scan)
        finally:
            pin.release()

    def index_values(self, name: str) -> dict[Any, int]:
        """The values of an indexed column, ascending, and how many events have each. Raises UnknownIndexError."""
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
        """Store a batch: all of it, durable as the catalog was opened for and visible to reads, or nothing.

        events: a pyarrow table or batch, anything with the Arrow C stream (pandas, Polars, DuckDB …), or a list of
            esformat.Event or mappings of column names to values, which take on the types of the topic's columns where
            nothing but digits of a float is lost by that. Columns: space, timestamp, optional grouping, data and any
            others; a new column is added to the topic's schema.
        partition: its name; a new one is made.
        producer, sequence: name the batch, so that one that is appended again is recognised. The last 64 batches of
            a producer are remembered in each partition.

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
        """The same for asyncio. A batch or list of up to 64 events that no producer names, of columns that the topic
        knows, takes no thread: all that wait are stored together. For others a thread calls `append`.

        Cancelling it does not take the events back: they may be stored all the same.
        """
        from aggregator.engine.ingest import soon  # and asyncio, which not everybody needs

        named = producer is not None or sequence is not None
        append = partial(self.append, events, partition, producer=producer, sequence=sequence)
        ingest = writer_of(self._backend).ingest
        return await soon.appended(ingest, append, None if named else ingest.small(self._topic, events, partition))

    def add_segments(
        self,
        paths: Sequence[str | bytes | os.PathLike[str] | os.PathLike[bytes]],
        partition: str = DEFAULT_PARTITION,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Added:
        """Add the events of finished segments, all of them or none, without the log: for bulk loads.

        paths: `.esdb` files with one set of columns; they stay as they are, copies get record indexes of the partition.
        partition, producer, sequence: as for `append`. Its unsealed events are sealed first, and appends wait while the
            segments are taken in.
        Raises esformat.UsageError, InvalidEventError, CorruptSegmentError (the files), and as `append`.
        """
        adder = BulkLoad(writer_of(self._backend), self._topic)
        return adder.add_files([os.fsdecode(path) for path in paths], partition, Batch(batch_key(producer, sequence)))

    # ------------------------------------------------------------ keeping house

    def set_policy(
        self, *, roll: Roll | Mapping[str, Any] | None = None, retention: Retention | Mapping[str, Any] | None = None
    ) -> None:
        """Give the topic another roll or retention policy; None leaves the one that it has. At work within a second.

        Raises InvalidRequestError, ReadOnlyError, ManifestFailedError.
        """
        writing = writer_of(self._backend)
        with writing.state.edit_lock:
            self._topic.check_there()
            info = self._topic.info
            changed = replace(
                info,
                roll=info.roll if roll is None else Roll.of(roll),
                retention=info.retention if retention is None else Retention.of(retention),
            )
            writing.manifest.set_policy(info.number, changed.roll, changed.retention)
            with writing.state.view_lock:
                self._topic.info = changed
        writing.manifest.keep_facts()
        writing.scheduler.wake()

    def retain(
        self, *, dry_run: bool = False, retention: Retention | Mapping[str, Any] | None = None
    ) -> RetentionReport:
        """Remove the segments that the topic's retention no longer keeps, now; it happens by itself as well.

        dry_run: only tell which. retention: of a dry run: which ones would go by this policy. Scans that are open
        finish: files go when they have.
        """
        if retention is not None and not dry_run:
            raise InvalidRequestError("another retention goes with a dry run", hint="set_policy gives it to the topic")
        instead = None if retention is None else Retention.of(retention)
        if dry_run and isinstance(self._backend, ReaderEngine):
            return would_remove(self._backend, (self.name,), now_us(), instead)
        return writer_of(self._backend).upkeep.retain([self._topic], dry_run=dry_run, instead=instead)

    def compact(self) -> CompactionReport:
        """Merge the topic's segments into larger ones, and take what was erased off the disk, now.

        Merging happens by itself as well, a level at a time. Record indexes stay as they are.
        """
        return writer_of(self._backend).upkeep.compact([self._topic])

    def erase(self, space: str | bytes) -> Erasure:
        """Erase every event of a space that is visible now: hidden when this returns, and gone from disk soon.

        Nothing has to be called for that; `compact` does it at once. `erasures` lists what is not gone yet, and
        `traces` looks for what is left. Events that are appended later are kept. `events` of the report is 0 where none
        was there, as of a misspelled space.
        Raises UsageError, ReadOnlyError, ManifestFailedError; StoreUnreachableError where the events are hidden and the
        catalog's store does not know yet, so that another writer would have them back: erase again.
        """
        writing = writer_of(self._backend)
        erasure = writing.upkeep.erasures.hide(self._topic, self._space(space), self.scan(space=space).count())
        writing.scheduler.wake()
        return erasure

    def erasures(self) -> tuple[str | bytes, ...]:
        """Spaces that were erased and of which something is still on disk, hidden."""
        self._backend.refresh()
        spaces = sorted(erased_spaces(self._topic.tombstones))
        return tuple(space if self._topic.binary_keys else space.decode() for space in spaces)

    def traces(self, space: str | bytes) -> Traces:
        """Look for what is left of a space: in segments, memory, log, quarantine, manifest. Reads the whole log.

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
        """For each partition the record index after its last event: what the next one gets, at the earliest."""
        self._backend.refresh()
        with self._backend.state.view_lock:
            return {name: partition.visible_end for name, partition in self._topic.partitions.items()}

    def stats(self) -> dict[str, Any]:
        """Rows, bytes, segments, unsealed events, first and last times (µs) and record indexes; of each partition, too.

        A plain mapping of what JSON takes.
        """
        self._backend.refresh()
        return topic_stats(self._topic, self._backend.state, self._backend.manifest.quarantined())

    def segments(self) -> list[dict[str, Any]]:
        """The sealed segments by time: `segment` (its number), `partition`, `level`, `rows`, `bytes`, first and last
        times (µs) and record indexes, both included, `created_us`, and `state`: "sealed", "merging" while another is
        made of it, or "erasing" where it may hold events that are hidden and not gone yet. Plain mappings of what JSON
        takes.
        """
        self._backend.refresh()
        return segment_facts(self._topic, self._backend.state)

    def segment_file(self, number: int) -> Path | Source | None:
        """The file of a sealed segment, or what reads its object where it lies in the store alone; None where the topic
        has none of that number. Merging may remove it soon.
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

    def _question(self, **asked: Any) -> Question:
        return make_question(binary_keys=self._topic.binary_keys, indexes=self.indexes, **asked)

    def _space(self, space: str | bytes) -> bytes:
        """The key of a space. Raises UsageError, of None too, which is every space where events are asked for."""
        key = self._question(space=space).space
        if key is None:
            raise UsageError("space must be text or bytes, not None")
        return key

    def _scan(self, conditions: Mapping[str, Any], options: Mapping[str, Any]) -> Scan:
        asked = dict(options)
        partition = asked.pop("partition", None)
        if partition is not None:
            check_name(partition, "partition")
        return Scan(self._snap, self._backend.pool, self._question(conditions=conditions, **asked), partition)

    def _check_partition(self, name: str) -> None:
        """Raise InvalidRequestError for a partition that is not there; the default one comes with the first events."""
        check_name(name, "partition")
        self._backend.refresh()
        known = self._topic.partitions
        if name in known or (not known and name == DEFAULT_PARTITION):
            return
        some = ", ".join(map(repr, islice(known, MOST_NAMED))) + (", …" if len(known) > MOST_NAMED else "")
        hint = f"its partitions are {some}" if known else "it has no events"
        raise InvalidRequestError(f"no partition {name!r} in topic {self.name!r}", hint=hint)

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
        """Events of a partition in the order in which they were appended, with their record indexes.

        from_index: the first record index to give; with `reverse` the last, newest first. None: from the end there is.
        start, end: only those with timestamps in [start, end), int µs, aware datetimes or ISO 8601; segments without
        any are passed over. Raises InvalidRequestError for a partition that is not there, at once.
        """
        self._check_partition(partition)
        bounds = {"first_index": from_index} if not reverse else {}
        if reverse and from_index is not None:
            bounds = {"end_index": from_index + 1}
        wanted = {"limit": limit, "reverse": reverse, "columns": columns, "start": start, "end": end}
        return self._scan({}, {"partition": partition, "by_index": True, **wanted, **bounds})
