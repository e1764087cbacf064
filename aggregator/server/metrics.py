"""Figures for Prometheus: of requests, counted as they end, and of the catalog, read when they are asked for.

Names without the prefix `aggregator_` are plateau's, so that its dashboards go on. Bytes, seconds, rows; times are
told as ages, by the server's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, UntypedMetricFamily
from prometheus_client.registry import Collector

from aggregator.server.context import Context, Told
from aggregator.server.health import Health
from aggregator.server.refusals import LOSSES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_LABELLED = 1000
"""Topics, partitions and pipes that are told one by one, the largest and those furthest behind first;
`aggregator_unlisted` counts the others."""
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The figures of one application."""

    def __init__(self, context: Context) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(_CatalogFigures(context))
        self._seconds = Histogram(
            "aggregator_request_seconds", "From the headers of a request to the end of its answer",
            ["method", "route"], buckets=_BUCKETS, registry=self._registry,
        )  # fmt: skip
        self._requests = Counter(
            "aggregator_requests", "Requests that ended", ["method", "route", "status"], registry=self._registry
        )
        self._shed = Counter(
            "aggregator_requests_shed", "Requests that were refused with 429", ["route"], registry=self._registry
        )
        self._sent = Counter("aggregator_sent_bytes", "Bytes of answers", registry=self._registry)
        for name, help_, read in (
            ("aggregator_open_requests", "Requests that are not answered yet", lambda: context.open_requests),
            ("aggregator_body_bytes", "Bytes of request bodies in memory", lambda: context.body_bytes),
            ("aggregator_append_calls", "Appends that run or wait for a thread", lambda: context.appends.busy),
            ("aggregator_read_calls", "Reads that run or wait for a thread", lambda: context.reads.busy),
            ("aggregator_slow_read_calls", "Reads that take long, not among these", lambda: context.reads.slow),
        ):
            Gauge(name, help_, registry=self._registry).set_function(read)
        self._open = Gauge(
            "aggregator_open_requests_by_route", "The same by route: of /v1/tail, live tails", ["route"],
            registry=self._registry,
        )  # fmt: skip
        self._known: dict[tuple[str, str, int], Callable[[Told], None]] = {}
        self._context = context
        context.listeners.append(self._tell)

    def _tell(self, told: Told) -> None:
        key = (told.method, told.route, told.status)
        tell = self._known.get(key)
        if tell is None:
            tell = self._known[key] = self._teller(*key)
        tell(told)

    def _teller(self, method: str, route: str, status: int) -> Callable[[Told], None]:
        """What counts the requests of one kind, with everything looked up."""
        route = route or "none"
        observe = self._seconds.labels(method, route).observe
        count = self._requests.labels(method, route, str(status)).inc
        shed = self._shed.labels(route).inc if status == 429 else None

        def tell(told: Told) -> None:
            observe(told.seconds)
            count()
            self._sent.inc(told.sent_bytes)
            if shed is not None:
                shed()

        return tell

    def page(self) -> bytes:
        """All of them, in Prometheus's text format. Reads the catalog: call it in a thread."""
        for route, count in list(self._context.open_by_route.items()):
            self._open.labels(route).set(count)
        return generate_latest(self._registry)


class _CatalogFigures(Collector):
    """What a catalog holds, as it is when it is asked."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are known when they are read."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All figures."""
        stats = self._context.catalog.stats()
        topics = list(stats["topics"].values())
        yield from _whole_catalog(stats, topics, self._context.health)
        listed = sorted(topics, key=lambda facts: -facts["bytes"])[:MAX_LABELLED]
        yield from _by_topic(listed, time.time() * 1e6)
        partitions = [(facts["topic"], *item) for facts in topics for item in facts["partitions"].items()]
        few = sorted(partitions, key=lambda one: -one[2]["bytes"])[:MAX_LABELLED]
        yield from _by_partition(few, self._context.schema_changes)
        pipes = sorted(stats["pipes"], key=lambda facts: -facts["lag"])
        yield from _by_pipe(pipes[:MAX_LABELLED])
        unlisted = GaugeMetricFamily(
            "aggregator_unlisted",
            "Topics and partitions too small to be told, pipes too little behind",
            labels=["kind"],
        )
        unlisted.add_metric(["topic"], len(topics) - len(listed))
        unlisted.add_metric(["partition"], len(partitions) - len(few))
        unlisted.add_metric(["pipe"], max(0, len(pipes) - MAX_LABELLED))
        yield unlisted
        yield from _of_shippers(self._context)


