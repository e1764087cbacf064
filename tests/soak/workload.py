"""What the runs with faults do to a catalog and note, and how a catalog is compared with the notes.

Two threads append small batches, each batch twice, the second time as a retry. Meanwhile segments are sealed, merged
and removed, and spaces erased. A note is written before and after each step, so that the promises are known.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import aggregator
from aggregator.errors import LogFailedError, ManifestFailedError, OverloadedError
from esformat import EsdbError

KEPT, AGED, ERASED = "kept", "aged", "erased"
DAY_US = 86_400_000_000
TODAY_US = int(time.time() * 1e6) // DAY_US * DAY_US
"""The start of a campaign: its batches stay the same when midnight passes."""
PARTITIONS = ("a", "b")
BATCHES = 6  # per thread and round
OLD_BATCHES = 3  # in the topic with retention, how many of them are old enough to expire
LIMITS = {"log_bytes": "64 KiB"}  # files of 8 KiB: each run creates and deletes several
PATIENCE = 40  # attempts while the disk is full
PATIENCE_S = 60.0  # and at least this long for a batch: failed sealing is retried after some seconds
OPEN_SECONDS = 2.0

Key = tuple[str, str, int]  # topic, partition, sequence


def batch(key: Key) -> pa.Table:
    """The events of a batch with distinct payloads, old or fresh depending on its sequence."""
    topic, partition, sequence = key
    count = 1 + sequence * 7 % 20
    names = [json.dumps([topic, partition, sequence, number]).encode() for number in range(count)]
    time_us = TODAY_US - (9 * DAY_US if is_old(key) else 0)
    spaces = [own_space(key) if topic == ERASED else f"space-{(sequence + number) % 5}" for number in range(count)]
    return pa.table({"space": spaces, "timestamp": [time_us + number for number in range(count)], "data": names})


def own_space(key: Key) -> str:
    """The space of a batch of the topic with erasures; those erased last share one."""
    run, place = divmod(key[2], BATCHES)
    return f"{key[1]}-{run}-{'rest' if place % OLD_BATCHES == OLD_BATCHES - 1 else place}"


def is_old(key: Key) -> bool:
    """Whether retention may remove the batch."""
    return key[0] == AGED and key[2] % BATCHES < OLD_BATCHES


# ── the run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Workload:
    """One run over a catalog. notes: a file that gets a line for each step. first: the first sequence.

    sealing: where segments are written; see `aggregator.open`.
    scarce: makes a resource scarce before the catalog is opened, or after; returns a function that ends that.
    """

    root: Path
    notes: Path
    first: int
    sealing: str = "thread"
    scarce: Callable[[], Callable[[], None]] | None = None
    scarce_when_open: bool = False

    def __call__(self) -> None:
        self._notes = os.open(self.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        plenty = self.scarce() if self.scarce and not self.scarce_when_open else None
        catalog = self._open()
        if catalog is None and plenty is not None:
            plenty()
            catalog = self._open()
        if catalog is None:
            return
        if self.scarce and self.scarce_when_open:
            plenty = self.scarce()
        try:
            self._round(catalog, range(self.first, self.first + OLD_BATCHES))
            if plenty is not None:
                plenty()
            self._round(catalog, range(self.first + OLD_BATCHES, self.first + BATCHES))
            for partition in PARTITIONS:  # then nothing is left that contains its record indexes
                last = range(self.first + OLD_BATCHES - 1, self.first + BATCHES, OLD_BATCHES)
                self._erase(catalog, *((ERASED, partition, sequence) for sequence in last))
            self._try("merge", catalog.compact)
            self._try("retain", catalog.retain)
            for topic in catalog.topics():  # reads work whatever has failed
                self._left(catalog, topic)
        finally:
            self._try("close", catalog.close)
        self._note("end")

    def _note(self, what: str, *facts: Any) -> None:
        os.write(self._notes, (json.dumps([what, *facts]) + "\n").encode())

    def _open(self) -> aggregator.Catalog | None:
        for _ in range(PATIENCE):
            catalog = self._try("open", lambda: aggregator.open(self.root, limits=LIMITS, sealing=self.sealing))
            if catalog is not None:
                self._make_topic(catalog, KEPT, None)
                self._make_topic(catalog, AGED, {"age": "5d"})
                self._make_topic(catalog, ERASED, None)
                return catalog
        if self.scarce is None:
            self._note("wrong", "it never opened, though the fault was over")
        return None

    def _make_topic(self, catalog: aggregator.Catalog, name: str, retention: dict[str, Any] | None) -> None:
        for _ in range(PATIENCE):
            if name in catalog.topics():
                self._note("made", name, retention is not None)
                return
            self._try("create", lambda: catalog.create_topic(name, roll={"rows": 60}, retention=retention))

    def _try(self, what: str, step: Callable[[], Any]) -> Any:
        """Run a step that the disk may fail. Anything but an error that says so ends the run."""
        try:
            return step()
        except (EsdbError, OSError, MemoryError) as error:
            self._note("failed", what, type(error).__name__, str(error))
            time.sleep(0.005)
        except RuntimeError as error:
            if self.scarce is None or "thread" not in str(error):  # which needs memory, too
                raise
            self._note("failed", what, type(error).__name__, str(error))
        return None

    def _round(self, catalog: aggregator.Catalog, sequences: range) -> None:
        errors: list[BaseException] = []

        def work(partition: str) -> None:
            try:
                for sequence in sequences:
                    for topic in (KEPT, AGED, ERASED):
                        self._append(catalog, (topic, partition, sequence))
            except BaseException as error:  # noqa: BLE001  raised below
                errors.append(error)

        other = threading.Thread(target=work, args=(PARTITIONS[1],))
        with contextlib.suppress(RuntimeError):  # with scarce memory there may be no thread
            other.start()
        work(PARTITIONS[0])
        if other.ident is not None:
            other.join()
        if errors:
            raise errors[0]
        for partition in PARTITIONS:
            self._erase(catalog, (ERASED, partition, sequences[0]))
        self._try("seal", catalog.seal)
        for partition in PARTITIONS:
            self._erase(catalog, (ERASED, partition, sequences[1]))

    def _erase(self, catalog: aggregator.Catalog, *keys: Key) -> None:
        """Erase the space of these batches."""
        for key in keys:
            self._note("erasing", key)
        if self._try("erase", lambda: catalog.topic(ERASED).erase(own_space(keys[0]))) is not None:
            for key in keys:
                self._note("erased", key)

    def _append(self, catalog: aggregator.Catalog, key: Key) -> None:
        """Append a batch until it is accepted, and once more."""
        topic, partition, sequence = key
        taken = tries = 0
        began = time.monotonic()
        refusal: Exception | None = None
        while tries < PATIENCE or time.monotonic() - began < PATIENCE_S:
            tries += 1
            self._note("try", key)
            try:
                receipt = catalog.topic(topic).append(batch(key), partition, producer="p", sequence=sequence)
            except (OverloadedError, ManifestFailedError, MemoryError) as error:
                self._note("refused", key, type(error).__name__, str(error))
                refusal = error
                time.sleep(max(0.01, getattr(error, "retry_after_s", 0.0)))
                continue
            except LogFailedError as error:
                kept_out = "the batch was not stored" in str(error)
                self._note("refused" if kept_out else "unsure", key, type(error).__name__, str(error))
                if not kept_out:
                    return
                refusal = error
                time.sleep(0.005)
                continue
            except OSError as error:
                self._note("refused", key, type(error).__name__, str(error))
                refusal = error
                time.sleep(0.005)
                continue
            self._note("taken", key, receipt.first, receipt.last)
            if receipt.duplicate != bool(taken):
                self._note("wrong", key, f"duplicate is {receipt.duplicate} at try {taken}")
            taken += 1
            if taken == 2:
                if refusal is not None:
                    self._note("recovered", key, time.monotonic() - began)
                return
        if self.scarce is None:
            self._note("wrong", key, f"it was never taken, though the fault was over: {tries} tries, then {refusal}")

    def _left(self, catalog: aggregator.Catalog, name: str) -> None:
        topic = catalog.topic(name)
        stored = stored_batches(topic)
        self._note("left", name, sorted({(key[1], key[2]) for key in stored}))


def stored_batches(topic: aggregator.Topic) -> dict[Key, list[tuple[int, int]]]:
    """The batches of a topic: the record index and number of each event."""
    found: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for partition in topic.partitions:
        table = topic.read(partition).to_table()
        for index, data in zip(table["record_index"].to_pylist(), table["data"].to_pylist(), strict=True):
            name, stored_in, sequence, number = json.loads(data)
            if (name, stored_in) != (topic.name, partition):
                raise AssertionError(f"{name}/{stored_in} lies in {topic.name}/{partition}")
            found[name, stored_in, sequence].append((index, number))
    return dict(found)


def few_descriptors(spare: int) -> Callable[[], Callable[[], None]]:
    """Leave a process this many file descriptors."""

    def limit() -> Callable[[], None]:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, before[1]))
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, before)

    return limit


def little_memory(spare: int) -> Callable[[], Callable[[], None]]:
    """Leave a process this many bytes of address space."""

    def limit() -> Callable[[], None]:
        before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + spare, before[1]))
        return lambda: resource.setrlimit(resource.RLIMIT_AS, before)

    return limit


# ── the promises ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Promises:
    """What the notes promise for each batch."""

    taken: dict[Key, tuple[int, int]] = field(default_factory=dict)
    tried: set[Key] = field(default_factory=set)
    may_be_there: set[Key] = field(default_factory=set)  # attempted, with no answer or an uncertain one
    gone: set[Key] = field(default_factory=set)  # removed by retention, as a read has shown
    erasing: set[Key] = field(default_factory=set)
    erased: set[Key] = field(default_factory=set)
    made: dict[str, bool] = field(default_factory=dict)  # topics, and whether they have retention
    failed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    ended: int = 0
    slowest_recovery_s: float = 0.0  # from a batch's first refusal until it was accepted
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, notes: Path) -> Promises:
        found = cls()
        open_tries: set[Key] = set()
        lines = notes.read_bytes().split(b"\n") if notes.exists() else []
        for line in lines[:-1]:
            what, *facts = json.loads(line)
            key: Any = tuple(facts[0]) if facts and isinstance(facts[0], list) else None
            if what == "try":
                found.tried.add(key)
                open_tries.add(key)
            elif what == "taken":
                place = (facts[1], facts[2])
                if found.taken.setdefault(key, place) != place:
                    found.wrong.append(f"{key} was taken at {found.taken[key]} and at {place}")
                open_tries.discard(key)
            elif what == "refused":
                open_tries.discard(key)
                found.failed[f"append: {facts[1]}"] += 1
            elif what == "unsure":
                found.failed[f"append: {facts[1]}, unsure"] += 1
            elif what == "failed":
                found.failed[f"{facts[0]}: {facts[1]}"] += 1
            elif what == "left":
                left = {(facts[0], partition, sequence) for partition, sequence in facts[1]}
                found.gone |= {key for key in found.taken if key[0] == facts[0] and key not in left}
            elif what in ("erasing", "erased"):
                (found.erasing if what == "erasing" else found.erased).add(key)
            elif what == "recovered":
                found.slowest_recovery_s = max(found.slowest_recovery_s, facts[1])
            elif what == "made":
                found.made[facts[0]] = facts[1]
            elif what == "wrong":
                found.wrong.append(str(facts))
            else:
                found.ended += 1
        found.may_be_there = open_tries
        return found


def broken_when_rebuilt(root: Path, promises: Promises) -> list[str]:
    """Lose a catalog's manifest and rebuild it. Returns broken promises. Events that retention removed may return."""
    for path in root.glob("manifest.sqlite*"):
        path.unlink()
    try:
        report = aggregator.rebuild_manifest(root)
    except aggregator.CatalogNotFoundError:  # it had just been created
        return [f"{name} was made, and is lost" for name in promises.made]
    wrong, _ = broken_promises(root, promises, removed_may_be_back=True)
    if promises.made:
        wrong += report.missing
    return [f"after a rebuild: {each}" for each in wrong]


