"""A topic whose partitions have numbers as names, such as plateau's 0, 1, 2, could not be deleted: in the manifest, the
partitions of a deleted topic take their own numbers as names, one after another, and two had the same name meanwhile.
"""

from __future__ import annotations

import pytest

import aggregator


@pytest.mark.parametrize("names", [["0", "1", "2"], ["3", "2", "1"], ["2", "3", "1"], ["\x001", "\x002", "\xff1", "2"]])
def test_a_topic_with_numbered_partitions(tmp_path, names):
    """It can be deleted and created again, any number of times, and nothing of it comes back."""
    with aggregator.open(tmp_path) as catalog:
        for _ in range(3):
            topic = catalog.create_topic("clicks")
            for name in names:
                topic.append([{"space": "ada", "timestamp": 1}], partition=name)
            assert topic.partitions == tuple(names)
            assert topic.scan().count() == len(names)
            catalog.delete_topic("clicks")
            assert catalog.topics() == ()
    with aggregator.open(tmp_path) as catalog:
        assert (catalog.topics(), catalog.problems(), catalog.verify()) == ((), [], [])
        catalog.create_topic("clicks").append([{"space": "ada", "timestamp": 1}], partition="1")
        assert catalog.topic("clicks").partitions == ("1",)


def test_renaming_beside_a_topic_named_like_a_number(tmp_path):
    """While it gets another name, a topic has one that no other topic can have."""
    with aggregator.open(tmp_path) as catalog:
        catalog.create_topic("clicks")
        others = [f"\0{number}" for number in range(3)]
        for name in others:
            catalog.create_topic(name)
        assert catalog.rename_topic("clicks", "views").name == "views"
        assert sorted(catalog.topics()) == [*others, "views"]