def _whole_catalog(stats: Mapping[str, Any], topics: list[Mapping[str, Any]], health: Health) -> Iterator[Metric]:
    ends = sum(p["end_index"] for facts in topics for p in facts["partitions"].values())
    counts = stats["since_open"]
    for name, help_, value in (
        ("slog_roll", "Times that unsealed events became a segment", counts["seals"]),
        ("slog_thread_records_written", "Records that were ever appended", ends),
        ("partition_segments_destroyed", "Segments that retention removed", counts["removed_segments"]),
    ):
        yield UntypedMetricFamily(name, help_, value)
    for name, help_, value in (
        ("stored_size_bytes", "Everything on disk", stats["disk"]["total"]),
        ("catalog_checkpoint_ms", "How long the last look at the catalog's health took", health.took_s * 1000),
        ("aggregator_checkpoint_age_seconds", "How long ago it was found well", health.age_s),
        ("aggregator_log_bytes", "Write-ahead log on disk", stats["log"]["bytes"]),
        ("aggregator_log_limit_bytes", "What it may take", stats["log"]["limit"]),
        ("aggregator_unsealed_bytes", "Unsealed events in memory", stats["memory"]["unsealed"]),
        ("aggregator_unsealed_limit_bytes", "What they may take", stats["memory"]["limit"]),
        ("aggregator_disk_free_bytes", "Left on the disk", stats["disk"]["free"]),
        ("aggregator_segments", "Segments", stats["segments"]),
        ("aggregator_problems", "Things found wrong that somebody should look at", stats["problems"]),
        ("aggregator_trouble", "1 while appends or background work fail", int(stats["background"] is not None)),
    ):
        yield GaugeMetricFamily(name, help_, value)


def _of_shippers(context: Context) -> Iterator[Metric]:
    labels = ["source", "reason"]
    refused = CounterMetricFamily("aggregator_refused_records", "Records that were not stored", labels=labels)
    changed = CounterMetricFamily(
        "aggregator_changed_records", "Records stored otherwise than they came", labels=labels
    )
    for source, reason, count in context.refusals.counts():
        (refused if reason in LOSSES else changed).add_metric([source, reason], count)
    yield from (refused, changed)
    if context.datagrams.buffer_bytes is not None:
        yield GaugeMetricFamily("aggregator_syslog_buffer_bytes", "Datagrams that the kernel holds",
                                context.datagrams.buffer_bytes)  # fmt: skip


def _by_topic(topics: list[Mapping[str, Any]], now_us: float) -> Iterator[Metric]:
    def family(name: str, help_: str, values: Iterable[tuple[str, float | None]]) -> Metric:
        made = GaugeMetricFamily(name, help_, labels=["topic"])
        for topic, value in values:
            if value is not None:
                made.add_metric([topic], value)
        return made

    def age(key: str) -> list[tuple[str, float | None]]:
        return [(t["topic"], None if t[key] is None else max(0.0, (now_us - t[key]) / 1e6)) for t in topics]

    for name, help_, key in (
        ("topic_bytes", "Bytes of a topic, unsealed ones included", "bytes"),
        ("aggregator_topic_rows", "Events of a topic", "rows"),
        ("aggregator_topic_unsealed_rows", "Those of them that no segment holds yet", "unsealed_rows"),
        ("aggregator_topic_segments", "Segments of a topic", "segments"),
        ("aggregator_topic_quarantined_rows", "Events that cannot be sealed, set aside", "quarantined_rows"),
        ("aggregator_topic_quarantined_bytes", "Bytes of their files", "quarantined_bytes"),
        ("aggregator_compaction_lag_segments", "Segments that are due to be merged", "segments_to_merge"),
    ):
        yield family(name, help_, [(t["topic"], t[key]) for t in topics])
    yield family("aggregator_topic_oldest_seconds", "Age of a topic's oldest event", age("min_timestamp"))
    yield family("aggregator_topic_newest_seconds", "Age of its newest event", age("max_timestamp"))
    yield family(
        "aggregator_seal_lag_seconds", "How long its oldest unsealed batch has waited", age("oldest_unsealed_us")
    )


def _by_partition(
    partitions: list[tuple[str, str, Mapping[str, Any]]], schema_changes: Mapping[tuple[str, str], int]
) -> Iterator[Metric]:
    labels = ["topic", "partition"]
    for name, help_, key in (
        ("partition_size_bytes", "Bytes of a partition, unsealed ones included", "bytes"),
        ("partition_size_segments", "Segments of a partition", "segments"),
    ):
        made = GaugeMetricFamily(name, help_, labels=labels)
        for topic, partition, facts in partitions:
            made.add_metric([topic, partition], facts[key])
        yield made
    changes = UntypedMetricFamily(
        "partition_schema_change", "Batches of plateau's routes with other columns than the last", labels=labels
    )
    for topic, partition, _ in partitions:
        changes.add_metric([topic, partition], schema_changes.get((topic, partition), 0))
    yield changes


def _by_pipe(pipes: list[Mapping[str, Any]]) -> Iterator[Metric]:
    families: tuple[
        tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, Callable[[Mapping[str, Any]], int]], ...
    ] = (
        (GaugeMetricFamily, "lag_records", "Records that a pipe has not looked at yet", lambda facts: facts["lag"]),
        (CounterMetricFamily, "copied_records", "Records that it has copied", lambda facts: facts["copied"]),
        (CounterMetricFamily, "gone_records", "Records that it was too late for", lambda facts: facts["gone"]),
        (GaugeMetricFamily, "failing", "1 while it cannot copy", lambda facts: int(facts["state"] == "failing")),
    )
    for family, name, help_, value_of in families:
        made = family(f"aggregator_pipe_{name}", help_, labels=["pipe"])
        for facts in pipes:
            made.add_metric([facts["name"]], value_of(facts))
        yield made
