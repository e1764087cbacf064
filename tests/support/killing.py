"""Send batches three times each to a server that is killed and restarted meanwhile, and check the stored events.

The tests do it a few times; `python -m killing --kills 100` in this directory, or `make soak`, any number of times.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from serving import Serving

import aggregator
from aggregator import SequenceConflictError
from aggregator.client import Client, Retry

PATIENT = Retry(deadline_s=120.0, first_s=0.01, longest_s=0.2)
SENDERS = 4
SENDINGS = 3
LEAST_BATCHES = 12  # per sender, however slow the machine is


@dataclass(frozen=True)
class Report:
    """The counts of acknowledged batches, refused conflicts and stored events."""

    batches: int
    conflicts: int
    events: int


def batch(producer: str, sequence: int) -> pa.Table:
    """Events with distinct payloads."""
    count = 1 + sequence * 7 % 40
    data = [f"{producer}/{sequence}/{number}".encode() for number in range(count)]
    spaces = [f"space-{number % 11}" for number in range(count)]
    return pa.table({"space": spaces, "timestamp": range(sequence, sequence + count), "data": data})


class Sender(threading.Thread):
    """Sends batch after batch to a partition, three times each, and sometimes a different one under a known key."""

    def __init__(self, url: str, number: int, stop: threading.Event) -> None:
        super().__init__(name=f"sender-{number}")
        self.producer, self.partition = f"p{number}", str(number % 2)
        self.receipts: dict[int, tuple[int, int]] = {}
        self.conflicts = 0
        self.failure: BaseException | None = None
        self._url, self._end = url, stop

    def run(self) -> None:
        try:
            with Client(self._url, retry=PATIENT) as client:
                self._send(client)
        except BaseException as error:  # noqa: BLE001 - raised by exactly_once
            self.failure = error

    def _send(self, client: Client) -> None:
        topic, sequence = client.topic("t"), 0
        while not self._end.is_set():
            events = batch(self.producer, sequence)
            for _ in range(SENDINGS):
                receipt = topic.append(events, self.partition, producer=self.producer, sequence=sequence)
                known = self.receipts.setdefault(sequence, (receipt.first, receipt.last))
                assert known == (receipt.first, receipt.last)
            if sequence % 10 == 9:
                try:
                    topic.append(batch("x", sequence), self.partition, producer=self.producer, sequence=sequence)
                except SequenceConflictError:
                    self.conflicts += 1
                else:
                    raise AssertionError("another batch was taken under a known key")
            sequence += 1


def exactly_once(data: Path, kills: int, chance: random.Random) -> Report:
    """Kill the server `kills` times while senders work. Raises AssertionError if an event is missing or duplicate."""
    with aggregator.open(data) as catalog:
        catalog.create_topic("t", roll={"rows": 500})
    stop = threading.Event()
    with Serving(data) as server:
        senders = [Sender(server.url, number, stop) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 0.4))
            server.kill()
            server.start()
        while any(sender.is_alive() and len(sender.receipts) < LEAST_BATCHES for sender in senders):
            time.sleep(0.05)
        stop.set()
        for sender in senders:
            sender.join()
    for sender in senders:
        if sender.failure is not None:
            raise sender.failure
    with aggregator.open(data) as catalog:
        assert catalog.problems() == []
        topic = catalog.topic("t")
        wanted: Counter[bytes] = Counter()
        for sender in senders:
            for sequence, (first, last) in sender.receipts.items():
                rows = batch(sender.producer, sequence)["data"].to_pylist()
                there = topic.read(sender.partition, first, last - first + 1).to_table()["data"].to_pylist()
                assert there == rows, f"batch {sequence} of {sender.producer}"
                wanted.update(rows)
        assert Counter(topic.scan(columns=["data"]).to_table()["data"].to_pylist()) == wanted
    return Report(sum(len(s.receipts) for s in senders), sum(s.conflicts for s in senders), wanted.total())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(exactly_once(Path(folder, "data"), arguments.kills, random.Random(arguments.seed)))


if __name__ == "__main__":
    main()
