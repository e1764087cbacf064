"""Kills and takeovers of catalogs with a store: what was acknowledged is there once, an old writer changes nothing.

    python -m tests.soak.store --points 500 --processes 6

A real S3 endpoint runs in this process. The catalogs' processes are killed with SIGKILL at one of their requests to it,
before it is executed or before they get its answer: while opening, shipping, publishing, uploading, restoring or taking
over. In a takeover the writer is killed, paused with SIGSTOP or cut off from the store, and comes back once another has
written. There can be faults between them and the store (`--faults`). Then a new reader reads the store, and the result
is compared with each client's notes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import random
import secrets
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, fields
from itertools import takewhile
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Lock
from typing import Any

from aggregator.storage.files.layout import Layout
from aggregator.storage.files.store_note import read_note
from aggregator.storage.store.client import Store
from aggregator.storage.store.lease import read_lease
from benchmarks.s3_endpoint import KEY, REGION, SECRET, S3Endpoint, environment
from esformat import EsdbError
from tests.soak import store_workload
from tests.soak.store_owned import missing, ownerless
from tests.soak.store_workload import PARTITIONS, ROWS, payloads
from tests.support.breaking_proxy import BreakingProxy, Fate

LEASE_S = 2.0
PATIENCE_S = 180.0
TAKE_OVERS = ("kill", "stop", "cut", "clock")
MODES = ("same", "restore", *TAKE_OVERS)
"""same: the writer is killed and reopened in place. restore: a restore is killed and continues. Others: another process
takes over from a writer that is killed, stopped or cut off, or does so with a clock that is hours off.
"""
FAULTS = ("none", "far", "busy", "hanging", "breaking", "late")
"""far: the store is 50 ms away. busy: it refuses one request in ten with 503. hanging: one in thirty is answered too
late. breaking: connections end after some bytes of a request or an answer. late: lists show objects half a second late.
"""
PRELOADED = [
    "tests.soak.store_workload", "benchmarks.s3_endpoint", "aggregator.opening", "aggregator.engine.store_follower",
    "aggregator.engine.shipping.shipper", "esformat.read.collection", "esformat.read.row_range",
    "esformat.read.selection", "esformat.tools", "esformat.write.writer",
]  # fmt: skip
"""Imported once, in the process that the others are forked from: in each it would take most of its CPU time."""
HANG_S = 1.5
LATE_S = 0.5


@dataclass
class Outcome:
    """The results of all points so far."""

    points: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    looks: int = 0
    ended: int = 0
    gone: Counter[str] = field(default_factory=Counter)
    lost_window: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Add the results of other points."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Trigger:
    """Act at the n-th request to the store from now, before it is answered or before it is executed."""

    def __init__(self, endpoint: S3Endpoint) -> None:
        self._lock, self._left, self._act, self._undone = Lock(), -1, lambda: None, False
        self.fired = False
        self.fault: Callable[[], int | None] = lambda: None
        """Called for each other request; returns the status to refuse it with, or None."""
        endpoint.refuse = self._look

    def arm(self, requests: int, act: Callable[[], None], *, undone: bool) -> None:
        """undone: the request is refused as well."""
        with self._lock:
            self._left, self._act, self._undone, self.fired = requests, act, undone, False

    def _look(self, method: str, path: str, query: str) -> int | None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self.fired = True
                self._act()
                return 503 if self._undone else None
        return self.fault()


class Campaign:
    """Points of all kinds in sequence, each with its own store."""

    def __init__(self, folder: Path, endpoint: S3Endpoint, seed: int) -> None:
        self._folder, self._endpoint, self._random = folder, endpoint, random.Random(seed)
        self._trigger = Trigger(endpoint)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._bucket = f"soak-{secrets.token_hex(4)}"
        endpoint.client.create_bucket(Bucket=self._bucket)
        self._processes: list[BaseProcess] = []
        self.outcome = Outcome()

    @contextlib.contextmanager
    def _faults(self, kind: str) -> Iterator[str]:
        """Put faults between a point's processes and the store. Yields the address that they use."""
        endpoint, some = self._endpoint, self._random
        endpoint.latency_seconds = 0.05 if kind == "far" else 0.0
        endpoint.listed_late_seconds = LATE_S if kind == "late" else 0.0
        if kind == "busy":
            self._trigger.fault = lambda: 503 if some.random() < 0.1 else None
        elif kind == "hanging":
            self._trigger.fault = lambda: time.sleep(HANG_S if some.random() < 1 / 30 else 0)
        try:
            if kind != "breaking":
                yield endpoint.url
                return
            with BreakingProxy(endpoint.url, lambda number: self._broken()) as proxy:
                yield proxy.url
        finally:
            endpoint.latency_seconds = endpoint.listed_late_seconds = 0.0
            self._trigger.fault = lambda: None

    def _broken(self) -> Fate:
        some = self._random
        ends = {"up_bytes": some.randint(1, 40_000)} if some.random() < 0.5 else {"down_bytes": some.randint(1, 40_000)}
        return Fate(**ends) if some.random() < 0.5 else Fate()

    def point(self, number: int, mode: str, fault: str) -> None:
        """Run a point."""
        self._number = number
        site = self._folder / str(number)
        site.mkdir()
        self._address = f"s3://{self._bucket}/{number}"
        durability = self._random.choice(["store", "store", "fsync"])
        what = f"{number} {mode} {durability} {fault}"
        faulty = fault != "none"  # closing may give up on the store and leave the rest to the next opening
        try:
            with self._faults(fault) as self._url:
                if mode == "same":
                    self._same(site, durability)
                elif mode == "restore":
                    self._restore(site, durability, may_lack=faulty)
                else:
                    self._take_over(site, mode, durability)
        except TimeoutError as error:  # its effects can be checked anyway
            print(f"{what}: {error}; ended without faults", flush=True)
            self.outcome.ended += 1
        finally:
            self._end_all()
        try:
            self._check(site, self._address, durability, what, may_lack=mode in TAKE_OVERS or faulty)
            self._settle(site, what)
            end = f"{what} at rest"
            self.outcome.lost_window += self._check(site, self._address, durability, end, may_lack=mode in TAKE_OVERS)
        except (TimeoutError, EsdbError) as error:
            self.outcome.wrong.append(f"{what}: {error}, without faults")
        finally:
            self._end_all()
        self.outcome.points[mode] += 1
        self.outcome.faults[fault] += 1
        self.outcome.acknowledged += sum(_text(notes).count(" acknowledged ") for notes in site.glob("*.notes"))
        if not any(each.startswith(f"{number} ") for each in self.outcome.wrong):
            shutil.rmtree(site)

    # ------------------------------------------------------------ processes

    def _end_all(self) -> None:
        for process in self._processes:
            process.kill()  # also one that is stopped, which multiprocessing would wait for at the end
            process.join()
        self._processes.clear()

    def _start(self, work: Callable[..., None], *arguments: Any, **options: Any) -> BaseProcess:
        process = self._context.Process(target=work, args=arguments, kwargs=options, daemon=True)
        process.start()
        self._processes.append(process)
        return process

    def _writer(
        self, site: Path, name: str, durability: str, batches: int, *, url: str = "", **more: Any
    ) -> BaseProcess:
        work = store_workload.take_over if more.pop("standby", False) else store_workload.write
        return self._start(
            work, str(site / name.partition("+")[0]), self._address, str(site / f"{name}.notes"), name, batches,
            durability, environment(url or self._url), **more,
        )  # fmt: skip

    def _kill_at(self, process: BaseProcess, requests: int) -> None:
        assert process.pid is not None
        self._trigger.arm(requests, process.kill, undone=self._random.random() < 0.5)

    # ------------------------------------------------------------ points

    def _same(self, site: Path, durability: str) -> None:
        """Kill the writer of one directory three times, then let it finish."""
        for number in range(3):
            process = self._writer(site, f"a+{number}", durability, 30)
            self._kill_at(process, self._random.randint(1, 120))
            _join(process)
        _join(self._writer(site, "a+end", durability, 5))

    def _restore(self, site: Path, durability: str, *, may_lack: bool) -> None:
        _join(self._writer(site, "a", durability, 20))
        for _ in range(2):
            process = self._start(store_workload.restore, self._address, str(site / "back"), environment(self._url))
            self._kill_at(process, self._random.randint(1, 25))
            _join(process)
        if not (site / "back").exists() or (site / "back" / "store.json").exists():
            _join(self._start(store_workload.restore, self._address, str(site / "back"), environment(self._url)))
        self._check(site, str(site / "back"), durability, f"{self._number} restored", may_lack=may_lack)

    def _take_over(self, site: Path, mode: str, durability: str) -> None:
        fate = [Fate()]
        with BreakingProxy(self._url, lambda number: fate[0]) as proxy:
            old = self._writer(site, "a", durability, -1, url=proxy.url)
            off_s = self._random.choice([-7200, 7200]) if mode == "clock" else 0
            _until(lambda: "acknowledged" in _text(site / "a.notes"), "the first append")
            new = self._writer(site, "b", durability, 12, standby=True, off_s=off_s)
            _until(lambda: "following" in _text(site / "b.notes"), "the standby")
            self._look(site, durability)
            time.sleep(self._random.random() * 2)
            began = time.time()
            assert old.pid is not None
            if mode in ("kill", "clock"):
                self._kill_at(old, self._random.randint(1, 60))
                _join(old)
                began = time.time()
            elif mode == "stop":
                _signal(old, signal.SIGSTOP)
            else:
                fate[0] = Fate(up_bytes=0, down_bytes=0)
                for each in list(proxy._open):
                    each.close()
            if self._random.random() < 0.5:
                self._kill_new(site, new, durability, off_s)
            _until(lambda: "acknowledged" in _text(site / "b.notes") or "acknowledged" in _text(site / "b+2.notes"),
                   "an append of the new writer")  # fmt: skip
            self.outcome.took_s.append(time.time() - began)
            self._look(site, durability)
            if mode == "stop":
                _signal(old, signal.SIGCONT)
            fate[0] = Fate()
            if mode in ("stop", "cut"):
                _until(lambda: not old.is_alive(), "the old writer's end")
                if "fenced" not in _text(site / "a.notes"):
                    self.outcome.wrong.append(f"{self._number} {mode}: the old writer was not told")
            _until(lambda: "done" in _text(site / "b.notes") + _text(site / "b+2.notes"), "the new writer's end")

    def _kill_new(self, site: Path, new: BaseProcess, durability: str, off_s: float) -> None:
        """Kill the standby at one of its requests while taking over or writing, and restart it in its directory."""
        self._kill_at(new, self._random.randint(5, 150))
        _until(lambda: not new.is_alive() or "done" in _text(site / "b.notes"), "the kill of the standby")
        if "done" not in _text(site / "b.notes"):
            owns = (
                "took over" in _text(site / "b.notes")
                and not json.loads((site / "b" / "store.json").read_text())["following"]
            )
            self._writer(site, "b+2", durability, 12, standby=not owns, off_s=off_s)

    # ------------------------------------------------------------ the contents

    def _look(self, site: Path, durability: str) -> None:
        """Read the store during writes: everything acknowledged before is there once, in its place."""
        acknowledged = [line for line in _lines(site) if line.split()[2:3] != ["tried"]]
        found = self._read(site, self._address)
        if found is None:  # there were too many faults
            return
        tried = [line for line in _lines(site) if line.split()[2:3] == ["tried"]]
        notes: dict[str, list[str]] = {}
        for line in acknowledged + tried:
            name, _, rest = line.partition(" ")
            notes.setdefault(name, []).append(rest)
        wrong, _ = broken(found["rows"], notes, may_lose=durability != "store")
        self.outcome.wrong += [f"{self._number} read meanwhile: {each}" for each in wrong]
        if wrong:
            (site / "answer").rename(site / f"wrong-{time.time():.3f}")
        self.outcome.looks += 1

    def _settle(self, site: Path, what: str) -> None:
        """Let the current owner finish its work; then every object in the store must have an owner."""
        store, done = Store(self._address, settings=settings(self._endpoint.url)), site / "settled"
        self._url = self._endpoint.url
        root, following = owner(site, store)
        if following:  # it was about to take over
            _join(self._start(
                store_workload.take_over, str(root), self._address, str(site / "end.notes"), "end", 0, "store",
                environment(self._url),
            ))  # fmt: skip
        _join(self._start(store_workload.settle, str(root), self._address, str(done), environment(self._url)))
        if not done.exists():
            self.outcome.wrong.append(f"{what}: it does not come to rest")
            return
        found = json.loads(done.read_text())
        self.outcome.gone.update(name.partition("/")[0] for name in found["gone"])
        self.outcome.wrong += [f"{what}: {each}" for each in found["problems"]]
        if found["leaving"]:
            self.outcome.wrong.append(f"{what}: {found['leaving']} segments do not leave")
        self.outcome.wrong += [f"{what}: {name} is nobody's" for name in ownerless(store)]
        self.outcome.wrong += [f"{what}: {name} is missing" for name in missing(store)]

    def _read(self, site: Path, place: str) -> Any:
        answer = site / "answer"
        answer.unlink(missing_ok=True)
        _join(self._start(store_workload.read, place, str(answer), environment(self._endpoint.url)))
        return json.loads(answer.read_text()) if answer.exists() else None

    def _check(self, site: Path, place: str, durability: str, what: str, *, may_lack: bool) -> list[float]:
        """Add what `broken` finds. may_lack: events acknowledged with "fsync" that did not arrive in time."""
        found = self._read(site, place)
        if found is None:
            self.outcome.wrong.append(f"{what}: it cannot be read")
            return []
        notes = {path.stem: _text(path).split("\n") for path in sorted(site.glob("*.notes"))}
        wrong, lost = broken(found["rows"], notes, may_lose=may_lack and durability != "store")
        self.outcome.wrong += [f"{what}: {each}" for each in wrong + found["problems"]]
        return lost


