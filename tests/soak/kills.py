"""Repeated kill -9 over the same catalogs, each run with another durability and other work.

    python -m tests.soak.kills --kills 1000

A run appends batches of three schema families and of streams, each batch twice, and small batches without a producer
from several threads to one partition, which are joined. It seals constantly, in threads or in a separate process, and
creates and deletes pipes. It is killed at any moment. Between runs the clock may be moved and `writer.lock` deleted. If
the run did not sync its appends, the log sometimes loses what came after its last sync, as in a power cut. Then the
catalog is opened and compared with the notes of all runs.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import aggregator
from aggregator.lql import parse_statement
from aggregator.storage.log import log as log_module
from aggregator.storage.log.file import list_files
from esformat.parts import SYNCING, Commits
from tests.soak import tracing

FAMILIES: tuple[dict[str, Any], ...] = ({"n": 1}, {"n": "text"}, {"n": [1.5]})  # no two fit in one column
PARTITIONS = ("a", "b")
DURABILITY = ("fsync", "interval:20ms", "none")
CLOCKS_S = (0, 0, 0, -86_400, 86_400, 10 * 365 * 86_400)
RUNS_OF_A_CATALOG = 12
OPENING = 0.2  # fraction of the kills that may come while the catalog is opening
PATIENCE_S = 60.0
OPEN_SECONDS = 10.0
TOPIC, STREAMS, SMALL = "t", "logs", "small"
WRITERS = ("v", "w", "x", "y", "z")  # of small batches
OF_A_CUT = ("are missing", "cut short", "the log has lost its last events")

Key = tuple[str, str, int]
"""Topic, partition (of a small batch: its writer), sequence."""


def batch(key: Key) -> list[dict[str, Any]]:
    """The events of a batch: all of one schema family, with distinct times."""
    _, partition, sequence = key
    family = FAMILIES[sequence % len(FAMILIES)]
    return [
        {"space": f"s{(sequence + number) % 7}", "timestamp": sequence * 100 + number, "data": partition} | family
        for number in range(1 + sequence * 7 % 20)
    ]


def small_batch(key: Key) -> list[dict[str, Any]]:
    """The events of a batch without a producer."""
    _, writer, sequence = key
    times = range(sequence * 100, sequence * 100 + 1 + sequence % 3)
    return [{"space": f"s{sequence % 7}", "timestamp": time, "data": writer.encode()} for time in times]


def record(key: Key) -> dict[str, Any]:
    """The stream record that is written with a batch."""
    return {"ts": key[2], "msg": f"{key[1]} {key[2]}"}


def note_syncs(note: Callable[..., None]) -> None:
    """Note the start of each log sync, and after it the file's name and size."""
    sync = log_module.sync_file

    def synced(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        note("synced", path.rpartition("/")[2], os.fstat(descriptor).st_size)

    def noted_sync(descriptor: int) -> None:
        note("syncing")
        sync(descriptor)
        synced(descriptor)

    class NotedCommits:
        def __init__(self) -> None:
            self._commits = Commits()

        reached = property(lambda self: self._commits.reached)
        marked = property(lambda self: self._commits.marked)
        failed = property(lambda self: self._commits.failed)

        def commit(self, files: tuple[int, int], *arguments: Any) -> int:
            if syncs := bool(arguments[3]):
                note("syncing")
            number = self._commits.commit(files, *arguments)
            if syncs and self.reached > SYNCING:
                synced(files[0])
            return number

    log_module.sync_file, log_module.Commits = noted_sync, NotedCommits  # type: ignore[assignment, misc]


@dataclass
class Run:
    """One process over a catalog, until it is killed. first: its first sequence."""

    root: Path
    notes: Path
    first: int
    durability: str
    sealing: str
    clock_s: int

    def __call__(self) -> None:
        self._notes = os.open(self.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        real = time.time_ns
        time.time_ns = lambda: real() + self.clock_s * 10**9

        note_syncs(self._note)
        catalog = aggregator.open(self.root, durability=self.durability, sealing=self.sealing, limits=LIMITS)
        self._note(
            "open", self.durability, {path.name: path.stat().st_size for _, path in list_files(self.root / "log")}
        )
        if TOPIC not in catalog.topics():
            catalog.create_topic(TOPIC, roll={"rows": 60})
            self._note("made")
        if SMALL not in catalog.topics():
            catalog.create_topic(SMALL, roll={"rows": 500})
        pipes = threading.Thread(target=self._pipes, args=(catalog,), daemon=True)
        pipes.start()
        threads = [threading.Thread(target=self._append, args=(catalog, name), daemon=True) for name in PARTITIONS]
        threads += [threading.Thread(target=self._append_small, args=(catalog, name), daemon=True) for name in WRITERS]
        for thread in threads:
            thread.start()
        for sequence in itertools.count():
            catalog.seal()
            if sequence % 5 == 4:
                catalog.compact()

    def _note(self, what: str, *facts: Any) -> None:
        os.write(self._notes, (json.dumps([what, *facts]) + "\n").encode())

    def _append(self, catalog: aggregator.Catalog, partition: str) -> None:
        for sequence in itertools.count(self.first):
            key = (TOPIC, partition, sequence)
            self._store(
                key, lambda key=key: catalog.topic(TOPIC).append(batch(key), key[1], producer="p", sequence=key[2])
            )
            key = (STREAMS, partition, sequence)
            self._store(
                key, lambda key=key: catalog.write({"from": key[1]}, [record(key)], producer=key[1], sequence=key[2])
            )

    def _append_small(self, catalog: aggregator.Catalog, writer: str) -> None:
        for sequence in itertools.count(self.first):
            key = (SMALL, writer, sequence)
            self._store(key, lambda key=key: catalog.topic(SMALL).append(small_batch(key)), once=True)

    def _store(self, key: Key, append: Callable[[], aggregator.Receipt], *, once: bool = False) -> None:
        self._note("try", key)
        for again in (False,) if once else (False, True):
            while True:
                try:
                    receipt = append()
                except aggregator.OverloadedError as error:
                    time.sleep(error.retry_after_s)
                    continue
                break
            if receipt.duplicate != again:
                self._note(
                    "wrong", f"{key}: duplicate is {receipt.duplicate} when it is stored for the {again + 1}. time"
                )
            self._note("taken", key, receipt.partition, receipt.first, receipt.last)

    def _pipes(self, catalog: aggregator.Catalog) -> None:
        """Create the same pipe repeatedly; each starts over."""
        while True:
            names = [row["name"] for row in catalog.query("SHOW PIPES").to_pylist()]
            if "p" in names:
                catalog.query("DELETE PIPE p")
                self._note("deleted")
            catalog.query("CREATE PIPE p FROM from = a BACKFILL")
            self._note("piped")
            time.sleep(0.03)


LIMITS = {"log_bytes": "256 KiB"}  # files of 32 KiB: each run creates and deletes several


# ── the promises ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Notes:
    """The notes of all runs of a catalog. unsynced: appended in the last run after its last sync."""

    taken: dict[Key, tuple[str, int, int]] = field(default_factory=dict)
    tried: set[Key] = field(default_factory=set)
    lost: set[Key] = field(default_factory=set)
    unsynced: set[Key] = field(default_factory=set)
    synced: dict[str, int] = field(default_factory=dict)
    durability: str = "fsync"
    problems: set[tuple[str, str]] = field(default_factory=set)
    made: bool = False
    wrong: list[str] = field(default_factory=list)
    last: int = -1

    def read(self, lines: list[bytes]) -> None:
        """Add the lines of another run."""
        self.unsynced, self.synced, self.durability = set(), {}, "fsync"
        syncing: set[Key] = set()
        for line in lines:
            what, *facts = json.loads(line)
            if what == "open":
                self.durability, self.synced = facts[0].partition(":")[0], dict(facts[1])
            elif what == "made":
                self.made = True
            elif what == "try":
                self.tried.add(tuple(facts[0]))
                self.last = max(self.last, facts[0][2])
            elif what == "taken":
                key, place = tuple(facts[0]), tuple(facts[1:])
                if self.taken.setdefault(key, place) != place:
                    self.wrong.append(f"{key} was taken at {self.taken[key]} and at {place}")
                self.unsynced.add(key)
            elif what == "syncing":
                syncing = set(self.unsynced)
            elif what == "synced":
                self.synced[facts[0]] = facts[1]
                self.unsynced -= syncing
            elif what == "wrong":
                self.wrong.append(facts[0])


class Site:
    """A catalog that goes through many runs."""

    def __init__(self, directory: Path, chance: random.Random, outcome: Outcome) -> None:
        directory.mkdir()
        self.root, self._file = directory / "data", directory / "notes"
        self._chance, self._outcome = chance, outcome
        self.notes = Notes()
        self._told: set[str] = set()
        self._read = 0

    def kill(self) -> None:
        """Kill a run, then compare the catalog with the notes."""
        chance = self._chance
        sealing = "process" if chance.random() < 0.15 else "thread"
        run = Run(
            self.root, self._file, self.notes.last + 1, chance.choice(DURABILITY), sealing, chance.choice(CLOCKS_S)
        )
        before = self._file.stat().st_size if self._file.exists() else 0
        child = tracing.fork(run)
        ends = time.monotonic() + (0.3 * chance.random() if chance.random() < OPENING else PATIENCE_S)
        while time.monotonic() < ends and not (self._file.exists() and self._file.stat().st_size > before):
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, 0.5))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            self._outcome.wrong.append(f"{run}: it ended with status {status}")
        self._read_notes()
        cut = self.notes.durability != "fsync" and chance.random() < 0.4 and self._lose_end()
        lock = self.root / "writer.lock"
        if chance.random() < 0.3 and lock.exists():
            lock.unlink()
            self._outcome.counts["writer.lock deleted"] += 1
        self._outcome.counts["kills"] += 1
        self._outcome.counts[f"{self.notes.durability}, {sealing}"] += 1
        self._check(f"{run.durability}, {sealing}, {'log cut, ' if cut else ''}clock {run.clock_s}", cut=cut)

    def _read_notes(self) -> None:
        lines = self._file.read_bytes().split(b"\n")[:-1] if self._file.exists() else []
        self.notes.read(lines[self._read :])
        self._read = len(lines)

    def _lose_end(self) -> bool:
        """Cut the log at a point after its last sync, as a power cut would."""
        files = list_files(self.root / "log")
        for _, path in files[:-1]:
            if path.stat().st_size != self.notes.synced.get(path.name, path.stat().st_size):
                return False  # an older file, too: only "none" does this, and then anything may be left
        path = files[-1][1]
        size, synced = path.stat().st_size, self.notes.synced.get(path.name, 0)
        if size <= synced:
            return False
        os.truncate(path, self._chance.randint(synced, size))
        self._outcome.counts["ends of logs cut"] += 1
        return True

    def _check(self, what: str, *, cut: bool) -> None:
        began = time.perf_counter()
        answer = self._file.with_name("answer")
        answer.unlink(missing_ok=True)

        def compare() -> None:
            with aggregator.open(self.root, limits=LIMITS) as catalog:
                seconds = time.perf_counter() - began
                wrong = _broken(catalog, self.notes, cut)
                lost = [] if not cut else [key for key in self.notes.unsynced if key not in _stored(catalog)]
                known = [[problem.subject, problem.message] for problem in catalog.problems()]
            answer.write_text(json.dumps([wrong, lost, known, seconds]))

        _, status = os.waitpid(tracing.fork(compare), 0)
        unreadable: Any = (["the catalog could not be read"], [], [], 0.0)
        wrong, lost, known, seconds = json.loads(answer.read_text()) if status == 0 else unreadable
        self.notes.problems.update(map(tuple, known))
        if seconds > OPEN_SECONDS:
            wrong.append(f"opening took {seconds:.1f} s")
        for key in map(tuple, lost):
            self.notes.lost.add(key)
            self._outcome.counts["unsynced batches lost with ends of logs"] += 1
        wrong += self.notes.wrong
        self._outcome.wrong += [f"{self.root}: {what}: {each}" for each in wrong if each not in self._told]
        self._told.update(wrong)
        self._outcome.slowest_s = max(self._outcome.slowest_s, seconds)


