"""plateau's figures under its own names, for dashboards that were made for it: where the setting asks for them.

They break rules that Prometheus has for names (`promtool check metrics`), and stand beside ours, which say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric

from aggregator.server.metrics.figures import MAX_LABELLED, Figures, largest_partitions

_SYSTEM = {"system": "plateau"}


class PlateauFigures(Figures):
    """The figures of a catalog as plateau names them."""

    def collect(self) -> Iterator[Metric]:
        """All of them. Its counters have no suffix, so they have no type here."""
        stats = self._context.catalog.stats()
        counts: Counter[str] = Counter(stats.get("since_open"))  # of a catalog that is only read, nothing
        changes = self._context.schema_changes
        took_ms = self._context.health.took_s * 1000
        topics = sorted(stats["topics"].values(), key=lambda facts: -facts["bytes"])[:MAX_LABELLED]
        partitions = largest_partitions(stats["topics"].values())[:MAX_LABELLED]
        by_topic: list[tuple[dict[str, str], Any]] = [({"topic": facts["topic"]}, facts) for facts in topics]
        named: list[tuple[dict[str, str], Any]] = [
            ({"topic": topic, "partition": name}, facts) for (topic, name), facts in partitions
        ]
        for name, kind, help_, values in (
            ("slog_roll", "untyped", "Times that unsealed events became a segment", [({}, counts["seals"])]),
            ("slog_thread_records_written", "untyped", "Records that were appended", [({}, counts["appended_rows"])]),
            ("partition_segments_destroyed", "untyped", "Segments removed", [({}, counts["removed_segments"])]),
            ("stored_size_bytes", "gauge", "Everything on disk", [({}, stats["disk"]["total"])]),
            ("catalog_checkpoint_ms", "gauge", "Time of the last checkpoint", [({}, took_ms)]),
            ("topic_bytes", "gauge", "Bytes of a topic", [(of, facts["bytes"]) for of, facts in by_topic]),
            ("partition_size_bytes", "gauge", "Bytes of a partition", [(of, facts["bytes"]) for of, facts in named]),
            ("partition_size_segments", "gauge", "Its segments", [(of, facts["segments"]) for of, facts in named]),
            (
                "partition_schema_change",
                "untyped",
                "Batches with other columns than the one before",
                [(of, changes.get((of["topic"], of["partition"]), 0)) for of, _ in named],
            ),
        ):
            metric = Metric(name, help_, kind)
            for labels, value in values:
                metric.add_sample(name, labels | _SYSTEM, value)
            yield metric
