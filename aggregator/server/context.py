"""`Context`: what every route needs: the catalog, the settings, thread pools for blocking calls, and permissions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore
from typing import TypeVar

from starlette.requests import Request

from aggregator import Catalog
from aggregator.server.bodies.document_ids import DocumentIds
from aggregator.server.bodies.shared.refusals import Count, Reason, Refusals, Source
from aggregator.server.config.settings import Settings
from aggregator.server.control.access import Access
from aggregator.server.control.body_room import BodyRoom
from aggregator.server.control.health import Health
from aggregator.server.control.open_responses import OpenResponses
from aggregator.server.control.requests import FinishedRequest, RequestCounts
from aggregator.server.control.syslog_socket import Datagrams
from aggregator.server.control.thread_pools import Slow, WorkPool
from aggregator.server.control.tokens import FILE, Authority
from aggregator.server.control.waiting_room import WaitingRoom

T = TypeVar("T")
MAX_PATHS = 10_000
"""Number of append paths that are remembered."""
BODY_TIMES = 8
"""Memory that events take, as a multiple of the bytes of their request body, at most.

If less memory is free, the next append waits. To refuse it after reading its body would cost as much as storing it."""


@dataclass(slots=True)
class Context:
    """The shared state of one application. `ready` is false before it accepts requests and while it stops."""

    catalog: Catalog
    settings: Settings
    appends: WorkPool
    reads: WorkPool
    authority: Authority
    health: Health
    readers: BoundedSemaphore
    body_room: BodyRoom
    waiting_room: WaitingRoom = field(init=False)
    """Where appends wait for memory."""
    open_responses: OpenResponses = field(default_factory=OpenResponses)
    ready: bool = False
    body_bytes: int = 0
    """Bytes of request bodies in memory."""
    open_requests: int = 0
    open_by_route: Counter[str] = field(default_factory=Counter)
    """Number of open requests by route template."""
    append_paths: dict[str, str] = field(default_factory=dict)
    """Paths of earlier appends and their route templates. Later appends to them can be refused early."""
    schemas: dict[tuple[str, str], str] = field(default_factory=dict)
    """The schema id of the last batch from plateau's routes, by topic and partition."""
    schema_changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of schema changes, by topic and partition."""
    refusals: Refusals = field(default_factory=Refusals)
    """Counts of records that were refused or changed."""
    document_ids: DocumentIds = field(default_factory=DocumentIds)
    """Ids of documents that Elasticsearch clients created."""
    originals: Mapping[int, Path] | None = None
    """The original files by segment number if the server displays files (`viewing`), otherwise None."""
    metrics_port: int | None = None
    """Port that serves only metrics; None if there is none."""
    datagrams: Datagrams = field(default_factory=Datagrams)
    """State of the syslog datagram socket."""
    requests: RequestCounts = field(default_factory=RequestCounts)
    """Counts of finished requests."""
    listeners: list[Callable[[FinishedRequest], None]] = field(default_factory=list)
    """Called in the event loop with each finished request; they must be fast."""

    def __post_init__(self) -> None:
        self.waiting_room = WaitingRoom(self.check_room, self.settings.work.append_patience_s)

    @classmethod
    def of(cls, catalog: Catalog, settings: Settings) -> Context:
        """Create a context with the pools of the settings. Raises InvalidRequestError (a damaged token file)."""
        work = settings.work
        room = BodyRoom(work.body_bytes // 4)
        return cls(
            catalog,
            settings,
            WorkPool("append", work.append_threads, work.waiting, work.patience_s, ended=room.release),
            WorkPool("read", work.read_threads, work.waiting, work.patience_s, Slow(work.slow_reads), room.release),
            Authority(settings.tokens or catalog.path / FILE),
            Health(settings.catalog.checkpoint_interval_s),
            BoundedSemaphore(max(1, (os.cpu_count() or 1) - 1)),
            room,
        )

    def may_see(self, request: Request, topic: str) -> bool:
        """Whether the request's token may read a topic. For responses that name topics."""
        access: Access = request.state.access
        return access.allows("read", topic)

    def refused(self, source: Source, reason: Reason, records: int = 1, why: str = "") -> None:
        """Count records that were refused or changed, and log this from time to time. why: of the last of them."""
        self.refusals.add(source, reason, records, why)

    def counting(self, source: Source) -> AbstractContextManager[Count]:
        """Count changed or refused records while a batch is stored; the counts are kept only if the block succeeds."""
        return self.refusals.counting(source)

    def request_finished(self, request: FinishedRequest) -> None:
        """Count a finished request and notify the listeners."""
        self.requests.add(request)
        for listener in self.listeners:
            listener(request)

    def understand(self, read: Callable[[], T]) -> T:
        """Decompress and parse a body, at most (processors - 1) bodies at a time.

        Parsing keeps a processor busy; the spare one leaves the event loop its turn. For the threads of `appends`:
        there are more of them because others wait for the disk.
        """
        with self.readers:
            return read()

    def know_append(self, path: str, template: str) -> None:
        """Remember a path that an append went to."""
        if path not in self.append_paths:
            if len(self.append_paths) >= MAX_PATHS:
                self.append_paths.clear()
            self.append_paths[path] = template

    def check_room(self, length: int | None) -> None:
        """Raise OverloadedError if there is no room for an append whose body has `length` bytes and was not read yet.

        length: None for an append with an idempotency key. Such a batch may be stored already, and then it needs a
        thread but no memory.
        """
        self.appends.check_room()
        if length is not None:
            most = self.settings.catalog.limits.memory_bytes // 16  # "retry later" is wrong for a batch that never fits
            memory_bytes = BODY_TIMES * (self.body_bytes + length)
            self.catalog.check_room(min(length, most), memory_bytes=min(memory_bytes, most))

    def saw_schema(self, place: tuple[str, str], schema: str) -> None:
        """Record the schema of a batch for a (topic, partition)."""
        self.schema_changes[place] += self.schemas.get(place, schema) != schema
        self.schemas[place] = schema

    def close(self) -> None:
        """Wait for running calls to end. The catalog's owner closes the catalog."""
        self.ready = False
        self.waiting_room.close()
        self.appends.close()
        self.reads.close()
