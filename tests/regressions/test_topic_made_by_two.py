"""The loser of two concurrent creations of a topic got the error that it exists, and then that it does not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import aggregator
from aggregator import TopicExistsError


def test_a_topic_that_exists_is_there(tmp_path):
    """Threads create the same topics concurrently; the losers can use them immediately."""
    with aggregator.open(tmp_path) as catalog, ThreadPoolExecutor(8) as pool:

        def make(name):
            try:
                catalog.create_topic(name)
            except TopicExistsError:
                return catalog.topic(name).name
            return name

        names = [f"t{n // 8}" for n in range(64)]
        assert list(pool.map(make, names)) == names
