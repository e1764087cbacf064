"""`open` and `Catalog`: all topics under one root."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from aggregator.budget import Budget
from aggregator.errors import CatalogNotFoundError, InvalidRequestError, TopicNotFoundError
from aggregator.files import Layout, make_directory
from aggregator.ingest import Ingest
from aggregator.lock import WriterLock
from aggregator.log import Log
from aggregator.maintenance import Maintenance
from aggregator.manifest import Manifest
from aggregator.model import Problem, TopicInfo
from aggregator.names import check_name
from aggregator.pins import Pins
from aggregator.policy import Durability, Limits, Retention, Roll
from aggregator.replay import Replay
from aggregator.schema_change import topic_schema
from aggregator.sealing import Sealer
from aggregator.segment_pool import SegmentPool
from aggregator.state import CatalogState
from aggregator.state import Topic as TopicState
from aggregator.topic import Topic
from esformat import ClosedError

LOST_INDEXES = 1 << 32
"""Record indexes passed over after a crash where the kernel may have lost acknowledged events: none is given twice."""
_RUN = "run"


def now_us() -> int:
    """The time: µs since the epoch."""
    return time.time_ns() // 1000


class Writing:
    """What a catalog has that is open for writing: the lock, the log, the threads."""

    def __init__(self, layout: Layout, durability: Durability, limits: Limits, clock: Callable[[], int]) -> None:
        """Open, and bring back what a crash left. Raises CatalogLockedError, CorruptManifestError, OSError …"""
        self.layout, self.limits, self.durability, self._clock = layout, limits, durability, clock
        self.lock = WriterLock(layout.writer_lock)
        try:
            self.manifest = Manifest(layout.manifest)
            try:
                self._open()
            except BaseException:
                self.manifest.close()
                raise
        except BaseException:
            self.lock.release()
            raise

    def _open(self) -> None:
        layout, manifest, clock = self.layout, self.manifest, self._clock
        for directory in (layout.log, layout.segments):
            make_directory(directory)
        contents = manifest.load()
        self.state = CatalogState(contents)
        for entry in manifest.producers():
            self.state.partitions[entry.partition][1].keep_producer(entry)
        replay = Replay(self.state, manifest, clock)
        recovered = replay.run(layout.log)
        for damage in recovered.damages:
            manifest.add_problem(
                Problem(f"log/{damage.path.name}", f"{damage.message} (at byte {damage.offset})", "reported", clock())
            )
        self._pass_over_lost_indexes()
        self.pins = Pins(layout.reader_locks, read_only=False)
        self.log = Log(layout.log, self.durability, files=recovered.files, position=recovered.position)
        self.budget = Budget(self.limits.memory_bytes)
        self.budget.take(replay.size_bytes)
        taken = [segment.number for segment in contents.segments] + [number for number, _, _ in manifest.retired()]
        self.sealer = Sealer(
            self.state, manifest, self.log, layout, self.budget, next_segment=max(taken, default=0) + 1, clock=clock
        )
        self.maintenance = Maintenance(
            self.state, self.sealer, self.log, limits=self.limits, durability=self.durability, clock=clock
        )
        self.ingest = Ingest(
            self.state, manifest, self.log, self.budget, log_bytes=self.limits.log_bytes, clock=clock,
            wake=self.maintenance.wake,
        )  # fmt: skip
        manifest.put(_RUN, json.dumps({"durability": self.durability.mode, "closed": False}))

    def _pass_over_lost_indexes(self) -> None:
        """Where the last run ended without closing and did not sync, what it acknowledged may be gone."""
        run = json.loads(self.manifest.get(_RUN) or "{}")
        if not run.get("closed", True) and run.get("durability") != "fsync":
            for _, partition in self.state.partitions.values():
                if partition.next_index:
                    partition.next_index += LOST_INDEXES

    def close(self) -> None:
        """Stop the threads, sync the log, let go of everything."""
        try:
            self.maintenance.stop()
            self.log.close()
            if self.log.failure is None:
                self.manifest.put(_RUN, json.dumps({"durability": self.durability.mode, "closed": True}))
        finally:
            try:
                self.pins.close()
                self.manifest.close()
            finally:
                self.lock.release()


def open_catalog(
    path: str | os.PathLike[str],
    *,
    durability: str | Durability = "fsync",
    limits: Limits | Mapping[str, Any] | None = None,
) -> Catalog:
    """Open the catalog in the directory `path`, for writing; it is made where it is absent.

    durability: what an acknowledged append survives: "fsync" a power cut, "interval" (or "interval:200ms") and "none"
        a crash of the process; see `Durability`.
    limits: budgets of memory and disk, e.g. {"memory_bytes": "256 MiB"}; see `Limits`.

    Raises CatalogLockedError (another process writes to it), CorruptManifestError, UnknownVersionError, OSError.
    """
    layout = Layout(Path(path))
    make_directory_tree(layout.root)
    checked = Limits.of(dict(limits) if isinstance(limits, Mapping) else limits)
    return Catalog(Writing(layout, Durability.of(durability), checked, now_us))


def make_directory_tree(root: Path) -> None:
    """The root of a catalog, and the directories above it. Raises CatalogNotFoundError where a file is in the way."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise CatalogNotFoundError("a file is there, not a directory", path=str(root)) from None


