"""plateau's metrics under its own names, for existing dashboards. Exported if the setting asks for them.

They violate Prometheus's naming rules (`promtool check metrics`), and duplicate our own metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric

from aggregator.server.metrics.figures import MAX_LABELLED, Figures, largest_partitions

_SYSTEM = {"system": "plateau"}


class PlateauFigures(Figures):
    """The metrics of a catalog under plateau's names."""

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. plateau's counters lack the suffix `_total`, so they are untyped here."""
        stats = self._context.catalog.stats()
        counts: Counter[str] = Counter(stats.get("since_open"))  # empty for a read-only catalog
        changes = self._context.schema_changes
        took_ms = self._context.health.took_s * 1000
        topics = sorted(stats["topics"].values(), key=lambda facts: -facts["bytes"])[:MAX_LABELLED]
        partitions = largest_partitions(stats["topics"].values())[:MAX_LABELLED]
        by_topic: list[tuple[dict[str, str], Any]] = [({"topic": facts["topic"]}, facts) for facts in topics]
        named: list[tuple[dict[str, str], Any]] = [
            ({"topic": topic, "partition": name}, facts) for (topic, name), facts in partitions
        ]
        for name, kind, help_, values in (
            ("slog_roll", "untyped", "Times that unsealed events were sealed into a segment", [({}, counts["seals"])]),
            ("slog_thread_records_written", "untyped", "Records that were appended", [({}, counts["appended_rows"])]),
            (
                "partition_segments_destroyed",
                "untyped",
                "Segments that retention removed",
                [({}, counts["removed_segments"])],
            ),
            ("stored_size_bytes", "gauge", "Bytes of the catalog on disk", [({}, stats["disk"]["total"])]),
            ("catalog_checkpoint_ms", "gauge", "Duration of the last health check in milliseconds", [({}, took_ms)]),
            ("topic_bytes", "gauge", "Bytes of a topic", [(of, facts["bytes"]) for of, facts in by_topic]),
            ("partition_size_bytes", "gauge", "Bytes of a partition", [(of, facts["bytes"]) for of, facts in named]),
            (
                "partition_size_segments",
                "gauge",
                "Segments of a partition",
                [(of, facts["segments"]) for of, facts in named],
            ),
            (
                "partition_schema_change",
                "untyped",
                "Batches whose columns differ from the batch before",
                [(of, changes.get((of["topic"], of["partition"]), 0)) for of, _ in named],
            ),
        ):
            metric = Metric(name, help_, kind)
            for labels, value in values:
                metric.add_sample(name, labels | _SYSTEM, value)
            yield metric
