"""`read` of an unknown partition returned no events from a catalog, and an error from a client."""

from __future__ import annotations

import pytest
from served import served

import aggregator
from aggregator.client import Client


@pytest.fixture(params=["catalog", "client"])
def topic(request, tmp_path):
    """A topic without events, in a catalog or behind a server."""
    with served(tmp_path / "data") as server:
        made = server.catalog.create_topic("clicks")
        if request.param == "catalog":
            yield made
        else:
            with Client(server.url) as client:
                yield client.topic("clicks")


def test_read(topic):
    """An unknown partition is refused with the existing ones; the default one is empty before the first events."""
    assert topic.read().to_table().num_rows == 0
    with pytest.raises(aggregator.InvalidRequestError, match=r"no partition 'nope' in topic 'clicks'.*has no events"):
        topic.read("nope").to_table()
    for number in range(11):
        topic.append([{"space": "a", "timestamp": 1}], partition=f"p{number}")
    assert topic.read("p3").to_table().num_rows == 1
    for missing in ("nope", "0"):
        with pytest.raises(aggregator.InvalidRequestError, match=rf"no partition '{missing}'.*'p0', 'p1',.* 'p9', …"):
            topic.read(missing).to_table()
