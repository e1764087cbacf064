"""Power cuts: what was acknowledged with `durability="fsync"` is on disk, whatever other writes were in flight.

    python -m tests.soak.power_cuts --cuts 200 (as root, on Linux)

The catalog is on an ext4 file system in a file. During a run the writer is stopped and the file copied. The copy is the
disk after a power cut, because data written but not synced is only in memory. The copy is mounted, which replays its
journal, and its catalog is opened and compared with what was acknowledged by then. Then the writer continues.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak import tracing, workload
from tests.soak.workload import BATCHES, Promises, Workload, broken_promises, broken_when_rebuilt

DISK_BYTES = 96 << 20
ROUNDS_OF_A_DISK = 6  # of the workload, which is small
PAUSE_S = (0.0, 0.15)  # between cuts


@dataclass
class Outcome:
    """The results of all cuts so far."""

    cuts: int = 0
    acknowledged: int = 0  # batches that had to be there, summed over the cuts
    unsynced: int = 0  # cuts at which the file system in memory had more than the disk
    slowest_open_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


def why_not() -> str | None:
    """The reason why this machine cannot run the test; None if it can."""
    if os.geteuid() != 0:
        return "this needs root"
    if any(shutil.which(tool) is None for tool in ("mkfs.ext4", "mount", "umount")):
        return "this needs mkfs.ext4 and mount"
    with tempfile.TemporaryDirectory(prefix="power-") as folder:
        try:
            with mounted(new_disk(Path(folder) / "disk", 8 << 20)):
                return None
        except subprocess.CalledProcessError as error:
            return f"this machine mounts no file: {error.stderr.decode().strip()}"


def new_disk(image: Path, size: int) -> Path:
    """A file with an ext4 file system."""
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
    return image


@contextlib.contextmanager
def mounted(image: Path) -> Iterator[Path]:
    """Mount the file system in a file. Leaving the context writes its cached data."""
    place = image.with_name(f"{image.name}-mounted")
    place.mkdir()
    subprocess.run(["mount", "-o", "loop", image, place], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True, capture_output=True)
        place.rmdir()


def files_of(root: Path) -> dict[str, int]:
    """Names and sizes of a catalog's files."""
    return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}


def _end(process: int) -> None:
    """Kill a process, even a stopped one, which would keep its parent's output open forever."""
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


class Cuts:
    """A workload on a disk whose power is cut repeatedly."""

    def __init__(self, folder: Path, seed: int, outcome: Outcome) -> None:
        self._folder, self._random, self.outcome = folder, random.Random(seed), outcome
        self._notes = folder / "notes"
        self._notes.touch()  # the first cut may come before the workload starts
        self._rounds = 0

    def run(self, cuts: int, seconds: float) -> None:
        """Use one disk for this many cuts or until the workload ends."""
        end = time.perf_counter() + seconds
        with mounted(new_disk(self._folder / "disk", DISK_BYTES)) as place:
            while self.outcome.cuts < cuts and self._rounds < ROUNDS_OF_A_DISK and time.perf_counter() < end:
                work = Workload(place / "data", self._notes, self._rounds * BATCHES)
                self._rounds += 1
                writer = tracing.fork(work)
                try:
                    ended = self._cut_until(cuts, place, writer)
                except BaseException:
                    _end(writer)
                    raise
                if not ended:
                    _end(writer)

    def _cut_until(self, cuts: int, place: Path, writer: int) -> bool:
        """Cut the power until this many cuts are done. Returns whether the workload ended first."""
        while self.outcome.cuts < cuts:
            time.sleep(self._random.uniform(*PAUSE_S))
            os.kill(writer, signal.SIGSTOP)
            ended, status = os.waitpid(writer, os.WUNTRACED)
            if ended and not os.WIFSTOPPED(status):
                if status:
                    self.outcome.wrong.append(f"the workload ended with status {status}")
                return True
            self._cut(place)
            os.kill(writer, signal.SIGCONT)
        return False

    def _cut(self, place: Path) -> None:
        """Copy the disk and check the copy."""
        copy, notes = self._folder / "copy", self._folder / "copied-notes"
        shutil.copyfile(self._folder / "disk", copy)
        shutil.copyfile(self._notes, notes)
        promises = Promises.read(notes)
        self.outcome.cuts += 1
        self.outcome.acknowledged += len(promises.taken)
        answer = self._folder / "answer"
        answer.unlink(missing_ok=True)
        with mounted(copy) as copied:
            self.outcome.unsynced += files_of(copied / "data") != files_of(place / "data")

            without_manifest = self._folder / "without-manifest"
            if (copied / "data").exists():
                shutil.copytree(copied / "data", without_manifest)

            def compare() -> None:
                wrong, seconds = broken_promises(copied / "data", promises)
                if without_manifest.exists():
                    wrong += broken_when_rebuilt(without_manifest, promises)
                answer.write_text(json.dumps((wrong, seconds)))

            _, status = os.waitpid(tracing.fork(compare), 0)
        shutil.rmtree(without_manifest, ignore_errors=True)
        wrong, seconds = json.loads(answer.read_text()) if status == 0 else (["the catalog could not be read"], 0.0)
        self.outcome.slowest_open_s = max(self.outcome.slowest_open_s, seconds)
        self.outcome.wrong += [f"cut {self.outcome.cuts}: {each}" for each in wrong]


def run(cuts: int, seed: int, seconds: float, tell: Callable[[str], None]) -> Outcome:
    """Run this many cuts, on one disk after the other."""
    outcome = Outcome()
    end = time.perf_counter() + seconds
    told = 0
    while outcome.cuts < cuts and time.perf_counter() < end:
        with tempfile.TemporaryDirectory(prefix="power-") as folder:
            Cuts(Path(folder).resolve(), seed + outcome.cuts, outcome).run(cuts, end - time.perf_counter())
        for wrong in outcome.wrong[told:]:
            tell(wrong)
        told = len(outcome.wrong)
    return outcome


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--open-seconds", type=float, default=2.0, help="opening may take so long")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not tracing.POSSIBLE or (reason := why_not()):
        print(f"skipped: {reason if tracing.POSSIBLE else 'this needs Linux'}")
        return 0
    workload.OPEN_SECONDS = arguments.open_seconds
    began = time.perf_counter()
    outcome = run(arguments.cuts, arguments.seed, arguments.seconds, lambda text: print(text, flush=True))
    print(
        f"{outcome.cuts} cuts in {time.perf_counter() - began:.0f} s; at {outcome.unsynced} the disk lacked something"
    )
    print(f"acknowledged batches looked for: {outcome.acknowledged}; slowest opening: {outcome.slowest_open_s:.2f} s")
    print(f"broken promises: {len(outcome.wrong)}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
