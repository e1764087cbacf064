"""`Context`: what every route needs: the catalog, the settings, threads for calls that block, who may do what."""

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
from aggregator.server.bodies.shared.refusals import Reason, Refusals, Source, Tell
from aggregator.server.config.settings import Settings
from aggregator.server.control.access import Access
from aggregator.server.control.body_room import BodyRoom
from aggregator.server.control.health import Health
from aggregator.server.control.open_answers import OpenAnswers
from aggregator.server.control.requests import RequestCounts, Told
from aggregator.server.control.syslog_socket import Datagrams
from aggregator.server.control.thread_pools import Slow, WorkPool
from aggregator.server.control.tokens import FILE, Authority
from aggregator.server.control.waiting_room import WaitingRoom

T = TypeVar("T")
MAX_PATHS = 10_000
"""Of appends that are remembered."""
BODY_TIMES = 8
"""Events take up to so many times the bytes of the bodies that they come in. Where less is free, the next append waits:
refused with its body read, it would have cost as much as one that is stored.
"""


@dataclass(slots=True)
class Context:
    """One for each application. `ready` is false before it takes requests and while it stops."""

    catalog: Catalog
    settings: Settings
    appends: WorkPool
    reads: WorkPool
    authority: Authority
    health: Health
    readers: BoundedSemaphore
    body_room: BodyRoom
    waiting_room: WaitingRoom = field(init=False)
    """Of appends."""
    answers: OpenAnswers = field(default_factory=OpenAnswers)
    ready: bool = False
    body_bytes: int = 0
    """Of request bodies that are held now."""
    open_requests: int = 0
    open_by_route: Counter[str] = field(default_factory=Counter)
    """Open requests by their route's template."""
    append_paths: dict[str, str] = field(default_factory=dict)
    """Paths that appends went to, and their route's template: the next ones are refused early."""
    schemas: dict[tuple[str, str], str] = field(default_factory=dict)
    """Of the last batch that plateau's routes took, by topic and partition: the id of its schema."""
    schema_changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often that changed."""
    refusals: Refusals = field(default_factory=Refusals)
    """What was refused, or kept otherwise than it came."""
    document_ids: DocumentIds = field(default_factory=DocumentIds)
    """Of what Elasticsearch's clients created."""
    originals: Mapping[int, Path] | None = None
    """Where files are looked at, of which the segments are copies: those files, by the segments' numbers."""
    metrics_port: int | None = None
    """Where only figures are given; None: nowhere."""
    datagrams: Datagrams = field(default_factory=Datagrams)
    """Of syslog."""
    requests: RequestCounts = field(default_factory=RequestCounts)
    """Those that ended."""
    listeners: list[Callable[[Told], None]] = field(default_factory=list)
    """Called with each request that is over, in the event loop: they must be quick."""

    def __post_init__(self) -> None:
        self.waiting_room = WaitingRoom(self.check_room, self.settings.work.append_patience_s)

    @classmethod
    def of(cls, catalog: Catalog, settings: Settings) -> Context:
        """With pools as the settings ask for them. Raises InvalidRequestError (a damaged token file)."""
        work = settings.work
        room = BodyRoom(work.body_bytes // 4)
        return cls(
            catalog,
            settings,
            WorkPool("append", work.append_threads, work.waiting, work.patience_s, ended=room.give_back),
            WorkPool("read", work.read_threads, work.waiting, work.patience_s, Slow(work.slow_reads), room.give_back),
            Authority(settings.tokens or catalog.path / FILE),
            Health(settings.catalog.checkpoint_interval_s),
            BoundedSemaphore(max(1, (os.cpu_count() or 1) - 1)),
            room,
        )

    def may_see(self, request: Request, topic: str) -> bool:
        """Whether the request's token may read a topic: for answers that name topics."""
        access: Access = request.state.access
        return access.allows("read", topic)

    def refused(self, source: Source, reason: Reason, records: int = 1, why: str = "") -> None:
        """Count records that were refused or changed, and say so in the log now and then. why: of the last of them."""
        self.refusals.tell(source, reason, records, why)

    def telling(self, source: Source) -> AbstractContextManager[Tell]:
        """The same for what becomes of records that are stored within it: told if that ends well."""
        return self.refusals.telling(source)

    def tell(self, told: Told) -> None:
        """Count a finished request, and pass its facts on."""
        self.requests.add(told)
        for listener in self.listeners:
            listener(told)

    def understand(self, read: Callable[[], T]) -> T:
        """Decompress and read a body, which takes the processor long: one fewer at a time than there are processors, so
        that the event loop has its turn. For the threads of `appends`, of which others wait for the disk meanwhile.
        """
        with self.readers:
            return read()

    def know_append(self, path: str, template: str) -> None:
        """Take note of where appends go."""
        if path not in self.append_paths:
            if len(self.append_paths) >= MAX_PATHS:
                self.append_paths.clear()
            self.append_paths[path] = template

    def check_room(self, length: int | None) -> None:
        """Refuse an append before its body, of that many bytes, is read, if there is no room for it. Raises
        OverloadedError.

        None: it has an idempotency key. Such a batch may be there already, and then it needs a thread, but no memory.
        """
        self.appends.check_room()
        if length is not None:
            most = self.settings.catalog.limits.memory_bytes // 16  # a batch that never fits is told so, not "later"
            memory_bytes = BODY_TIMES * (self.body_bytes + length)
            self.catalog.check_room(min(length, most), memory_bytes=min(memory_bytes, most))

    def saw_schema(self, place: tuple[str, str], schema: str) -> None:
        """Take note of the schema of a batch for a (topic, partition)."""
        self.schema_changes[place] += self.schemas.get(place, schema) != schema
        self.schemas[place] = schema

    def close(self) -> None:
        """Let calls that run end. The catalog is its owner's to close."""
        self.ready = False
        self.waiting_room.close()
        self.appends.close()
        self.reads.close()