def broken(rows: list[list[Any]], notes: dict[str, list[str]], *, may_lose: bool) -> tuple[list[str], list[float]]:
    """Differences from the clients' notes; and for each batch that may be missing and is, the time from its
    acknowledgement until the next writer opened the catalog.
    """
    wrong: list[str] = []
    places: dict[str, list[tuple[str, int]]] = {}
    for partition, index, payload, _ in rows:
        places.setdefault(payload, []).append((partition, index))
    taken = Counter((partition, index) for partition, index, *_ in rows)
    wrong += [f"record index {place} is given {times} times" for place, times in taken.items() if times > 1]
    lost: list[float] = []
    known: set[str] = set()
    given: dict[tuple[str, int], str] = {}
    opened = max(
        (float(line.split()[0]) for lines in notes.values() for line in lines if "took over" in line), default=0.0
    )
    for client, lines in notes.items():
        acknowledged = {}
        for line in lines:
            at, kind, *rest = line.split() or ["0", ""]
            if kind == "tried":
                known.update(payloads(client, int(rest[0])))
            elif kind == "acknowledged":
                acknowledged[int(rest[0])] = (float(at), rest[1], int(rest[2]))
            elif kind == "erased" and any(space == rest[0] for *_, space in rows):
                wrong.append(f"{rest[0]} is back")
        for number, (at, partition, first) in acknowledged.items():
            found = [places.get(payload, []) for payload in payloads(client, number)]
            wanted = [[(partition, first + row)] for row in range(ROWS)]
            for row in range(ROWS):
                other = given.setdefault((partition, first + row), f"{client}-{number}")
                if other != f"{client}-{number}":
                    wrong.append(
                        f"record index {first + row} of {partition} was given to {other} and {client}-{number}"
                    )
            if found != wanted:
                if may_lose and not any(found):
                    lost.append(opened - at)
                else:
                    wrong.append(f"batch {client}-{number}: expected {wanted}, found {found}")
    wrong += [f"{payload} is there {len(at)} times" for payload, at in places.items() if len(at) > 1]
    wrong += [f"{each} was never appended" for each in places if each not in known and not each.startswith("erased-")]
    assert set(PARTITIONS) >= {partition for partition, *_ in rows}
    return wrong, lost


