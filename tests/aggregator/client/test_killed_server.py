"""The server is killed under load and restarted: every acknowledged batch is stored exactly once."""

from __future__ import annotations

import random

from effort import long
from killing import LEAST_BATCHES, PATIENT, SENDERS, exactly_once
from serving import Serving

import aggregator
from aggregator.client import Client, Sizing


@long
def test_three_times_each_with_kills_in_between(tmp_path):
    """Each batch is sent three times by clients that reconnect; the same key with another body is refused."""
    report = exactly_once(tmp_path / "data", 1, random.Random(3))
    assert report.batches >= SENDERS * LEAST_BATCHES
    assert report.conflicts >= SENDERS
    assert report.events > report.batches


def test_writer_over_kills(tmp_path):
    """A background writer continues without help: everything added is stored once, in order."""
    data = tmp_path / "data"
    with aggregator.open(data) as catalog:
        catalog.create_topic("t", roll={"rows": 1000})
    with Serving(data) as server, Client(server.url) as client:
        with client.topic("t").writer(sizing=Sizing(min_rows=20, max_rows=200), retry=PATIENT) as writer:
            for n in range(2000):
                writer.add("s", b"%d" % n, timestamp=n)
                if n == 1000:
                    server.kill()
                    server.start()
        assert writer.acknowledged == 2000
    with aggregator.open(data) as catalog:
        assert catalog.topic("t").read().to_table()["data"].to_pylist() == [b"%d" % n for n in range(2000)]