class Catalog:
    """An open catalog. Safe to share between threads; close it, or use it as a context manager."""

    def __init__(self, writing: Writing) -> None:
        """Made by `aggregator.open`."""
        self._writing = writing
        self._state = writing.state
        self._pool = SegmentPool(writing.layout)
        self._closed = False

    def __repr__(self) -> str:
        return f"<aggregator.Catalog {str(self.path)!r}, {len(self._state.topics)} topics>"

    @property
    def path(self) -> Path:
        """The catalog's directory."""
        return self._writing.layout.root

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the catalog is closed", path=str(self.path), hint="open it again")

    # ------------------------------------------------------------ topics

    def topics(self) -> tuple[str, ...]:
        """Names of the topics, in the order in which they came to be."""
        self._check_open()
        return tuple(self._state.topics)

    def topic(self, name: str) -> Topic:
        """A topic. Raises TopicNotFoundError, which is a KeyError; a topic is never made by asking for it."""
        self._check_open()
        found = self._state.topics.get(name)
        if found is None:
            raise TopicNotFoundError(f"no topic {name!r}", path=str(self.path), hint="create_topic makes one")
        return self._topic(found)

    def create_topic(
        self,
        name: str,
        schema: pa.Schema | None = None,
        *,
        indexes: Sequence[str] = (),
        keys: str = "text",
        roll: Roll | Mapping[str, Any] | None = None,
        retention: Retention | Mapping[str, Any] | None = None,
    ) -> Topic:
        """Make a topic. Its name may be any text.

        schema: payload columns; None takes them from the first batch.
        indexes: columns that get a secondary index: string, integer or boolean; those that the schema lacks are texts.
        keys: "text" (space and grouping are `str`) or "binary".
        roll, retention: see `Roll` and `Retention`; e.g. roll={"age": "60s"}, retention={"bytes": "10 GiB"}.

        Raises TopicExistsError, InvalidRequestError, esformat.InvalidEventError (a schema that cannot be stored).
        """
        self._check_open()
        check_name(name, "topic")
        if keys not in ("text", "binary"):
            raise InvalidRequestError(f'keys must be "text" or "binary", not {keys!r}')
        if isinstance(indexes, str):
            raise InvalidRequestError(f"indexes must be a list of column names, not the text {indexes!r}")
        binary = keys == "binary"
        wanted = topic_schema(schema if schema is not None else pa.schema([]), indexes, binary_keys=binary)
        info = TopicInfo(0, name, keys, tuple(indexes), Roll.of(roll), Retention.of(retention), now_us())
        manifest = self._writing.manifest
        info = manifest.add_topic(info)
        with self._state.view_lock:
            topic = self._state.add_topic(info)
        if schema is not None:
            stored = manifest.add_schema(info.number, wanted, None)
            with self._state.view_lock:
                self._state.add_schema(stored)
        return self._topic(topic)

    def _topic(self, topic: TopicState) -> Topic:
        return Topic(self._state, topic, self._pool, self._writing.pins, self._writing.ingest)

    def seal(self, topic: str | None = None) -> int:
        """Turn all unsealed events, of one topic or of all, into segments now; gives how many segments.

        Nobody needs to: it happens by itself. Raises OSError, AggregatorError.
        """
        chosen = [self.topic(topic).name] if topic is not None else self.topics()
        sealed = 0
        for name in chosen:
            for partition in list(self._state.topics[name].partitions.values()):
                sealed += len(self._writing.sealer.seal(self._state.topics[name], partition))
        return sealed

    # ------------------------------------------------------------ life

    def problems(self) -> list[Problem]:
        """What was found wrong with the catalog, oldest first."""
        self._check_open()
        return self._writing.manifest.problems()

    def close(self) -> None:
        """Stop. What was acknowledged is kept; unsealed events are in the log. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            self._pool.close()
            self._writing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
