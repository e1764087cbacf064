"""Metrics of a catalog for Prometheus, computed on each scrape. Times are reported as ages."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from aggregator.server.bodies.shared.refusals import LOSSES
from aggregator.server.context import Context
from esformat import __version__

MAX_LABELLED = 1000
"""Number of topics, partitions and pipes that are listed, starting with the largest and the furthest behind.
`aggregator_unlisted` counts the others."""
_GAUGE, _COUNTER = GaugeMetricFamily, CounterMetricFamily
_Family = type[GaugeMetricFamily | CounterMetricFamily]
_Facts = Mapping[str, Any]
_PLACE = ("topic", "partition")
_OF_TOPICS: tuple[tuple[str, str, str], ...] = (
    ("aggregator_topic_bytes", "Bytes of a topic, including unsealed events", "bytes"),
    ("aggregator_topic_rows", "Events of a topic", "rows"),
    ("aggregator_topic_unsealed_rows", "Events of a topic that are not in a segment yet", "unsealed_rows"),
    ("aggregator_topic_segments", "Segments of a topic", "segments"),
    (
        "aggregator_topic_quarantined_rows",
        "Events of a topic in quarantine because they could not be sealed",
        "quarantined_rows",
    ),
    ("aggregator_topic_quarantined_bytes", "Bytes of files in quarantine", "quarantined_bytes"),
    ("aggregator_compaction_lag_segments", "Segments that are due to be merged", "segments_to_merge"),
)
_AGES_OF_TOPICS = (
    ("aggregator_topic_oldest_seconds", "Age of a topic's oldest event", "min_timestamp"),
    ("aggregator_topic_newest_seconds", "Age of a topic's newest event", "max_timestamp"),
    ("aggregator_seal_lag_seconds", "Age of a topic's oldest unsealed batch", "oldest_unsealed_us"),
)
_OF_PIPES: tuple[tuple[_Family, str, str, Callable[[_Facts], int]], ...] = (
    (_GAUGE, "aggregator_pipe_lag_records", "Records that a pipe has not read yet", lambda facts: facts["lag"]),
    (_COUNTER, "aggregator_pipe_copied_records", "Records that a pipe copied", lambda facts: facts["copied"]),
    (
        _COUNTER,
        "aggregator_pipe_gone_records",
        "Records that were removed before a pipe read them",
        lambda facts: facts["gone"],
    ),
    (_GAUGE, "aggregator_pipe_failing", "1 while a pipe cannot copy", lambda facts: int(facts["state"] == "failing")),
)


class Figures(Collector):
    """Metrics of one application, computed on each scrape."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def describe(self) -> Iterable[Metric]:
        """Return nothing: names are known only after `collect`."""
        return ()


class CatalogFigures(Figures):
    """Metrics of a catalog."""

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        context = self._context
        stats = context.catalog.stats()
        topics = list(stats["topics"].values())
        yield _build()
        yield from _whole_catalog(stats, context)
        if "store" in stats:
            yield from _of_store(stats["store"])
        listed = sorted(topics, key=lambda facts: -facts["bytes"])[:MAX_LABELLED]
        yield from _by_topic(listed, time.time() * 1e6)
        partitions = largest_partitions(topics)
        yield from _by_partition(partitions[:MAX_LABELLED], context.schema_changes)
        pipes = sorted(stats["pipes"], key=lambda facts: -facts["lag"])
        for family, name, help_, value_of in _OF_PIPES:
            named = [((facts["name"],), value_of(facts)) for facts in pipes[:MAX_LABELLED]]
            yield labelled(family, name, help_, ["pipe"], named)
        unlisted = [(("topic",), len(topics)), (("partition",), len(partitions)), (("pipe",), len(pipes))]
        yield labelled(
            _GAUGE,
            "aggregator_unlisted",
            "Topics, partitions and pipes without metrics of their own, because others are larger or further behind",
            ["kind"],
            [(kind, max(0, count - MAX_LABELLED)) for kind, count in unlisted],
        )
        yield from _refusals(context)


