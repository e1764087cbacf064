"""A log in the hands of tests: entries of a few bytes, and what came of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aggregator.policy import Durability
from aggregator.storage.log.entry import Entry
from aggregator.storage.log.frame import EventsPrefix, FrameKind
from aggregator.storage.log.log import Log
from aggregator.storage.log.recovery import Recovered, recover

PREFIX = EventsPrefix(1).encode()


class Bench:
    """A log whose partitions count their events, as the catalog does."""

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

    def entry(self, partition: int, payload: bytes, key: Any = None) -> Entry:
        """One batch: each byte of the payload is an event."""
        return Entry(
            partition, len(payload), [PREFIX, payload], self._place, self._withdraw, self._publish,
            ((partition, 1), lambda: b'{"partition": %d}' % partition), key,
        )  # fmt: skip

    def append(self, partition: int, payload: bytes) -> None:
        self.log.append(self.entry(partition, payload))

    def _place(self, entry: Entry) -> bool:
        entry.first_index = self.next.get(entry.partition, 0)
        self.next[entry.partition] = entry.first_index + entry.count
        return True

    def _withdraw(self, entry: Entry) -> None:
        self.next[entry.partition] = entry.first_index

    def _publish(self, entry: Entry) -> None:
        self.published.append((entry.partition, entry.first_index, b"".join(entry.parts)[len(PREFIX) :]))


def read_back(directory: Path) -> tuple[Recovered, list[tuple[int, int, bytes]]]:
    """What a directory's log holds: partition, first record index and payload of each batch."""
    batches = []

    def take(frame: Any) -> None:
        if frame.head.kind == FrameKind.EVENTS:
            _, start = EventsPrefix.decode(frame.body)
            batches.append((frame.head.partition, frame.head.first_index, bytes(frame.body[start:])))

    return recover(directory, take), batches