def settings(url: str) -> dict[str, str]:
    """The settings of a `Store` at an address."""
    return {"endpoint": url, "access_key_id": KEY, "secret_access_key": SECRET, "region": REGION}


def owner(site: Path, store: Store) -> tuple[Path, bool]:
    """The directory of the process that has or requested the lease, and whether it still has to become the writer's."""
    seen = read_lease(store)
    assert seen is not None
    notes = {name: read_note(Layout(site / name)) for name in ("a", "b") if (site / name).is_dir()}
    for name, note in notes.items():
        if note is not None and seen.terms.run in note.runs:
            return site / name, note.following
    raise AssertionError(f"nobody has the lease of {seen.terms}")


def _signal(process: BaseProcess, number: int) -> None:
    """Send a signal to a process that may have ended: faults can take its lease earlier."""
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def _lines(site: Path) -> list[str]:
    """The complete lines that a point's clients noted, each preceded by its client."""
    return [
        f"{path.stem} {line}" for path in sorted(site.glob("*.notes")) for line in _text(path).split("\n")[:-1] if line
    ]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _join(process: BaseProcess) -> None:
    process.join(PATIENCE_S)
    if process.is_alive():
        process.kill()
        raise TimeoutError("a process did not end")


def _until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.02)


def run(points: Iterable[int], seed: int, modes: Sequence[str], faults: Sequence[str], end: float) -> Outcome:
    """Run the points with these numbers in sequence, cycling through kinds and faults.

    end: start none after this time.
    """
    folder = Path(tempfile.mkdtemp(prefix="soak-store-"))
    with S3Endpoint() as endpoint:
        campaign = Campaign(folder, endpoint, seed)
        for number in takewhile(lambda _: time.time() < end, points):
            known = len(campaign.outcome.wrong)
            campaign.point(number, modes[number % len(modes)], faults[number // len(modes) % len(faults)])
            for each in campaign.outcome.wrong[known:]:
                print(f"WRONG {each} ({folder})", flush=True)
    if not campaign.outcome.wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return campaign.outcome


def run_all(points: int, processes: int, seed: int, modes: Sequence[str], faults: Sequence[str], end: float) -> Outcome:
    """Run this many points in this many parallel processes, each with its own endpoint."""
    share = 2 * len(modes)
    parts = [range(first, min(first + share, points)) for first in range(0, points, share)]
    outcome = Outcome()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(run, part, seed + part.start, modes, faults, end) for part in parts]
        for done in as_completed(running):
            outcome.add(done.result())
            print(f"{outcome.points.total()} points, {len(outcome.wrong)} wrong", flush=True)
    return outcome


def main() -> None:
    """Run a campaign and print its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--processes", type=int, default=1, help="so many points beside each other; most of each waits")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no point after these")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--faults", default="none", help=f"between clients and store: {', '.join(FAULTS)}")
    options = parser.parse_args()
    began = time.monotonic()
    kinds = options.modes.split(","), options.faults.split(",")
    end = time.time() + 60 * options.minutes
    outcome = run_all(options.points, options.processes, options.seed, *kinds, end)
    took = sorted(outcome.took_s)
    print(f"seed {options.seed}: {dict(outcome.points)}, {dict(outcome.faults)} in {time.monotonic() - began:.0f} s, "
          f"{outcome.acknowledged:,} batches acknowledged, {outcome.looks} reads meanwhile")  # fmt: skip
    if took:
        print(f"took over after {took[len(took) // 2]:.1f} s (median), at most {took[-1]:.1f} s; lease {LEASE_S:g} s")
    print(f"{outcome.ended} ended without faults; taken by gc at the end: {dict(outcome.gone)}")
    if outcome.lost_window:
        print(f'not shipped when another took over, with durability="fsync": {len(outcome.lost_window)} batches, '
              f"acknowledged at most {max(outcome.lost_window):.1f} s before")  # fmt: skip
    for each in outcome.wrong:
        print(f"WRONG {each}")
    raise SystemExit(bool(outcome.wrong))


if __name__ == "__main__":
    main()