def broken_promises(root: Path, promises: Promises, *, removed_may_be_back: bool = False) -> tuple[list[str], float]:
    """Reopen a catalog. Returns broken promises and the seconds that opening took."""
    pa.array([0])  # with its first list pyarrow imports pandas, which takes longer than opening
    began = time.perf_counter()
    with aggregator.open(root, limits=LIMITS) as catalog:
        seconds = time.perf_counter() - began
        wrong = [*_broken_of_topics(catalog, promises), *_broken(catalog, promises, removed_may_be_back)]
        if seconds >= OPEN_SECONDS:
            wrong.append(f"opening took {seconds:.1f} s")
    return wrong + promises.wrong, seconds


def _broken_of_topics(catalog: aggregator.Catalog, promises: Promises) -> Iterator[str]:
    for name, retained in promises.made.items():
        if name not in catalog.topics():
            yield f"topic {name} was made, and is lost"
        elif retained != (catalog.topic(name).retention.age_us is not None):
            yield f"topic {name} has another retention: {catalog.topic(name).retention}"
    partitions = {
        (topic.info.name, place.name): place.next_index for topic, place in catalog._backend.state.partitions.values()
    }
    for (topic, partition, _), (_, last) in promises.taken.items():
        if partitions.get((topic, partition), 0) <= last:
            yield f"{topic}/{partition}: record index {last} would be given again"


