"""kill -9 of Spark's drivers and workers at any moment of convert, load, export, a stream and compact.

    python -m tests.soak.spark_kills --kills 100

A round adds input files and runs the jobs in sequence, each until it completes. Meanwhile Python workers are killed,
which Spark replaces in tasks but which end the job in the driver, and drivers: Python, Java, or everything together.
The rest of a killed driver may run until it ends. Jobs that did not complete are started again from where they were. A
completed job's output must have every input event once; after a round nothing unfinished may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq

import aggregator
import esformat
from tests.soak.spark_workload import JOBS

ROOT = Path(__file__).parents[2]
ROUNDS_OF_A_FOLDER = 4
USUAL_S = 6.0  # duration of a job that has not been timed yet
OF_WORKERS = 2.0  # kills per job of its last duration
STEP_S = 0.02
DRIVERS = ("Python", "Java", "all")  # what a kill of a driver hits
LONGEST_REST_S = 20.0  # how long the rest of a driver may take to end
MOST_DEATHS = 12  # deaths of one job in a row, after which it may complete
OF_SPARK = ("Python worker failed to connect back", "did not connect back in time")  # it waits ten seconds
UNFINISHED = ("_staging-", "_pending-", "_replacing-", ".part")


@dataclass
class Found:
    """The results of the kills."""

    drivers: Counter[str] = field(default_factory=Counter)  # by killed part
    workers: int = 0
    restarts: int = 0  # after failures of Spark itself on an overloaded machine
    jobs: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)  # each job's last duration
    wrong: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """Kills of both kinds."""
        return self.drivers.total() + self.workers

    def __str__(self) -> str:
        return (
            f"kills of drivers: {dict(self.drivers)}, of workers: {self.workers}; while at {dict(self.killed)}; "
            f"jobs that ended: {dict(self.jobs)}; restarts for Spark's sake: {self.restarts}; wrong: {len(self.wrong)}"
        )


class Life:
    """A running driver: its output, and ways to kill it or its workers."""

    def __init__(self, folder: Path, jobs: Iterable[str]) -> None:
        self._log = (folder / "log").open("a+b")
        self._before = self._log.seek(0, os.SEEK_END)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.spark_workload", str(folder), *jobs],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True, text=True,
        )  # fmt: skip
        self.said: list[str] = []
        self.killed = 0  # of its workers
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.said.append(line.strip())

    def ended(self, wait_s: float = STEP_S) -> bool:
        """Whether it ended without a kill, after a wait."""
        try:
            self._child.wait(wait_s)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join()
        return True

    def begun(self) -> list[str]:
        """The jobs it has started."""
        return [line.split()[1] for line in self.said if line.startswith("begin ")]

    @property
    def status(self) -> int | None:
        """Its exit status, once it ended."""
        return self._child.returncode

    def processes(self) -> dict[int, str]:
        """All its processes except the first Python process, with their command lines."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == self._child.pid:
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
        return {pid: line for pid, line in found.items() if pid != self._child.pid}

    def kill_worker(self, chance: random.Random) -> bool:
        """Kill one of the Python processes that Java started. Returns whether there was one."""
        workers = [pid for pid, line in self.processes().items() if "pyspark" in line and "java" not in line[:200]]
        if not workers:
            return False
        try:
            os.kill(chance.choice(workers), signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.killed += 1
        return True

    def kill_driver(self, what: str) -> None:
        """Kill one of DRIVERS. The rest runs until it ends, within a limit."""
        if what == "all":
            self.kill()
            return
        victims = [self._child.pid] if what == "Python" else [
            pid for pid, line in self.processes().items() if "java" in line[:200]
        ]  # fmt: skip
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + LONGEST_REST_S
        while time.monotonic() < until and (self._child.poll() is None or self.processes()):
            time.sleep(0.05)

    def messages(self) -> str:
        """What it wrote to its log."""
        self._log.seek(self._before)
        return self._log.read().decode("utf-8", "replace")

    def kill(self) -> None:
        """Kill all of its processes, including workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        for pid in self.processes():  # Java moves to its own group
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._child.wait()
        self._reader.join()

    def close(self) -> None:
        """Leave nothing running or open."""
        self.kill()
        assert self._child.stdout is not None
        self._child.stdout.close()
        self._log.close()


def add_inputs(folder: Path, chance: random.Random, number: int) -> int:
    """Add two or three Parquet files of events with distinct payloads. Returns how many events exist."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    for _ in range(chance.randrange(2, 4)):
        count = chance.randrange(100, 400)
        table = pa.table(
            {
                "user": [f"s{chance.randrange(20)}" for _ in range(count)],
                "at": pa.array([chance.randrange(10**15) for _ in range(count)], pa.timestamp("us", "UTC")),
                "data": [str(number + each).encode() for each in range(count)],
                "type": [chance.choice(("page", "cart")) for _ in range(count)],
            }
        )
        pq.write_table(table, folder / "in" / f"{number}.parquet")
        number += count
    return number


# ------------------------------------------------------------ the promises


def _of_segments(folder: Path) -> list[bytes]:
    with esformat.open_many(folder) as segments:
        return [bytes(data) for data in segments.scan(columns=["data"]).to_table()["data"].to_pylist()]


def _of_catalog(root: Path) -> list[bytes]:
    with aggregator.open(root, read_only=True) as catalog:
        return [bytes(data) for data in catalog.topic("clicks").scan(columns=["data"]).to_table()["data"].to_pylist()]


def _of_parquet(folder: Path) -> list[bytes]:
    files = [path for path in folder.rglob("*.parquet") if not path.relative_to(folder).parts[0].startswith(("_", "."))]
    return [bytes(data) for path in files for data in pq.read_table(path, columns=["data"])["data"].to_pylist()]


OUTPUTS: dict[str, tuple[str, Callable[[Path], list[bytes]]]] = {
    "convert": ("segments", _of_segments), "load": ("data", _of_catalog), "export": ("export", _of_parquet),
    "stream": ("streamed", _of_segments), "compact": ("segments", _of_segments),
}  # fmt: skip


def differences(folder: Path, job: str, count: int) -> Iterator[str]:
    """Events that are missing, duplicated or invented in a job's output."""
    name, read = OUTPUTS[job]
    there = Counter(int(data) for data in read(folder / name))
    missing = [number for number in range(count) if number not in there]
    doubled = [number for number, times in there.items() if times > 1]
    made_up = [number for number in there if not 0 <= number < count]
    for what, numbers in {"missing": missing, "doubled": doubled, "made up": made_up}.items():
        if numbers:
            yield f"after {job}, {len(numbers)} of {count} events are {what}, as {sorted(numbers)[:5]}"


def unfinished(folder: Path) -> Iterator[str]:
    """Unfinished files that a job should not have left."""
    for name in {name for name, _ in OUTPUTS.values()}:
        for path in (folder / name).rglob("*"):
            if path.name.startswith(UNFINISHED):
                yield f"{path.relative_to(folder)} was left"


# ------------------------------------------------------------ rounds


def a_round(
    folder: Path, chance: random.Random, count: int, found: Found, most: int, jobs: Sequence[str] = JOBS
) -> None:
    """Run all jobs over the inputs, each killed several times and then left to complete."""
    todo, deaths = list(jobs), 0
    while todo and not found.wrong:
        life = Life(folder, todo)
        try:
            job = _live(life, chance, found, most, last=deaths >= MOST_DEATHS)
            ended_itself, said = not job, life.messages()
        finally:
            life.close()
        done = [line.split()[1] for line in life.said if line.startswith("end ")]
        for each in done:
            found.jobs[each] += 1
            todo.remove(each)
        if done and (todo or not job):
            found.wrong += differences(folder, done[-1], count)
        deaths = 0 if done else deaths + 1
        print(found, flush=True)
        if ended_itself and life.status and life.status > 0 and not life.killed:
            if any(reason in said for reason in OF_SPARK):
                found.restarts += 1
            else:
                found.wrong.append(f"{todo[:1]} ended with status {life.status}: {said[-3000:]}")
    if not found.wrong:
        for job in jobs:
            found.wrong += differences(folder, job, count)
        found.wrong += unfinished(folder)


def _live(life: Life, chance: random.Random, found: Found, most: int, *, last: bool) -> str:
    """Kill workers and then the driver at random moments. Returns the job this stopped, or "" if all completed."""
    begun: list[str] = []
    kill_driver_in = chance.randrange(1, 4)  # after this many jobs
    started = kill_at = 0.0
    while not life.ended():
        at_work, now = life.begun(), time.monotonic()
        if len(at_work) > len(begun):
            if begun and len(at_work) == len(begun) + 1:
                found.seconds[begun[-1]] = now - started
            begun, started = at_work, now
            kill_driver_in -= 1
            kill_at = now + chance.uniform(0, found.seconds.get(begun[-1], USUAL_S))
        if not begun or found.kills >= most:
            continue
        job = begun[-1]
        if kill_driver_in <= 0 and now >= kill_at and not last:
            what = chance.choice(DRIVERS)
            life.kill_driver(what)
            found.drivers[what] += 1
            found.killed[job] += 1
            return job
        each = OF_WORKERS * STEP_S / found.seconds.get(job, USUAL_S)
        if chance.random() < each and life.kill_worker(chance):
            found.workers += 1
            found.killed[job] += 1
    if begun:  # after a failure: fewer kills per second
        twice = 2 * found.seconds.get(begun[-1], USUAL_S)
        found.seconds[begun[-1]] = time.monotonic() - started if life.status == 0 else twice
    return ""


def run(
    seed: int, kills: int, *, rounds: int = ROUNDS_OF_A_FOLDER, folder: Path | None = None, jobs: Sequence[str] = JOBS,
    timed: bool = False,
) -> Found:  # fmt: skip
    """Run rounds in folder after folder up to this many kills. timed: first a round without kills, to time the jobs."""
    chance, found = random.Random(seed), Found()
    if timed:
        here = Path(tempfile.mkdtemp(dir=folder))
        a_round(here, chance, add_inputs(here, chance, 0), found, 0, jobs)
        shutil.rmtree(here)
        found = Found(seconds=found.seconds, wrong=found.wrong)
    while found.kills < kills and not found.wrong:
        here = Path(tempfile.mkdtemp(dir=folder))
        count = 0
        for _ in range(rounds):
            count = add_inputs(here, chance, count)
            a_round(here, chance, count, found, kills, jobs)
            if found.wrong or found.kills >= kills:
                break
        if found.wrong:
            print(f"kept: {here}", flush=True)
        else:
            shutil.rmtree(here)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=ROUNDS_OF_A_FOLDER)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    found = run(options.seed, options.kills, rounds=options.rounds, timed=True)
    for line in found.wrong:
        print(f"seed {options.seed}: {line}")
    print(found)
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
