"""Counts by space with a condition on an index failed: an event's tags need its grouping, which was not read."""

from __future__ import annotations

import aggregator


def test_counts_by_space_of_what_has_a_value(tmp_path):
    """Counts by space are right, sealed or not, with and without a grouping, alone and with other keys."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", indexes=["type"])
        rows = [
            {"space": "ab"[n % 2], "timestamp": n, "grouping": "g" if n % 3 else "", "type": "xyz"[n % 3]}
            for n in range(600)
        ]
        topic.append(rows[:300])
        catalog.seal("t")
        topic.append(rows[300:])
        found = catalog.query("SELECT COUNT FROM topic = t WHERE type = x GROUP BY space").to_pylist()
        assert found == [{"space": "a", "count": 100}, {"space": "b", "count": 100}]
        both = catalog.query("SELECT COUNT FROM topic = t WHERE type = y GROUP BY grouping, space").to_pylist()
        assert both == [{"grouping": "g", "space": name, "count": 100} for name in "ab"]
