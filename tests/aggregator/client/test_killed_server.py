"""The server is killed under load and started again: every acknowledged batch is there, each exactly once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pyarrow as pa
import pytest
from serving import Serving

import aggregator
from aggregator import SequenceConflictError
from aggregator.client import Client, Retry, Sizing

PATIENT = Retry(deadline_s=120.0, first_s=0.01, longest_s=0.2)
THREADS = 4


def batch(producer, sequence):
    """Events that are told apart by their payload."""
    count = 1 + sequence * 7 % 40
    data = [f"{producer}/{sequence}/{number}".encode() for number in range(count)]
    spaces = [f"space-{number % 11}" for number in range(count)]
    return pa.table({"space": spaces, "timestamp": range(sequence, sequence + count), "data": data})


def test_three_times_each_with_kills_in_between(tmp_path):
    """Each batch is sent three times, by clients that reconnect; the same key with another body is refused."""
    data = tmp_path / "data"
    with aggregator.open(data) as catalog:
        catalog.create_topic("t", roll={"rows": 500})
    receipts, conflicts, stop = {}, [], threading.Event()

    def send(url, producer, partition):
        with Client(url, retry=PATIENT) as client:
            topic = client.topic("t")
            sequence = 0
            while not stop.is_set():
                for _ in range(3):
                    receipt = topic.append(batch(producer, sequence), partition, producer=producer, sequence=sequence)
                    known = receipts.setdefault((partition, producer, sequence), (receipt.first, receipt.last))
                    assert known == (receipt.first, receipt.last)
                if sequence % 10 == 9:
                    with pytest.raises(SequenceConflictError):
                        topic.append(batch("other", sequence), partition, producer=producer, sequence=sequence)
                    conflicts.append(sequence)
                sequence += 1

    chance = random.Random(3)
    failures = []

    def watched(*arguments):
        try:
            send(*arguments)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    with Serving(data) as server:
        senders = [threading.Thread(target=watched, args=(server.url, f"p{n}", str(n % 2))) for n in range(THREADS)]
        for sender in senders:
            sender.start()
        for _ in range(2):
            time.sleep(chance.uniform(0.1, 0.4))
            server.kill()
            server.start()
        time.sleep(0.2)
        stop.set()
        for sender in senders:
            sender.join()
    assert failures == []
    assert len(receipts) > 20
    assert conflicts
    with aggregator.open(data) as catalog:
        assert catalog.problems() == []
        topic = catalog.topic("t")
        found = Counter(topic.scan(columns=["data"]).to_table()["data"].to_pylist())
        wanted = [row for _, producer, sequence in receipts for row in batch(producer, sequence)["data"].to_pylist()]
        assert found == Counter(wanted)
        assert set(found.values()) == {1}
        for (partition, producer, sequence), (first, last) in receipts.items():
            there = topic.read(partition, first, last - first + 1).to_table()["data"].to_pylist()
            assert there == batch(producer, sequence)["data"].to_pylist()


def test_writer_over_kills(tmp_path):
    """A background writer goes on by itself: everything that was added is there once, in order."""
    data = tmp_path / "data"
    with aggregator.open(data) as catalog:
        catalog.create_topic("t", roll={"rows": 2000})
    with Serving(data) as server, Client(server.url) as client:
        with client.topic("t").writer(sizing=Sizing(min_rows=20, max_rows=200), retry=PATIENT) as writer:
            for n in range(3000):
                writer.add("s", b"%d" % n, timestamp=n)
                if n in (1000, 2000):
                    server.kill()
                    server.start()
        assert writer.acknowledged == 3000
    with aggregator.open(data) as catalog:
        assert catalog.topic("t").read().to_table()["data"].to_pylist() == [b"%d" % n for n in range(3000)]
