"""Histories of segments that are only in the store: the number of requests, and unchanged answers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from effort import long
from waiting import at_best

import aggregator
from esformat import Event

if TYPE_CHECKING:
    from benchmarks.s3_endpoint import S3Endpoint

pytestmark = pytest.mark.usefixtures("unshipped")
SPACES, EACH = 400, 10


def filled(catalog: aggregator.Catalog, segments: int, groupings: int = 1) -> aggregator.Topic:
    topic = catalog.create_topic("t")
    some = random.Random(7)
    for number in range(segments):
        topic.append(
            [
                {
                    "space": f"s{n % SPACES}", "grouping": f"g{n // SPACES % groupings}",
                    "timestamp": 100_000 * number + n, "data": some.randbytes(300),
                }
                for n in range(SPACES * EACH)
            ]
        )  # fmt: skip
        catalog.seal()
    return topic


def history(topic: aggregator.Topic, space: str, **options: Any) -> list[Event]:
    return list(topic.scan(space=space, **options))


def forget(catalog: aggregator.Catalog, topic: aggregator.Topic, *, cache: bool = True) -> None:
    """Forget open segments as after a restart, and the cache if requested."""
    if cache:
        catalog._backend.objects.cache.clear()
    for info in topic._topic.segments.view():
        catalog._backend.pool.forget(info.number)
    catalog._backend.pool.begun.clear()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("groupings", [pytest.param(1, marks=long), 3])
def test_requests_of_a_history(tmp_path: Path, s3: S3Endpoint, bucket: str, groupings: int):
    """A history costs three requests for a new segment, two for one evicted here, and none if cached."""
    with aggregator.open(tmp_path / "data", store=f"s3://{bucket}/x") as catalog:
        topic = filled(catalog, 1, groupings)
        local = history(topic, "s7")
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        with s3.recorded() as requests:
            assert history(topic, "s7") == local
        assert len(requests) <= 2
        with s3.recorded() as requests:
            assert history(topic, "s7") == local
        assert len(requests) == 0
        forget(catalog, topic)
        with s3.recorded() as requests:
            assert history(topic, "s7") == local
        assert len(requests) <= 3
        forget(catalog, topic, cache=False)
        with s3.recorded() as requests:
            assert history(topic, "s7") == local
            assert topic.scan(space="s7").to_table().num_rows == len(local)
        assert len(requests) == 0
    with aggregator.open(tmp_path / "data") as catalog, s3.recorded() as requests:
        assert history(catalog.topic("t"), "s7") == local
    assert len(requests) == 0, "the cache survives a restart"
    with aggregator.open(tmp_path / "data", read_only=True) as catalog, s3.recorded() as requests:
        assert history(catalog.topic("t"), "s7") == local
    assert len(requests) == 0, "readers beside the writer use its cache"


@pytest.mark.usefixtures("quiet")
def test_far_segments_are_not_opened_ahead(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """Segments in the store are not opened ahead: each costs requests and may never be needed."""
    with aggregator.open(tmp_path / "data", store=f"s3://{bucket}/x") as catalog:
        filled(catalog, 3)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
    with aggregator.open(tmp_path / "data") as catalog, s3.recorded() as requests:
        list(catalog.open_ahead())
        assert len(catalog._backend.pool._open) == 0
        assert catalog.topic("t").stats()["segments"] == 3
    assert len(requests) == 0


@pytest.mark.usefixtures("quiet")
def test_segments_are_asked_for_side_by_side(tmp_path: Path, s3: S3Endpoint, bucket: str):
    """A history of many segments takes about as many round trips as of one."""
    with aggregator.open(tmp_path / "data", store=f"s3://{bucket}/x") as catalog:
        topic = filled(catalog, 8)
        local = history(topic, "s7")
        newest = history(topic, "s7", reverse=True, limit=3)
        catalog.store.push()
        catalog.store.evict(keep_local={"bytes": 0})
        for read, wanted in ((history, local), (lambda topic, s: topic.scan(space=s).to_table().num_rows, len(local))):

            def taken(read=read, wanted=wanted):
                forget(catalog, topic)
                s3.latency_seconds = 0.1
                with s3.recorded() as requests:
                    found = read(topic, "s7")
                s3.latency_seconds = 0.0
                assert found == wanted
                assert len(requests) <= 24
                return trips(requests)

            assert at_best(taken, 4) <= 4
        forget(catalog, topic)
        assert history(topic, "s7", reverse=True, limit=3) == newest


def trips(requests: list[Any]) -> int:
    """The length of the longest chain of requests in which each began after the previous one ended."""
    count, ended = 0, 0.0
    for request in sorted(requests, key=lambda request: request.ended):
        if request.began >= ended:
            count, ended = count + 1, request.ended
    return count
