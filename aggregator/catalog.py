"""`Catalog`: all topics under one root."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from aggregator import lql
from aggregator.base.interrupts import uninterrupted
from aggregator.base.names import check_name
from aggregator.base.reports import ClockReport, CompactionReport, RetentionReport
from aggregator.base.result import Closing
from aggregator.engine.backend import Backend, reader_of, writer_of
from aggregator.engine.exit_hooks import close_at_exit, closed
from aggregator.engine.follower import ReaderEngine
from aggregator.engine.inspection import damaged_segments, would_remove
from aggregator.engine.quarantine import QuarantineView
from aggregator.engine.stats import disk_stats, memory_stats, scan_stats, topic_stats
from aggregator.engine.store_view import StoreView, store_stats
from aggregator.engine.upkeep.ages import stored_report
from aggregator.engine.writer import WriterEngine, now_us
from aggregator.errors import InvalidRequestError, TopicExistsError, TopicNotFoundError
from aggregator.model import DEFAULT_PARTITION, STREAMS_TOPIC, Problem, Receipt, TopicInfo
from aggregator.policy import Retention, Roll
from aggregator.read.prefetch import open_newest
from aggregator.storage.files.following import read_following
from aggregator.storage.files.usage import measure
from aggregator.storage.manifest import PipeRows, StoredRows
from aggregator.storage.state.arrivals import Arrivals
from aggregator.storage.state.schema import topic_schema
from aggregator.storage.state.state import Topic as TopicState
from aggregator.streams import statements, writing
from aggregator.streams.pipes import tables, worker
from aggregator.topic import Topic
from esformat import ClosedError
from esformat.parts import html_facts, to_bound

if TYPE_CHECKING:
    from aggregator.engine.federation import FederatedEngine
    from aggregator.streams.selection import Selection
    from aggregator.streams.tail import Tail
    from esformat.sql import Database, Parameters, Rows, Session


def _open_copy(address: str) -> Catalog:
    """Open the catalog that was pickled, for reading only."""
    return Catalog(reader_of(address))


def federated_engine(catalogs: Sequence[Catalog]) -> FederatedEngine:
    """The engine that reads several catalogs, each open for reading, as one."""
    from aggregator.engine.federation import FederatedEngine  # imported here: few programs need it

    return FederatedEngine([each._backend for each in catalogs if isinstance(each._backend, ReaderEngine)])


def _check_not_streams(name: str, what: str) -> None:
    if name == STREAMS_TOPIC:
        raise InvalidRequestError(
            f"the topic {STREAMS_TOPIC!r} cannot be {what}: streams and pipes write to it under this name",
            hint="erase spaces in it, or lower its retention",
        )


class Catalog(Closing):
    """An open catalog. Thread-safe. Close it, or use it as a context manager."""

    def __init__(self, backend: Backend) -> None:
        """Created by `aggregator.open`."""
        self._backend = backend
        self._closed = False
        self._lock = Lock()
        self._working_pipes: worker.Pipes | None = None
        try:
            if isinstance(backend, WriterEngine) and PipeRows(backend.manifest).all():
                _ = self._pipes  # resumes them
        except BaseException:
            backend.close()
            raise
        if isinstance(backend, WriterEngine):
            close_at_exit(self, self._rest)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by address: the copy in another process (Dask, Ray, multiprocessing) is open for reading only."""
        self._check_open()
        return _open_copy, (self._backend.address,)

    def __repr__(self) -> str:
        return f"<aggregator.Catalog {str(self.path)!r}, {len(self._backend.state.topics)} topics>"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the topics and the number of events in each."""
        return html_facts(repr(self), {name: f"{self.topic(name).stats()['rows']:,} events" for name in self.topics()})

    @cached_property
    def _writes(self) -> writing.StreamWrites:
        return writing.StreamWrites(self._backend, self.topic, self.create_topic)

    @property
    def _pipes(self) -> worker.Pipes | None:
        """The running pipes; None if the catalog is open for reading only."""
        with self._lock:
            if self._working_pipes is None and isinstance(self._backend, WriterEngine):
                self._working_pipes = worker.Pipes(self._backend, self._writes.pipe_target)
            return self._working_pipes

    def _stop_pipes(self) -> None:
        with self._lock:
            pipes = self._working_pipes
        if pipes is not None:
            pipes.stop()

    @property
    def path(self) -> Path:
        """The catalog's directory."""
        return self._backend.layout.root

    @property
    def identity(self) -> str:
        """The catalog's unique identity, which its copies share: 16 hexadecimal digits."""
        self._check_open()
        return self._backend.state.lineage.identity.hex()

    @property
    def _incarnation(self) -> str:
        """The name of the latest opening for writing, which wrote the newest records; in hexadecimal digits."""
        self._backend.refresh()
        return b"".join(self._backend.state.lineage.names[-1:]).hex()

    @property
    def read_only(self) -> bool:
        """Whether the catalog was opened for reading only."""
        return not isinstance(self._backend, WriterEngine)

    def announce(self, address: str | None) -> None:
        """Publish the URL at which this process serves the catalog, for processes that find it locked; None: no URL.

        Does nothing for a catalog that was opened for reading only, which holds no lock.
        """
        if isinstance(self._backend, WriterEngine):
            self._backend.lock.announce(address)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the catalog is closed", path=str(self.path), hint="open it again")
        self._backend.owner.check()

    # ------------------------------------------------------------ topics

    def topics(self) -> tuple[str, ...]:
        """Names of the topics, in order of creation."""
        return tuple(self._topics())

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises TopicNotFoundError, which is a KeyError; never creates the topic."""
        found = self._topics().get(name)
        if found is None:
            hint = "see `aggregator topics`; create one with create_topic, `aggregator topics --create` or `import`"
            raise TopicNotFoundError(f"no topic {name!r}", path=str(self.path), hint=hint)
        return Topic(self._backend, found)

    def _topics(self) -> dict[str, TopicState]:
        self._check_open()
        self._backend.refresh()
        return self._backend.state.topics

    def create_topic(
        self,
        name: str,
        schema: pa.Schema | None = None,
        *,
        indexes: Sequence[str] = (),
        keys: str = "text",
        roll: Roll | Mapping[str, Any] | None = None,
        retention: Retention | Mapping[str, Any] | None = None,
        exist_ok: bool = False,
    ) -> Topic:
        """Create a topic. Its name may be any text.

        schema: payload columns; None takes them from the first batch.
        indexes: columns with a secondary index: string, integer or boolean. Columns that the schema lacks are strings.
        keys: "text" (space and grouping are `str`) or "binary".
        roll, retention: see `Roll` and `Retention`; e.g. roll={"age": "60s"}, retention={"bytes": "10 GiB"}.
        exist_ok: return the existing topic of that name if it has these indexes and keys, without changing it.

        Raises TopicExistsError, InvalidRequestError, esformat.InvalidEventError (a schema that cannot be stored).
        """
        self._check_open()
        writing = writer_of(self._backend)
        check_name(name, "topic")
        if keys not in ("text", "binary"):
            raise InvalidRequestError(f'keys must be "text" or "binary", not {keys!r}')
        if isinstance(indexes, str):
            raise InvalidRequestError(f"indexes must be a list of column names, not the text {indexes!r}")
        if name == STREAMS_TOPIC and (keys == "binary" or "data" in indexes or "fields" in indexes):
            raise InvalidRequestError(  # else log records sent there would be refused, unnoticed by the sender
                f"the topic {name!r} must have text keys and no index on data or fields", hint="give another name"
            )
        binary = keys == "binary"
        wanted = topic_schema(schema if schema is not None else pa.schema([]), indexes, binary_keys=binary)
        info = TopicInfo(0, name, keys, tuple(indexes), Roll.of(roll), Retention.of(retention), now_us())
        try:
            return Topic(self._backend, writing.upkeep.topics.make(info, None if schema is None else wanted))
        except TopicExistsError:
            if not exist_ok:
                raise
            return self._existing(info)

    def _existing(self, wanted: TopicInfo) -> Topic:
        topic = self.topic(wanted.name)
        if (topic.keys, topic.indexes) != (wanted.keys, wanted.indexes):
            raise TopicExistsError(
                f"the topic {wanted.name!r} exists, with keys of {topic.keys} and the indexes "
                f"{', '.join(topic.indexes) or '(none)'}",
                path=str(self.path),
                hint="give another name, or the same indexes and keys",
            )
        return topic

    def seal(self, topic: str | None = None, *, least_bytes: int = 0) -> int:
        """Seal the unsealed events of one topic, or of all, into segments now. Return the number of segments.

        Optional: sealing also happens automatically. least_bytes: skip partitions with fewer unsealed bytes.
        Raises OSError, AggregatorError.
        """
        writing = writer_of(self._backend)
        chosen = [self.topic(topic).name] if topic is not None else self.topics()
        sealed = 0
        for name in chosen:
            known = writing.state.topics.get(name)
            if known is None:  # it was deleted meanwhile
                continue
            for partition in list(known.partitions.values()):
                if partition.unsealed_bytes >= least_bytes:
                    sealed += len(writing.sealer.seal(known, partition))
        writing.scheduler.run_chores()
        return sealed

    # ------------------------------------------------------------ streams

    def write(
        self,
        tags: Mapping[str, str],
        records: Any,
        topic: str = STREAMS_TOPIC,
        *,
        partition: str = DEFAULT_PARTITION,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Receipt:
        """Store records of the stream with these tags: all of them, as durably as `Topic.append`, or none.

        A stream is a space named by the canonical text of its tags. Its first write creates it, and its topic.
        records: mappings, or Arrow data in any form, with `ts` (int µs or aware datetimes; now if absent), `msg` (text
            or bytes) and fields under any other name. Columns of a table keep their type. So do fields of mappings if
            the topic's column of that name can store the value exactly; others become text in the column `fields`.
        partition, producer, sequence: as for `Topic.append`. Without `ts` a record gets another time on each attempt:
            set it if a producer may retry.
        Raises InvalidRequestError, esformat.InvalidEventError, OverloadedError and everything `Topic.append` raises.
        """
        return self.write_streams([(tags, records)], topic, partition=partition, producer=producer, sequence=sequence)

    def write_streams(
        self,
        streams: Iterable[tuple[Mapping[str, str], Any]],
        topic: str = STREAMS_TOPIC,
        *,
        partition: str = DEFAULT_PARTITION,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Receipt:
        """Store records of several streams as one batch. streams: pairs of tags and records. Otherwise like `write`."""
        self._check_open()
        writer_of(self._backend)
        return self._writes.write(streams, topic, partition, producer, sequence)

    def streams(self, expression: str = "") -> list[dict[str, str]]:
        """The tags of each stream that an LQL expression over tags, or a tag list in braces, selects; "" selects all.

        In the order of their canonical texts.
        Raises InvalidRequestError if the expression cannot be parsed.
        """
        self._check_open()
        self._backend.refresh()
        source = lql.parse_source(expression) if expression.strip() else None
        found = {stream.tags for stream in self._backend.streams.select(source)}
        return [tags.as_dict() for tags in sorted(found, key=str)]

    def query(self, text: str, *, start: Any = None, end: Any = None) -> Selection | pa.Table:
        """Run an LQL statement: a SELECT returns a lazy `Selection`, COUNT and every other statement a table.

        start, end: restrict a SELECT to times in [start, end), in addition to its own conditions: int µs, aware
        datetimes or ISO 8601.
        Raises InvalidRequestError, which shows the position, for an invalid statement; ReadOnlyError.
        """
        self._check_open()
        within = None
        if start is not None or end is not None:
            bounds = (None if at is None else to_bound(at, name) for at, name in ((start, "start"), (end, "end")))
            within = lql.TimeSpan(*bounds)
        return statements.run(self._backend, text, self._pipes, within)

    @cached_property
    def _session(self) -> Session:
        from aggregator import sql  # needs the extra `sql`

        return sql.session(self._backend)

    def sql(self, statement: str, parameters: Parameters = None) -> Rows:
        """Run a SQL query in DuckDB's dialect and return its rows. Topics are tables, including unsealed events.

        The table `streams` has the records of streams, with their tags as a map: `WHERE tags['app'] = 'web'`. A
        statement sees each topic as it is when the statement begins. It may name Parquet, CSV and JSON files in quotes.
        parameters: values for `?`, `$1` or `$name`. Needs the extra `sql`.
        Raises esformat.UsageError immediately for a statement that is invalid or does more than query.
        """
        self._check_open()
        return self._session.ask(statement, parameters)

    def sql_session(self, allowed: Callable[[str], bool], database: Database) -> Session:
        """A session for untrusted SQL: it reads only topics that `allowed` accepts. The database should be locked.

        Each statement is subject to the `Allowance` of its thread.
        """
        from aggregator import sql  # needs the extra `sql`

        self._check_open()
        return sql.session(self._backend, allowed=allowed, database=database)

    @property
    def arrivals(self) -> Arrivals:
        """Notifies waiting callers of new events. A read-only catalog learns of them only when it is refreshed."""
        return self._backend.state.arrivals

    def tail(self, text: str, timeout_s: float | None = None) -> Tail:
        """Follow a SELECT: records that arrive from now on, or after its POSITION, also in streams created later.

        timeout_s: end after this many seconds without a record; None: continue until the catalog is closed.
        Raises InvalidRequestError.
        """
        self._check_open()
        return statements.follow(self._backend, text, timeout_s)

    # ------------------------------------------------------------ maintenance

    def alter_topic(
        self,
        name: str,
        *,
        roll: Roll | Mapping[str, Any] | None = None,
        retention: Retention | Mapping[str, Any] | None = None,
    ) -> Topic:
        """Change a topic's policies, like `Topic.set_policy`. Raises TopicNotFoundError, InvalidRequestError."""
        topic = self.topic(name)
        topic.set_policy(roll=roll, retention=retention)
        return topic

    def rename_topic(self, name: str, new_name: str) -> Topic:
        """Rename a topic. Its events and positions stay valid. Its streams are found under the new name.

        Raises TopicNotFoundError, TopicExistsError, InvalidRequestError (the default topic of streams), ReadOnlyError,
        ManifestFailedError.
        """
        writing = writer_of(self._backend)
        topic = self.topic(name)
        check_name(new_name, "topic")
        _check_not_streams(name, "renamed")
        if new_name == STREAMS_TOPIC:
            raise TopicExistsError(
                f"the name {new_name!r} is reserved for the streams' topic", hint="choose another one"
            )

        if new_name != name:
            writing.upkeep.topics.rename(topic._topic, new_name)
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its events. This cannot be undone.

        The topic is gone when this returns, also for readers that look from now on. Open scans finish; files are
        deleted after the last of them. A topic of that name can be created again immediately and starts empty.
        Raises TopicNotFoundError, InvalidRequestError (the default topic of streams), ReadOnlyError, LogFailedError,
        ManifestFailedError; then nothing changed. Raises StoreUnreachableError if the topic is gone but the catalog's
        store does not know yet, so that another writer would bring it back: delete it again, until TopicNotFoundError
        says that it is gone from the store, too.
        """
        writing = writer_of(self._backend)
        try:
            topic = self.topic(name)
        except TopicNotFoundError:
            writing.upkeep.topics.check_stored()
            raise
        _check_not_streams(name, "deleted")
        writing.upkeep.topics.delete(topic._topic)

    def retain(self, topic: str | None = None, *, dry_run: bool = False) -> RetentionReport:
        """Remove the segments that the topics' retention and the catalog's limits no longer keep, oldest first, now.

        This also happens automatically. topic: only this topic, by its own policy. dry_run: only report them; a catalog
        that is open for reading considers only the topics' policies.
        """
        if topic is not None:
            return self.topic(topic).retain(dry_run=dry_run)
        self._check_open()
        if dry_run and isinstance(self._backend, ReaderEngine):
            return would_remove(self._backend, self.topics(), now_us())
        return writer_of(self._backend).upkeep.retain(dry_run=dry_run)

    def compact(self, topic: str | None = None) -> CompactionReport:
        """Merge segments into larger ones and delete erased events from the disk, now, for one topic or for all."""
        if topic is not None:
            return self.topic(topic).compact()
        self._check_open()
        return writer_of(self._backend).upkeep.compact()

    def clock(self) -> ClockReport:
        """Whether the machine's clock is trusted, by which the ages of events are counted.

        A clock that jumps further ahead than time can have passed is doubted: `problems` reports it, and retention by
        age waits. The clock is trusted again after it has run evenly for a day with events that agree with it, or for a
        week without events that agree or disagree; or after `believe_clock`.
        """
        self._check_open()
        if isinstance(self._backend, WriterEngine):
            return self._backend.upkeep.ages.report()
        return stored_report(self._backend.manifest, now_us())

    def believe_clock(self) -> ClockReport:
        """Trust the machine's clock from now on, because somebody has checked it.

        Raises ReadOnlyError, ManifestFailedError.
        """
        self._check_open()
        writing = writer_of(self._backend)
        report = writing.upkeep.ages.believe()
        writing.scheduler.wake()
        return report

    def stats(self) -> dict[str, Any]:
        """Statistics of the catalog: bytes on disk and in memory, topics. A plain mapping of JSON values.

        Times are µs since the epoch, sizes bytes. `background`: the last failure of background work, or None.
        """
        known, quarantined = list(self._topics().items()), self._backend.manifest.quarantined()
        topics = {name: topic_stats(topic, self._backend.state, quarantined) for name, topic in known}
        waiting = sum(size for _, size, _ in self._backend.manifest.retired_files())
        _, evicted = StoredRows(self._backend.manifest).evicted()
        segments = sum(facts["sealed_bytes"] for facts in topics.values()) - evicted
        following = read_following(self._backend.layout.following)
        facts: dict[str, Any] = {
            "path": str(self.path),
            "rows": sum(mine["rows"] for mine in topics.values()),
            "segments": sum(mine["segments"] for mine in topics.values()),
            "disk": disk_stats(measure(self._backend.layout, segments=segments, waiting=waiting)),
            "problems": len(self.problems()),
            "quarantined": len(self.quarantine.entries()),
            "clock": asdict(self.clock()),
            "topics": topics,
            "pipes": tables.pipe_facts(self._backend, self._pipes),
            "scans": scan_stats(self._backend.pool.windows),
            "follows": None if following is None else following.lag(now_us()),
        }
        stored = store_stats(self._backend)
        if stored is not None:
            facts["store"] = stored
        if isinstance(self._backend, WriterEngine):
            budget = self._backend.budget
            facts["memory"] = memory_stats(budget.held_bytes, budget.limit_bytes)
            facts["log"] = {"bytes": self._backend.log.size_bytes, "limit": self._backend.limits.log_bytes}
            facts["since_open"] = {
                "appended_rows": self._backend.ingest.appended_rows,
                "appended_bytes": self._backend.ingest.appended_bytes,
                "seals": self._backend.sealer.seals,
                "removed_segments": self._backend.upkeep.removal.retired,
            }
            for name, mine in topics.items():
                state = self._backend.state.topics.get(name)
                waiting = 0 if state is None else self._backend.upkeep.waiting_to_merge(state)
                mine["segments_to_merge"] = waiting
            facts["background"] = self._backend.scheduler.problem
            facts["swept"] = list(self._backend.startup.swept)
        return facts

    def check_room(self, size_bytes: int, *, memory_bytes: int = 0) -> None:
        """Raise OverloadedError if a batch of about `size_bytes` would be refused now, or `memory_bytes` are not free.

        For callers that must receive much data before they have a batch. Reserves nothing. Raises ReadOnlyError.
        """
        self._check_open()
        writer_of(self._backend).quota.check(size_bytes, max(size_bytes, memory_bytes))

    def open_ahead(self) -> Iterator[None]:
        """Open the newest segments of all topics before queries need them, one per step, as many as may stay open.

        Segments that are read from a store are skipped.
        """
        self._check_open()
        topics = list(self._backend.state.topics.values())
        return open_newest(self._backend.pool, chain.from_iterable(topic.segments.view() for topic in topics))

    @property
    def trouble(self) -> str | None:
        """Why appends or background work fail at the moment; None if nothing fails."""
        self._check_open()
        if not isinstance(self._backend, WriterEngine):
            return None
        failure = self._backend.log.failure or self._backend.reserve.trouble
        if failure is not None:
            return str(failure)
        shipper = self._backend.shipper
        return self._backend.scheduler.problem or (None if shipper is None else shipper.trouble)

    def verify(self) -> list[Problem]:
        """Read every segment file from end to end. Return all known problems, including new ones.

        A damaged file is moved to `quarantine/`; a copy of it can be repaired (`esdb repair`) and put back. Scans that
        need it raise until then, or until `accept_losses`. Problems of segments that are whole again are forgotten;
        other problems stay listed until `forget_problems`. In a catalog that is open for reading, problems are only
        reported and nothing is changed. Raises OSError.
        """
        self._check_open()
        if isinstance(self._backend, ReaderEngine):
            self._backend.refresh()
            return [*self.problems(), *damaged_segments(self._backend, now_us())]
        writing = writer_of(self._backend)
        damaged: list[int] = []
        for topic in list(writing.state.topics.values()):
            damaged += writing.startup.check_contents(topic)
        for number in damaged:
            writing.pool.forget(number)
        writing.startup.forget_solved(damaged)
        return self.problems()

    def forget_problems(self) -> list[Problem]:
        """Forget the known problems, because somebody has dealt with them, and return them.

        Whatever is still wrong is found again by the next opening or `verify`. Raises ReadOnlyError.
        """
        self._check_open()
        writing = writer_of(self._backend)
        known = self.problems()
        writing.manifest.forget_problems(known)
        return known

    def accept_losses(self) -> list[Problem]:
        """Continue without segments whose files are missing or in quarantine: scans skip them. Return what was lost.

        Segments evicted to the store count as lost if the store has no such object. The problems stay listed. A file
        that is put back later is ignored. Raises StoreError.
        """
        self._check_open()
        writing = writer_of(self._backend)
        missing = {info.number for info in writing.upkeep.tier.missing()}
        return [
            loss
            for topic in list(writing.state.topics.values())
            for loss in writing.startup.accept_losses(topic, missing)
        ]

    # ------------------------------------------------------------ state and end

    def problems(self) -> list[Problem]:
        """Problems found in the catalog, oldest first, including batches in quarantine and failing pipes."""
        found = [*self.quarantine.problems(), *self._backend.problems()]
        if PipeRows(self._backend.manifest).all():  # without pipes, the statement parser is not loaded
            found += tables.pipe_problems(self._backend, self._pipes)
        return sorted(found, key=lambda problem: problem.found_us)

    @property
    def quarantine(self) -> QuarantineView:
        """The quarantine: batches that could not be sealed, and damaged files."""
        self._check_open()
        return QuarantineView(self._backend)

    @property
    def store(self) -> StoreView:
        """The object store that has the catalog's segments. Its methods raise InvalidRequestError if there is none."""
        self._check_open()
        return StoreView(self._backend)

    def close(self) -> None:
        """Close the catalog. Acknowledged events are kept; unsealed ones are in the log. Closing twice is allowed.

        In a forked child of the process that opened the catalog, this does not affect the parent's catalog.
        """
        if not self._closed:
            self._closed = True
            closed(self)
            session = self.__dict__.pop("_session", None)
            if session is not None:
                session.close()
            if self._backend.owner.is_here:
                uninterrupted(self._end)

    def _rest(self) -> None:
        """Finish running seals, upkeep and pipes, and start no more. Called when the program exits."""
        if self._backend.owner.is_here and isinstance(self._backend, WriterEngine):
            self._stop_pipes()
            self._backend.stop_background()

    def _stop_waiting_for_store(self) -> None:
        """Stop waiting for a store that does not work: the program is about to end. May be called from any thread."""
        if isinstance(self._backend, WriterEngine) and self._backend.shipper is not None:
            self._backend.shipper.stop_waiting_for_store()

    def _end(self) -> None:
        try:
            self._stop_pipes()
        finally:
            self._backend.close()
