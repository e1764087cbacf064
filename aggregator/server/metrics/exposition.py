"""Figures for Prometheus: of requests, counted as they end; of the process; and of the catalog, from `figures`.

Names begin with `aggregator_` and keep to what `promtool check metrics` asks for. Bytes, seconds, records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aggregator.server.context import Context, Told
from aggregator.server.metrics.figures import CatalogFigures
from aggregator.server.metrics.plateau_figures import PlateauFigures

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The figures of one application."""

    def __init__(self, context: Context) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(CatalogFigures(context))
        if context.settings.plateau_metrics:
            self._registry.register(PlateauFigures(context))
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
        shed = self._shed.labels(route)  # there from the first request of a route on, as rates need it

        def tell(told: Told) -> None:
            observe(told.seconds)
            count()
            self._sent.inc(told.sent_bytes)
            if status == 429:
                shed.inc()

        return tell

    def page(self) -> bytes:
        """All of them, in Prometheus's text format. Reads the catalog: call it in a thread."""
        for route, count in list(self._context.open_by_route.items()):
            self._open.labels(route).set(count)
        return generate_latest(_WithoutCreated(self._registry))


class _WithoutCreated(Collector):
    """Figures without the times at which each counter was made, which are a gauge for each in this format."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def collect(self) -> Iterator[Metric]:
        """All of the others."""
        for metric in self._collector.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
