"""What the runs of `streams` do to a catalog and note: writes, queries, readers, pipes, truncations.

A note is written before and after each step that changes something, so that the promises of a killed run are known. One
thread runs the steps in sequence; pipes, sealing and compaction run in parallel.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aggregator
from aggregator.errors import OverloadedError
from aggregator.storage.segments.records import STREAM_SCHEMA
from esformat.parts import hide_pandas

LIMITS = {"memory_bytes": "4 MiB", "log_bytes": "8 MiB"}
ROLL = {"rows": 400, "age": "2s"}
TOPICS = ("logs", "other")
APPS, ZONES = ("web", "db", "it's"), ("eu", "us")
SOURCES = ("", "app = web", "{zone=eu}", "app LIKE 'i*' OR zone = us")
WHERES = ("", "msg CONTAINS .3", "fields:n = 1", "NOT msg SUFFIX xx")
MOST_PIPES = 3
PATIENCE_S = 60.0


class Workload:
    """One life: open the catalog and work on it until killed."""

    def __init__(self, root: Path, notes: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self._notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        known = [json.loads(line) for line in notes.read_bytes().split(b"\n")[:-1]]
        self._written = sum(note[0] == "write" for note in known)
        self._made = sum(note[0] == "create" for note in known)
        self._positions = {note[1]: note[2] for note in known if note[0] == "read"}
        durability = self.random.choice(["fsync", "none", "interval:50ms"])
        self.catalog = aggregator.open(root, limits=LIMITS, durability=durability)
        for topic in TOPICS:
            if topic not in self.catalog.topics():
                self.catalog.create_topic(topic, STREAM_SCHEMA, roll=ROLL)
        self.note("open")

    def note(self, *facts: Any) -> None:
        os.write(self._notes, (json.dumps(facts) + "\n").encode())

    def run(self) -> None:
        while True:
            steps = [self.write] * 10 + [self.read] * 4 + [self.follow, self.ask, self.ask, self.seal, self.compact]
            steps += [self.create, self.delete, self.truncate]
            self.random.choice(steps)()

    # ------------------------------------------------------------ steps

    def write(self) -> None:
        number, chance = self._written, self.random
        tags = {"app": chance.choice(APPS), "zone": chance.choice(ZONES)}
        records = [
            {
                "ts": chance.randrange(1000) * 10**9 + (number * 64 + i),
                "msg": f"{number}.{i} " + "x" * chance.randrange(60),
                "n": str(i % 3),
            }
            for i in range(chance.randrange(1, 60))
        ]
        topic, partition = chance.choice(TOPICS), chance.choice("01")
        self.note("write", number, topic, tags, records)
        self._written += 1
        while True:
            try:
                self.catalog.write(tags, records, topic, partition=partition)
            except OverloadedError as error:
                time.sleep(error.retry_after_s)
            else:
                break
        self.note("written", number)

    def read(self) -> None:
        """Read the page after the last one."""
        reader = self.random.choice(["all", "web"])
        text = "SELECT FROM NOT logrange.pipe PREFIX p" if reader == "all" else "SELECT FROM app = web"
        position = self._positions.get(reader, "HEAD")
        answer = self.catalog.query(f"{text} POSITION {position} LIMIT {self.random.randrange(1, 300)}")
        self._seen(reader, list(answer), answer.position)

    def follow(self) -> None:
        position = self._positions.get("tail", "HEAD")
        tail = self.catalog.tail(f"SELECT FROM app = db POSITION {position} LIMIT 200", timeout_s=0.01)
        self._seen("tail", list(tail), tail.position)

    def _seen(self, reader: str, events: list[Any], position: str) -> None:
        self._positions[reader] = position
        self.note("read", reader, position, [name_of(event) for event in events])

    def ask(self) -> None:
        """Query what was written, and note the answer."""
        asked = {
            "source": self.random.choice(SOURCES[1:]), "where": self.random.choice(WHERES),
            "newest": self.random.random() < 0.3, "offset": self.random.choice([0, 0, 7]),
            "limit": self.random.choice([-1, 40]),
        }  # fmt: skip
        text = f"SELECT FROM {asked['source']}" + (f" WHERE {asked['where']}" if asked["where"] else "")
        text += " ORDER BY ts DESC" * asked["newest"] + f" OFFSET {asked['offset']} LIMIT {asked['limit']}"
        self.note("asked", asked, [name_of(event) for event in self.catalog.query(text)])

    def seal(self) -> None:
        self.catalog.seal()

    def compact(self) -> None:
        self.catalog.compact()

    def create(self) -> None:
        if len(self.catalog.query("SHOW PIPES")) >= MOST_PIPES:
            return
        self._made += 1
        name, source, where = f"p{self._made}", self.random.choice(SOURCES), self.random.choice(WHERES)
        backfill = self.random.random() < 0.5
        text = f"CREATE PIPE {name}" + (f" FROM {source}" if source else "") + (f" WHERE {where}" if where else "")
        self.note("create", name, source, where, backfill)
        self.catalog.query(text + " BACKFILL" * backfill)
        self.note("created")

    def delete(self) -> None:
        names = self.catalog.query("SHOW PIPES")["name"].to_pylist()
        if names and self.random.random() < 0.3:
            name = self.random.choice(names)
            self.level()
            self.note("delete", name)
            self.catalog.query(f"DELETE PIPE {name}")
            self.note("deleted")

    def truncate(self) -> None:
        limit = self.random.choice(
            [
                f"BEFORE {self.random.randrange(300) * 10**12}", "MAXSIZE 40k", "MINSIZE 10k MAXDBSIZE 200k",
                "MAXSIZE 60k MAXDBSIZE 300k",
            ]
        )  # fmt: skip
        source = self.random.choice([*SOURCES, "logrange.pipe PREFIX p"])
        self.level()
        self.note("truncate")
        told = self.catalog.query(f"TRUNCATE {source} {limit}").to_pylist()
        self.note("truncated", [(row["topic"], row["tags"], row["removed records"], row["records"]) for row in told])

    def level(self) -> None:
        """Wait until pipes have copied everything written."""
        wait_level(self.catalog)


def wait_level(catalog: aggregator.Catalog) -> None:
    """Wait until no pipe lags. Raises AssertionError after PATIENCE_S."""
    end = time.monotonic() + PATIENCE_S
    while any(pipe["lag"] for pipe in catalog.stats()["pipes"]):
        assert time.monotonic() < end, catalog.stats()["pipes"]
        time.sleep(0.005)


def name_of(event: Any) -> str:
    """The unique name of a record."""
    return str(event.data.decode().split(" ")[0])


def notes_of(path: Path) -> Iterator[list[Any]]:
    """The complete notes."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)


if __name__ == "__main__":
    hide_pandas()
    with contextlib.suppress(KeyboardInterrupt):
        Workload(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])).run()
