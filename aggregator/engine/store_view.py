"""`StoreView`: the public interface of a catalog's object store: status, push, evict, fetch, verify, gc."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from aggregator.base.reports import Collected
from aggregator.engine.backend import Backend, writer_of
from aggregator.engine.upkeep.tier import Tier, lost_objects
from aggregator.engine.upkeep.tiering import GRACE_US
from aggregator.engine.writer import WriterEngine, now_us
from aggregator.errors import InvalidRequestError, TopicNotFoundError
from aggregator.model import Problem, SegmentInfo, StoredSegment
from aggregator.policy import KeepLocal, checked_duration
from aggregator.storage.manifest import StoredRows
from aggregator.storage.store.objects import Objects, object_name

Facts = dict[str, Any]


def store_stats(backend: Backend) -> Facts | None:
    """Where the catalog's segments are, as JSON values; None without a store. Sends no request to the store."""
    settings = backend.objects.settings
    if settings is None:
        return None
    stored = {each.number: each for each in StoredRows(backend.manifest).all()}
    live = _live(backend)
    arrived = [info for info in live if info.number in stored]
    numbers = {info.number for info in live}
    facts: Facts = {
        "address": settings.address,
        "keep_local": settings.keep_local.to_json(),
        "arrived": _sum(arrived),
        "waiting": _sum(info for info in live if info.number not in stored),
        "evicted": _sum(info for info in arrived if not stored[info.number].local),
        "leaving": _sum(each for number, each in stored.items() if number not in numbers),
        "cache": {"bytes": 0, "limit": settings.cache_bytes, "hits": 0, "misses": 0, "trouble": None},
        "requests": {},
    }
    if backend.objects.is_open:
        cache = backend.objects.cache
        facts["cache"] |= {
            "bytes": cache.size_bytes,
            "hits": cache.hits,
            "misses": cache.misses,
            "trouble": cache.trouble,
        }
        facts["requests"] = asdict(backend.objects.store.traffic)
    facts["shipping"] = backend.shipping()
    if isinstance(backend, WriterEngine):
        tier = backend.upkeep.tier
        facts["since_open"] = {"segments": tier.pushed, "bytes": tier.pushed_bytes, "failures": tier.failures}
        facts["problem"] = tier.problem
    return facts


def _sum(segments: Iterable[SegmentInfo | StoredSegment]) -> Facts:
    sizes = [each.size_bytes for each in segments]
    return {"segments": len(sizes), "bytes": sum(sizes)}


def _live(backend: Backend) -> list[SegmentInfo]:
    with backend.state.view_lock:
        views = [topic.segments.view() for topic in backend.state.topics.values()]
    return [info for view in views for info in view]


class StoreView:
    """The store of a catalog. Created by `Catalog.store`.

    Its methods raise InvalidRequestError if the catalog has no store, StoreError if the store does not work.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __repr__(self) -> str:
        settings = self._backend.objects.settings
        return f"<aggregator.StoreView {None if settings is None else settings.address!r}>"

    def _objects(self) -> Objects:
        self._backend.refresh()
        if self._backend.objects.settings is None:
            raise InvalidRequestError(
                "the catalog has no store",
                path=str(self._backend.layout.root),
                hint="set one with `aggregator store set CATALOG --store s3://…`, or with `store` when opening it",
            )
        return self._backend.objects

    def _tier(self) -> Tier:
        writing = writer_of(self._backend)
        self._objects()
        return writing.upkeep.tier

    def _chosen(self, topic: str | None) -> list[SegmentInfo]:
        if topic is None:
            return _live(self._backend)
        found = self._backend.state.topics.get(topic)
        if found is None:
            raise TopicNotFoundError(f"no topic {topic!r}", path=str(self._backend.layout.root))
        with self._backend.state.view_lock:
            return list(found.segments.view())

    def status(self) -> Facts:
        """Where segments are, as numbers of segments and bytes; a plain mapping of JSON values. `arrived`: in the
        store; `waiting`: not there yet; `evicted`: only there; `leaving`: retired, but not deleted there yet.
        """
        self._objects()
        facts = store_stats(self._backend)
        assert facts is not None
        return facts

    def push(self) -> int:
        """Upload every segment that the store lacks, now. Return their number. This also happens automatically."""
        return self._tier().push()

    def evict(self, topic: str | None = None, *, keep_local: KeepLocal | Mapping[str, Any] | None = None) -> list[str]:
        """Delete local files of segments that the store has, of one topic or of all, by a policy or the catalog's own.

        Returns the objects' addresses. Each object is read back first. This also happens automatically, by the
        catalog's own policy.
        """
        tier, objects = self._tier(), self._objects()
        settings = objects.settings
        assert settings is not None
        given = dict(keep_local) if isinstance(keep_local, Mapping) else keep_local
        chosen = {info.number for info in self._chosen(topic)}
        to_evict = tier.to_evict(settings.keep_local if given is None else KeepLocal.of(given))
        return self._names(tier.evict([info for info in to_evict if info.number in chosen]))

    def fetch(self, topic: str | None = None) -> list[str]:
        """Download the files of segments back to the disk, of one topic or of all. Return the objects' addresses.

        Files that the catalog's `keep_local` does not keep are evicted again.
        """
        return self._names(self._tier().fetch(self._chosen(topic)))

    def verify(self, *, read: bool = False) -> list[Problem]:
        """Check that the store has every segment that it should. Return the problems. read: read every object, whole.

        If a missing or damaged segment is on the disk, it is uploaded again. A catalog that is open for reading changes
        nothing.
        """
        objects = self._objects()
        if isinstance(self._backend, WriterEngine):
            return self._tier().verify(read=read)
        stored = {each.number for each in StoredRows(self._backend.manifest).all()}
        lost = lost_objects(objects, [info for info in _live(self._backend) if info.number in stored], read=read)
        return [
            Problem(objects.store.path_of(object_name(info)), "the object is damaged or missing", "reported", now_us())
            for info in lost
        ]

    def gc(self, *, grace: str | int | None = None, dry_run: bool = False) -> Collected:
        """Delete stale objects of segments, which a crash can leave, and everything else the store no longer needs.

        grace: minimum age of the segments' objects, a day by default. The rest is also deleted automatically. dry_run:
        only report the objects.
        """
        grace_us = GRACE_US if grace is None else checked_duration(grace, "grace")
        return self._tier().collect(grace_us=grace_us, dry_run=dry_run)

    def _names(self, segments: Iterable[SegmentInfo]) -> list[str]:
        store = self._objects().store
        return [store.path_of(object_name(info)) for info in segments]
