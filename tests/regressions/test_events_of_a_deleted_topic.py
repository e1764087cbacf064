"""An open reader returned events of a deleted topic as those of a later one, whose segment has the same number."""

from __future__ import annotations

import aggregator


def test_a_number_is_given_again(tmp_path):
    """Segment numbers continue after those that exist when the catalog is opened, so that some are reused."""
    root = tmp_path / "data"
    with aggregator.open(root) as catalog:
        catalog.create_topic("first").append([{"space": "a", "timestamp": n} for n in range(3)])
        catalog.seal()
        reader = aggregator.open(root, read_only=True)
        topic = reader.topic("first")
        assert topic.scan(space="a").count() == len(list(topic.read())) == sum(topic.scan().histogram().counts) == 3
        catalog.delete_topic("first")
    with reader, aggregator.open(root) as catalog:
        catalog.create_topic("second").append([{"space": "b", "timestamp": n} for n in (1, 2)])
        catalog.seal()
        topic = reader.topic("second")
        assert [event.space for event in topic.scan()] == ["b", "b"]
        assert [event.timestamp for event in topic.read()] == [1, 2]
        assert sum(topic.scan().histogram().counts) == 2
