"""A log for tests: entries of a few bytes, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from aggregator.policy import Durability
from aggregator.storage.log.entry import Entry
from aggregator.storage.log.frame import EventsPrefix, FrameKind
from aggregator.storage.log.log import Log
from aggregator.storage.log.recovery import Recovered, recover

PREFIX = EventsPrefix(1).encode()


class Bench:
    """A log whose partitions count their events, as in the catalog."""

    def __init__(self, directory: Path, durability: str = "fsync", file_bytes: int = 64 << 20) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.published: list[tuple[int, int, bytes]] = []
        self.next: dict[int, int] = {}
        self.recovered, frames = read_back(directory)
        for partition, first, payload in frames:
            self.next[partition] = first + len(payload)
        self.log = Log(
            directory,
            Durability.of(durability),
            files=self.recovered.files,
            position=self.recovered.position,
            file_bytes=file_bytes,
        )

    def entry(self, partition: int, payload: bytes, key: Any = None, joins: Any = None) -> BenchEntry:
        """A batch in which each byte of the payload is an event."""
        return BenchEntry(self, partition, payload, key, joins)

    def append(self, partition: int, payload: bytes) -> None:
        self.log.append(self.entry(partition, payload))


class BenchEntry(Entry):
    """A batch of a bench's log."""

    def __init__(self, bench: Bench, partition: int, payload: bytes, key: Any, joins: Any) -> None:
        super().__init__(partition, len(payload), defines=(partition, 1), key=key, joins=joins)
        self.bench, self.payload = bench, payload
        self.body_length = len(PREFIX) + len(payload)
        if joins is None:
            self.carry([PREFIX, payload])

    def join(self, others: Sequence[Self]) -> None:
        for other in others:
            other.bearer, other.offset = self, self.count
            self.count += other.count
            self.payload += other.payload
        self.carry([PREFIX, self.payload])

    def place(self) -> bool:
        self.first_index = self.bench.next.get(self.partition, 0)
        self.bench.next[self.partition] = self.first_index + self.count
        return True

    def withdraw(self) -> None:
        self.bench.next[self.partition] = self.first_index

    def publish(self) -> None:
        self.bench.published.append((self.partition, self.first_index, self.payload))

    def definition(self) -> bytes:
        return b'{"partition": %d}' % self.partition


def read_back(directory: Path) -> tuple[Recovered, list[tuple[int, int, bytes]]]:
    """The contents of a directory's log: partition, first record index and payload of each batch."""
    batches = []

    def take(frame: Any) -> None:
        if frame.head.kind == FrameKind.EVENTS:
            _, start = EventsPrefix.decode(frame.body)
            batches.append((frame.head.partition, frame.head.first_index, bytes(frame.body[start:])))

    return recover(directory, take), batches