def _broken(catalog: aggregator.Catalog, promises: Promises, removed_may_be_back: bool) -> Iterator[str]:
    yield from (f"a problem: {problem}" for problem in catalog.verify())
    stored: dict[Key, list[tuple[int, int]]] = {}
    for name in catalog.topics():
        topic = catalog.topic(name)
        mine, counted = stored_batches(topic), topic.scan().count()
        while mine != (again := stored_batches(topic)):  # retention was working
            mine, counted = again, topic.scan().count()
        stored |= mine
        count = sum(map(len, mine.values()))
        if counted != count:
            yield f"{name}: {count} events by record index, {counted} by time"
        for partition in topic.partitions:
            indexes = [index for key, events in mine.items() if key[1] == partition for index, _ in events]
            if indexes != sorted(set(indexes)) or (name == KEPT and indexes != list(range(len(indexes)))):
                yield f"{name}/{partition}: record indexes {indexes}"
    for key, events in stored.items():
        if [number for _, number in events] != list(range(len(batch(key)))):
            yield f"{key} is not there as one batch: {events}"
        if key not in promises.taken and key not in promises.may_be_there:
            yield f"{key} was refused, and is there"
    for key, (first, last) in promises.taken.items():
        if key not in stored and not is_old(key) and key not in promises.erasing:
            yield f"{key} was taken, and is lost"
        if key in stored and [index for index, _ in stored[key]] != list(range(first, last + 1)):
            yield f"{key} was taken at {first} to {last}, and is at {stored[key]}"
        if key in promises.gone and key in stored and not removed_may_be_back:
            yield f"{key} was removed, and is back"
        if key in promises.erased and key in stored:
            yield f"{key} was erased, and is back"
    forgotten = promises.erasing | set(filter(is_old, promises.taken)) if removed_may_be_back else set()
    for key in [key for key in promises.taken if key not in forgotten][-3:]:
        receipt = _append_again(catalog, key)
        if (receipt.duplicate, receipt.first) != (True, promises.taken[key][0]):
            yield f"{key} was taken, and is not known: {receipt}"


def _append_again(catalog: aggregator.Catalog, key: Key) -> aggregator.Receipt:
    """Append a batch again, and wait if the log is full of what crashes left until it is sealed."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return catalog.topic(key[0]).append(batch(key), key[1], producer="p", sequence=key[2])
        except OverloadedError as error:
            if time.monotonic() > end:
                raise AssertionError("the log was full, and stayed so") from error
            time.sleep(error.retry_after_s)
