"""Faults at system calls of a catalog's writer: what was acknowledged is there once, what was refused is not.

    python -m tests.soak.faults --points 1000

Each point is a run of `workload` with a fault at one of the calls that change files, wherever it occurs: appending,
sealing, merging, removing, erasing, or opening after the previous fault. Then the catalog is reopened and compared with
the notes; after a kill, so is a copy whose manifest was lost and rebuilt.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import pkgutil
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from esformat.parts import hide_pandas
from tests.soak import tracing, workload
from tests.soak.tracing import Fault, Run
from tests.soak.workload import (
    BATCHES,
    Promises,
    Workload,
    broken_promises,
    broken_when_rebuilt,
    few_descriptors,
    little_memory,
)

POINTS_OF_A_CATALOG = 6
FULL_FOR = (1, 3, 30)  # calls that a full disk fails before there is room again
GOLDEN = 0.6180339887
"""Steps of this fraction of a run cover it evenly, wherever they end."""
SYNCS = frozenset(tracing.SYNCS.values())
NO_THREAD_MEMORY = 127  # glibc's exit status if it has no memory for a thread's own data
GROWING = frozenset(tracing.WRITES.values()) | {"open", "mkdir", "fallocate", "link"}
SEALING = ("thread", "process")
ROOMS = {
    "aggregator": ("base", "engine", "storage", "read", "streams", "lql"),
    "esformat": ("base", "core", "format", "io", "read", "tools", "write"),
}
MODES = ("kill", "torn", "sync", "broken", "full", "descriptors", "memory")
"""broken: calls of any kind that change files fail with EIO, also while sealing and opening."""


@dataclass
class Outcome:
    """The results of all points so far."""

    points: Counter[str] = field(default_factory=Counter)
    aborted: int = 0  # processes that C or C++ libraries aborted for lack of memory
    missed: int = 0  # runs that ended before their fault: not counted as points
    helpers: int = 0  # faults that killed only the process that writes segments
    acknowledged: int = 0
    rebuilt: int = 0  # rebuilt manifests
    slowest_open_s: float = 0.0
    slowest_recovery_s: float = 0.0
    hit: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Site:
    """A catalog that goes through several faults, and its notes."""

    def __init__(self, directory: Path, sealing: str) -> None:
        directory.mkdir()
        self.sealing = sealing
        self.root, self.notes = directory / "data", directory / "notes"
        self.points = 0
        self._rounds = 0
        self._told: set[str] = set()

    def workload(self) -> Workload:
        """The next run."""
        self._rounds += 1
        return Workload(self.root, self.notes, (self._rounds - 1) * BATCHES, self.sealing)

    def check(self, outcome: Outcome, what: str, *, rebuild: bool = False) -> None:
        """Open the catalog in a separate process and compare. rebuild: also a copy that has lost its manifest."""
        copy = self.root.with_name("copy") if rebuild and self.root.exists() else None
        if copy is not None:
            shutil.copytree(self.root, copy)
            outcome.rebuilt += 1
        answer = self.notes.with_name("answer")
        answer.unlink(missing_ok=True)
        promises = Promises.read(self.notes)

        def compare() -> None:
            wrong, seconds = broken_promises(self.root, promises)
            if copy is not None:
                wrong += broken_when_rebuilt(copy, promises)
            answer.write_text(json.dumps((wrong, seconds)))

        _, status = os.waitpid(tracing.fork(compare), 0)
        wrong, seconds = json.loads(answer.read_text()) if status == 0 else (["the catalog could not be read"], 0.0)
        outcome.slowest_open_s = max(outcome.slowest_open_s, seconds)
        outcome.slowest_recovery_s = max(outcome.slowest_recovery_s, promises.slowest_recovery_s)
        outcome.wrong += [f"{what}: {each}" for each in wrong if each not in self._told]
        self._told.update(wrong)  # this run's notes stay with the catalog
        if copy is not None:
            shutil.rmtree(copy)


def _kind(path: str) -> str:
    """The kind of a file, for the tally."""
    name = path.rpartition("/")[2]
    return "directory" if "." not in name and name != "acknowledged" else name.rpartition(".")[2]


def _after_failed_sync(run: Run) -> list[str]:
    """A log file whose sync failed must not be synced again unless it was created or rewritten in between."""
    wrong = []
    for place in run.hit:
        name, path = run.calls[place]
        if path.endswith(".log") and (name, path) in run.calls[place + 1 :]:
            again = [call for call in run.calls[place + 1 :] if call[1] == path]
            if name == "fdatasync" or not any(call[0] in ("open", "pwrite") for call in again):
                wrong.append(f"{path} was synced again after it had failed")
    return wrong


class Campaign:
    """Points of all kinds, one after the other."""

    def __init__(self, folder: Path, seed: int, sealing: Sequence[str]) -> None:
        self._folder, self._random, self._sealing = folder, random.Random(seed), sealing
        self._sites = 0
        self.outcome = Outcome()
        hide_pandas()
        workload.batch((workload.KEPT, workload.PARTITIONS[0], 0))  # Arrow's first imports, once for all children
        self._site = self._new_site()
        run = tracing.run(self._site.workload(), self._site.root, None)
        if not run.ended_well:
            raise SystemExit("the run without faults did not end well")
        self._site.check(self.outcome, "without faults")
        self.calls = Counter(name for name, _ in run.calls)

    def _new_site(self) -> Site:
        self._sites += 1
        return Site(self._folder / str(self._sites), self._sealing[(self._sites - 1) % len(self._sealing)])

    def point(self, mode: str, share: float) -> None:
        """Run a point. share: how far into the run, from 0 to 1."""
        if self._site.points >= POINTS_OF_A_CATALOG:
            self._site.check(self.outcome, "at the end")
            acknowledged = Promises.read(self._site.notes)
            self.outcome.acknowledged += len(acknowledged.taken)
            self.outcome.failed.update(acknowledged.failed)
            shutil.rmtree(self._site.root.parent)
            self._site = self._new_site()
        self._site.points += 1
        if mode in ("descriptors", "memory"):
            self._scarce(mode, share)
        else:
            self._fault(mode, share)

    def _fault(self, mode: str, share: float) -> None:
        if mode == "sync":
            calls: frozenset[str] | None = SYNCS
            fault = Fault(self._place(SYNCS, share), calls=calls, error=errno.EIO, kill_after=self._kill_after())
        elif mode == "full":
            count = self._random.choice(FULL_FOR)
            torn = self._random.random() < 0.5
            fault = Fault(self._place(GROWING, share), count, GROWING, errno.ENOSPC, torn, self._kill_after())
        elif mode == "broken":
            count, torn = self._random.choice(FULL_FOR), self._random.random() < 0.5
            fault = Fault(self._place(None, share), count, None, errno.EIO, torn, self._kill_after())
        else:
            fault = Fault(self._place(None, share), torn=mode == "torn", maker=self._random.random() < 0.5)
        run = self._run(mode, fault)
        if mode in ("kill", "torn") and run.killed and self._random.random() < 0.3:  # and once more during recovery
            self._run(mode, Fault(self._random.randint(1, 40), torn=mode == "torn"))
        what = f"{mode}, {fault}, at {[run.calls[place] for place in run.hit[:3]]}"
        self._site.check(self.outcome, what, rebuild=fault.error is None)  # otherwise the backup may have failed, too

    def _kill_after(self) -> int | None:
        """How many calls after a disk error the process is killed; half the time it runs to its end."""
        return self._random.choice([None, self._random.randint(2, 60)])

    def _run(self, mode: str, fault: Fault) -> Run:
        run = tracing.run(self._site.workload(), self._site.root, fault)
        if not run.hit:
            self.outcome.missed += 1
            if run.ended_well:  # the next run will be about as long
                self.calls = Counter(name for name, _ in run.calls)
        else:
            self.outcome.points[mode] += 1
            name, path = run.calls[run.hit[0]]
            self.outcome.hit[f"{name} {_kind(path)}"] += 1
            self.outcome.helpers += run.helper_killed
        kills = run.hit and fault.error is None and not run.helper_killed
        as_meant = run.killed if kills else run.ended_well
        if not as_meant and not (run.killed and run.hit and fault.kill_after is not None):
            self.outcome.wrong.append(f"{mode}, {fault}: ended with status {run.status}")
        if mode == "sync":
            self.outcome.wrong += _after_failed_sync(run)
        return run

    def _place(self, calls: frozenset[str] | None, share: float) -> int:
        total = sum(count for name, count in self.calls.items() if calls is None or name in calls)
        return 1 + int(share * total)

    def _scarce(self, mode: str, share: float) -> None:
        work = self._site.workload()
        if mode == "descriptors":
            spare = 1 + int(share * 20)
            work.scarce = few_descriptors(spare)
        else:
            spare = int(share * (48 << 20))
            work.scarce = little_memory(spare)
        work.scarce_when_open = self._random.random() < 0.7
        what = f"{mode}, {spare} to spare, {'after' if work.scarce_when_open else 'before'} opening"
        _, status = os.waitpid(tracing.fork(work), 0)
        self.outcome.points[mode] += 1
        if mode == "memory" and (os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == NO_THREAD_MEMORY):
            self.outcome.aborted += 1
        elif status:
            self.outcome.wrong.append(f"{what}: ended with status {status}")
        self._site.check(self.outcome, what)

    def finish(self) -> Outcome:
        """Add the last catalog to the results."""
        last = Promises.read(self._site.notes)
        self.outcome.acknowledged += len(last.taken)
        self.outcome.failed.update(last.failed)
        return self.outcome


def import_all() -> None:
    """Import all that a run may need: with little memory a run should fail at its work, not at an import."""
    for package, rooms in ROOMS.items():
        for room in rooms:
            home = importlib.import_module(f"{package}.{room}")
            for module in pkgutil.walk_packages(home.__path__, f"{home.__name__}."):
                importlib.import_module(module.name)


def run(
    points: int,
    modes: tuple[str, ...],
    seed: int,
    seconds: float,
    tell: Callable[[str], None],
    sealing: Sequence[str] = ("thread",),
) -> Outcome:
    """Run this many points, cycling through the kinds and spread evenly over a run, or as many as the seconds allow,
    but at least one of the first kind. sealing: used by each catalog in turn.
    """
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        campaign = Campaign(Path(directory).resolve(), seed, sealing)
        start = random.Random(seed).random()
        told = turn = 0
        outcome = campaign.outcome
        while outcome.points.total() < points and (
            time.perf_counter() - began < seconds or modes[0] not in outcome.points
        ):
            campaign.point(modes[turn % len(modes)], (start + turn // len(modes) * GOLDEN) % 1)
            turn += 1
            for wrong in campaign.outcome.wrong[told:]:
                tell(wrong)
            told = len(campaign.outcome.wrong)
        return campaign.finish()


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--mode", action="append", choices=MODES, help="of that kind only; may be given again")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--open-seconds", type=float, default=2.0, help="opening may take so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sealing", choices=SEALING, help="where segments are written; else in turn of catalogs")
    arguments = parser.parse_args()
    if not tracing.POSSIBLE:
        raise SystemExit("this needs Linux on x86-64")
    started = time.perf_counter()
    modes = tuple(arguments.mode or MODES)
    workload.OPEN_SECONDS = arguments.open_seconds
    import_all()
    sealing = (arguments.sealing,) if arguments.sealing else SEALING
    outcome = run(
        arguments.points, modes, arguments.seed, arguments.seconds, lambda text: print(text, flush=True), sealing
    )
    print(f"points: {dict(outcome.points)}, {outcome.points.total()} in all; {outcome.missed} runs ended before theirs")
    print(f"processes that write segments killed alone: {outcome.helpers}")
    print(f"processes that libraries ended for want of memory: {outcome.aborted}")
    print(f"manifests lost and rebuilt: {outcome.rebuilt}")
    print(f"acknowledged batches: {outcome.acknowledged}; slowest opening: {outcome.slowest_open_s:.2f} s")
    print(f"longest that a batch was refused before it was taken: {outcome.slowest_recovery_s:.1f} s")
    print(f"calls: {dict(outcome.hit.most_common())}")
    print(f"errors given: {dict(outcome.failed.most_common())}")
    print(f"broken promises: {len(outcome.wrong)}; {time.perf_counter() - started:.0f} s")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