def _stored(catalog: aggregator.Catalog) -> dict[Key, list[tuple[str, int, Any]]]:
    """Each stored batch: partition, record index and content of its events, in record index order."""
    found: dict[Key, list[tuple[str, int, Any]]] = defaultdict(list)
    if TOPIC in catalog.topics():
        topic = catalog.topic(TOPIC)
        for partition in topic.partitions:
            for event in topic.read(partition):
                place = (TOPIC, partition, event.timestamp // 100)
                found[place].append((partition, event.columns["record_index"], event.timestamp % 100))
    if SMALL in catalog.topics():
        topic = catalog.topic(SMALL)
        for partition in topic.partitions:
            for event in topic.read(partition):
                place = (SMALL, event.data.decode(), event.timestamp // 100)
                found[place].append((partition, event.columns["record_index"], event.timestamp % 100))
    if STREAMS in catalog.topics():
        topic = catalog.topic(STREAMS)
        for partition in topic.partitions:
            for event in topic.read(partition):
                if event.space.startswith("{from="):
                    name, sequence = event.data.decode().split()
                    found[STREAMS, name, int(sequence)].append((partition, event.columns["record_index"], 0))
    return found


def _broken(catalog: aggregator.Catalog, notes: Notes, cut: bool) -> list[str]:
    """All broken promises."""
    wrong = [
        f"a problem: {problem}"
        for problem in catalog.problems()
        if not (cut and any(part in problem.message for part in OF_A_CUT))
        and (problem.subject, problem.message) not in notes.problems
    ]
    if notes.made and TOPIC not in catalog.topics():
        return [*wrong, "the topic is gone"]
    stored = _stored(catalog)
    for key, events in stored.items():
        count = 1 if key[0] == STREAMS else len((batch if key[0] == TOPIC else small_batch)(key))
        if [number for _, _, number in events] != list(range(count)):
            wrong.append(f"{key} is not there as one batch: {events}")
        if key not in notes.tried:
            wrong.append(f"{key} was never appended")
        if key in notes.lost:
            wrong.append(f"{key} was lost, and is back")
    for key, (partition, first, last) in notes.taken.items():
        events = stored.get(key, [])
        if not events and key not in notes.lost and not (cut and key in notes.unsynced):
            wrong.append(f"{key} was taken at {partition} {first}, and is lost")
        if events and ([index for _, index, _ in events] != [*range(first, last + 1)] or events[0][0] != partition):
            wrong.append(f"{key} was taken at {partition} {first} to {last}, and is at {events}")
    for name in catalog.topics():
        topic = catalog.topic(name)
        for partition in topic.partitions:
            indexes = topic.read(partition).to_table()["record_index"].to_pylist()
            if indexes != sorted(set(indexes)):
                wrong.append(f"{name}/{partition}: record indexes twice or out of order")
            given = [last for key, (place, _, last) in notes.taken.items() if (key[0], place) == (name, partition)]
            if given and catalog._backend.state.topics[name].partitions[partition].next_index <= max(given):
                wrong.append(f"{name}/{partition}: record index {max(given)} would be given again")
        counts = [_counts(topic)]
        while len(counts) < 2 or counts[-1] != counts[-2]:  # a pipe was working
            counts.append(_counts(topic))
        if len(set(counts[-1])) > 1:
            wrong.append(f"{name}: {counts[-1]} events by time, and by record index")
    newest = sorted((key for key in notes.taken if key in stored and key[0] == TOPIC), key=lambda key: key[2])[-3:]
    for key in newest:
        receipt = catalog.topic(TOPIC).append(batch(key), key[1], producer="p", sequence=key[2])
        if (receipt.duplicate, receipt.first) != (True, notes.taken[key][1]):
            wrong.append(f"{key} was taken, and is not known: {receipt}")
    return wrong


def _counts(topic: aggregator.Topic) -> tuple[int, int]:
    return topic.scan().count(), sum(len(topic.read(partition).to_table()) for partition in topic.partitions)


# ── all of it ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Outcome:
    """The results so far."""

    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    slowest_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


def run(kills: int, seed: int, seconds: float, tell: Callable[[str], None]) -> Outcome:
    """Run this many kills, or as many as the seconds allow."""
    outcome, chance, told = Outcome(), random.Random(seed), 0
    pa.array([0]).to_pandas()  # late imports are done once, for all children
    parse_statement("SELECT FROM a = b")
    ends = time.perf_counter() + seconds
    with tempfile.TemporaryDirectory(prefix="kills-") as directory:
        for number in itertools.count():
            site = Site(Path(directory).resolve() / str(number), chance, outcome)
            for _ in range(RUNS_OF_A_CATALOG):
                site.kill()
                for wrong in outcome.wrong[told:]:
                    tell(wrong)
                if outcome.wrong[told:] and (kept := os.environ.get("KEEP_BROKEN")):
                    shutil.copytree(site.root.parent, Path(kept) / str(number), dirs_exist_ok=True)
                told = len(outcome.wrong)
                if outcome.counts["kills"] >= kills or time.perf_counter() > ends:
                    outcome.acknowledged += len(site.notes.taken)
                    return outcome
            outcome.acknowledged += len(site.notes.taken)
            with contextlib.suppress(OSError):
                shutil.rmtree(site.root.parent)
    raise AssertionError


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.perf_counter()
    outcome = run(arguments.kills, arguments.seed, arguments.seconds, lambda text: print(text, flush=True))
    print(f"{dict(outcome.counts.most_common())}")
    print(f"acknowledged batches: {outcome.acknowledged}; slowest opening: {outcome.slowest_s:.2f} s")
    print(f"broken promises: {len(outcome.wrong)}; {time.perf_counter() - started:.0f} s")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
