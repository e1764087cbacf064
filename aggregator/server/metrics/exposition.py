"""Metrics for Prometheus: of requests, of the process, and, from `figures`, of the catalog.

Names begin with `aggregator_` and satisfy `promtool check metrics`. Units are bytes, seconds and records.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from aggregator.server.context import Context
from aggregator.server.control.requests import BUCKETS_S
from aggregator.server.metrics.figures import CatalogFigures, Figures, labelled
from aggregator.server.metrics.plateau_figures import PlateauFigures

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ENDS = (*map(floatToGoString, BUCKETS_S), "+Inf")


class Metrics:
    """The metrics of one application."""

    def __init__(self, context: Context) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(CatalogFigures(context))
        if context.settings.plateau_metrics:
            self._registry.register(PlateauFigures(context))
        self._registry.register(RequestFigures(context))

    def page(self) -> bytes:
        """Return all metrics in Prometheus's text format. Reads the catalog: call it in a thread."""
        return generate_latest(self._registry)


class RequestFigures(Figures):
    """Metrics of finished and of open requests."""

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        context, requests = self._context, self._context.requests
        seconds = HistogramMetricFamily(
            "aggregator_request_seconds",
            "Time from the headers of a request to the end of its response",
            labels=["method", "route"],
        )
        for kind, times in list(requests.times.items()):
            seconds.add_metric(kind, list(zip(_ENDS, accumulate(times.counts), strict=True)), times.seconds)
        yield seconds
        yield labelled(
            CounterMetricFamily,
            "aggregator_requests",
            "Finished requests",
            ["method", "route", "status"],
            [((method, route, str(status)), count) for (method, route, status), count in list(requests.ended.items())],
        )
        for family, name, help_, by_route in (
            (CounterMetricFamily, "aggregator_requests_shed", "Requests that were refused with 429", requests.shed),
            (
                GaugeMetricFamily,
                "aggregator_open_requests_by_route",
                "Open requests by route; those of /v1/tail are live tails",
                context.open_by_route,
            ),
        ):
            yield labelled(family, name, help_, ["route"], [((of,), count) for of, count in list(by_route.items())])
        yield CounterMetricFamily("aggregator_sent_bytes", "Bytes of responses", requests.sent_bytes)
        for name, help_, value in (
            ("aggregator_open_requests", "Open requests", context.open_requests),
            ("aggregator_body_bytes", "Bytes of request bodies in memory", context.body_bytes),
            ("aggregator_append_calls", "Appends that run or wait for a thread", context.appends.busy),
            ("aggregator_waiting_appends", "Appends that wait for memory or log space", context.waiting_room.waiting),
            ("aggregator_read_calls", "Reads that run or wait for a thread, without slow ones", context.reads.busy),
            ("aggregator_slow_read_calls", "Slow reads that run or wait for a place", context.reads.slow),
        ):
            yield GaugeMetricFamily(name, help_, value)
