"""Who made the same topic at the same moment, and lost, was told that it exists and then that it does not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import aggregator
from aggregator import TopicExistsError


def test_a_topic_that_exists_is_there(tmp_path):
    """Threads race to make topics; the losers can use them at once."""
    with aggregator.open(tmp_path) as catalog, ThreadPoolExecutor(8) as pool:

        def make(name):
            try:
                catalog.create_topic(name)
            except TopicExistsError:
                return catalog.topic(name).name
            return name

        names = [f"t{n // 8}" for n in range(64)]
        assert list(pool.map(make, names)) == names