def labelled(
    family: _Family, name: str, help_: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a metric with one value per combination of labels."""
    made = family(name, help_, labels=labels)
    for of, value in values:
        made.add_metric(of, value)
    return made


def largest_partitions(topics: Iterable[_Facts]) -> list[tuple[tuple[str, str], _Facts]]:
    """Return all partitions of topics, the largest first, each as ((topic, partition), facts)."""
    found = [((facts["topic"], name), mine) for facts in topics for name, mine in facts["partitions"].items()]
    return sorted(found, key=lambda one: -one[1]["bytes"])


def _build() -> Metric:
    labels = {"version": __version__, "commit": _commit(), "python": platform.python_version()}
    return labelled(
        _GAUGE,
        "aggregator_build_info",
        "Always 1; the labels are the versions of the server",
        list(labels),
        [([*labels.values()], 1)],
    )


def _commit() -> str:
    """Return the commit that the package was installed from, if the installer recorded it (PEP 610)."""
    try:
        text = importlib.metadata.distribution("esformat").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return ""
    found = json.loads(text or "{}").get("vcs_info", {}).get("commit_id", "")
    return str(found)


def _whole_catalog(stats: _Facts, context: Context) -> Iterator[Metric]:
    disk, health = stats["disk"], context.health
    for family, name, help_, value in (
        (_GAUGE, "aggregator_stored_bytes", "Bytes of the catalog on disk", disk["total"]),
        (_GAUGE, "aggregator_disk_free_bytes", "Free bytes on the disk", disk["free"]),
        (
            _GAUGE,
            "aggregator_scan_window_bytes",
            "Bytes in memory that scans are sorting by time",
            stats["scans"]["window_bytes"],
        ),
        (_GAUGE, "aggregator_scans_waiting", "Scans that wait until others release memory", stats["scans"]["waiting"]),
        (_GAUGE, "aggregator_segments", "Segments of the catalog", stats["segments"]),
        (_GAUGE, "aggregator_problems", "Known problems that need an administrator", stats["problems"]),
        (_GAUGE, "aggregator_check_seconds", "Duration of the last health check", health.took_s),
        (_GAUGE, "aggregator_checkpoint_age_seconds", "Time since the last successful health check", health.age_s),
        *(_of_writer(stats) if "since_open" in stats else ()),
        *(_of_follower(stats["follows"]) if stats["follows"] is not None else ()),
    ):
        yield family(name, help_, value)


def _of_store(store: _Facts) -> Iterator[Metric]:
    """Yield metrics of the object store that contains a catalog's segments."""
    places = ("arrived", "waiting", "evicted", "leaving")
    for name, help_, key in (
        (
            "aggregator_store_segments",
            "Segments in the store, not uploaded yet, only in the store, and being deleted there",
            "segments",
        ),
        ("aggregator_store_bytes", "Bytes of these segments", "bytes"),
    ):
        yield labelled(_GAUGE, name, help_, ["place"], [((place,), store[place][key]) for place in places])
    since, cache = store.get("since_open", {}), store["cache"]
    nothing = {"trouble": None, "lag_bytes": 0, "lag_seconds": 0, "lease_seconds": 0, "epoch": 0}
    shipping = nothing | (store["shipping"] or {})
    for family, name, help_, value in (
        (_COUNTER, "aggregator_store_pushed_segments", "Segments uploaded to the store", since.get("segments", 0)),
        (_COUNTER, "aggregator_store_pushed_bytes", "Bytes of segments uploaded to the store", since.get("bytes", 0)),
        (
            _COUNTER,
            "aggregator_store_failures",
            "Upkeep attempts that failed because of the store",
            since.get("failures", 0),
        ),
        (
            _GAUGE,
            "aggregator_store_trouble",
            "1 while uploads or upkeep fail because of the store",
            int(bool(store.get("problem") or shipping["trouble"])),
        ),
        (_GAUGE, "aggregator_store_lag_bytes", "Bytes of the log that are not in the store yet", shipping["lag_bytes"]),
        (
            _GAUGE,
            "aggregator_store_lag_seconds",
            "Largest possible age of the oldest event that is not in the store yet",
            shipping["lag_seconds"],
        ),
        (
            _GAUGE,
            "aggregator_store_lease_seconds",
            "Time until this writer's lease of the store expires",
            shipping["lease_seconds"],
        ),
        (_GAUGE, "aggregator_store_epoch", "Number of times that a writer took the store over", shipping["epoch"]),
        (_GAUGE, "aggregator_store_cache_bytes", "Bytes of the disk cache for reads from the store", cache["bytes"]),
        (_COUNTER, "aggregator_store_cache_hits", "Blocks of objects that were found in the cache", cache["hits"]),
        (_COUNTER, "aggregator_store_cache_misses", "Blocks of objects that were not in the cache", cache["misses"]),
    ):
        yield family(name, help_, value)
    requests = [((kind,), count) for kind, count in store["requests"].items() if not kind.startswith("bytes")]
    traffic = [((way,), store["requests"].get(f"bytes_{way}", 0)) for way in ("up", "down")]
    yield labelled(_COUNTER, "aggregator_store_requests", "Requests to the store", ["kind"], requests)
    yield labelled(_COUNTER, "aggregator_store_traffic_bytes", "Bytes to and from the store", ["way"], traffic)


_Figure = tuple[_Family, str, str, float]


def _of_writer(stats: _Facts) -> Iterator[_Figure]:
    """Yield metrics of a catalog that is open for writing."""
    counts, memory = stats["since_open"], stats["memory"]
    yield _COUNTER, "aggregator_appended_records", "Records that were appended", counts["appended_rows"]
    yield _COUNTER, "aggregator_appended_bytes", "Bytes of the batches that were appended", counts["appended_bytes"]
    yield _COUNTER, "aggregator_seals", "Times that unsealed events were sealed into a segment", counts["seals"]
    yield _COUNTER, "aggregator_removed_segments", "Segments that retention removed", counts["removed_segments"]
    yield _GAUGE, "aggregator_log_bytes", "Bytes of the write-ahead log on disk", stats["log"]["bytes"]
    yield _GAUGE, "aggregator_log_limit_bytes", "Limit of the write-ahead log in bytes", stats["log"]["limit"]
    yield _GAUGE, "aggregator_unsealed_bytes", "Bytes of unsealed events in memory", memory["unsealed"]
    yield _GAUGE, "aggregator_unsealed_limit_bytes", "Limit of unsealed events in memory in bytes", memory["limit"]
    yield _GAUGE, "aggregator_arrow_bytes", "Memory allocated by Arrow, including unsealed events", memory["arrow"]
    trouble = int(stats["background"] is not None)
    yield _GAUGE, "aggregator_trouble", "1 while appends or background work fail", trouble


def _of_follower(follows: _Facts) -> Iterator[_Figure]:
    """Yield metrics of a catalog that follows another server's."""
    seconds = float("nan") if follows["lag_seconds"] is None else follows["lag_seconds"]
    yield _GAUGE, "aggregator_follow_lag_bytes", "Bytes of the log that are not copied yet", follows["lag_bytes"]
    yield _GAUGE, "aggregator_follow_lag_seconds", "Time since this copy was last complete", seconds
    trouble = int(follows["trouble"] is not None)
    yield _GAUGE, "aggregator_follow_trouble", "1 while following the server fails", trouble


def _by_topic(topics: list[_Facts], now_us: float) -> Iterator[Metric]:
    for name, help_, key in _OF_TOPICS:
        yield labelled(
            _GAUGE, name, help_, ["topic"], [((facts["topic"],), facts[key]) for facts in topics if key in facts]
        )
    for name, help_, key in _AGES_OF_TOPICS:
        ages = [
            ((facts["topic"],), max(0.0, (now_us - facts[key]) / 1e6)) for facts in topics if facts[key] is not None
        ]
        yield labelled(_GAUGE, name, help_, ["topic"], ages)


def _by_partition(
    partitions: list[tuple[tuple[str, str], _Facts]], schema_changes: Mapping[tuple[str, str], int]
) -> Iterator[Metric]:
    for name, help_, key in (
        ("aggregator_partition_bytes", "Bytes of a partition, including unsealed events", "bytes"),
        ("aggregator_partition_segments", "Segments of a partition", "segments"),
    ):
        yield labelled(_GAUGE, name, help_, _PLACE, [(place, facts[key]) for place, facts in partitions])
    yield labelled(
        _COUNTER,
        "aggregator_schema_changes",
        "Batches from plateau's routes whose columns differ from the batch before",
        _PLACE,
        [(place, schema_changes.get(place, 0)) for place, _ in partitions],
    )


def _refusals(context: Context) -> Iterator[Metric]:
    labels = ["source", "reason"]
    counts = list(context.refusals.counts())
    for name, help_, lost in (
        ("aggregator_refused_records", "Records that were not stored", True),
        ("aggregator_changed_records", "Records that were changed in order to store them", False),
    ):
        of = [((source, reason), count) for source, reason, count in counts if (reason in LOSSES) == lost]
        yield labelled(_COUNTER, name, help_, labels, of)
    buffer_bytes = context.datagrams.buffer_bytes
    if buffer_bytes is not None:
        yield GaugeMetricFamily(
            "aggregator_syslog_buffer_bytes", "Size of the kernel's receive buffer for datagrams", buffer_bytes
        )
