"""The works about large files: the bytes that a cold answer reads, and the memory that a full scan uses.

Both use a large file: five times the run's events, or the run's own if these are at least 5 M. Memory is measured in a
fresh process per file, because a process that has done other work never returns all of its memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders.protocol import MAIN, Contender
from benchmarks.contenders.registry import installed
from benchmarks.measure import Figure, WrongAnswerError, excused
from benchmarks.session import Session
from benchmarks.touch import touch

KIB = 1024
SAMPLE_SECONDS = 0.001
COLD_CONTENDERS = ("esformat",)
MEMORY_CONTENDERS = ("esformat", "parquet")
MEMORY_REPEATS = 3


def cold_reads(session: Session) -> dict[str, Figure]:
    """Histories of the R2 spaces, each on a newly opened segment; its source counts reads and bytes."""
    able, figures = session.willing("S1", COLD_CONTENDERS)
    _, events = session.growth_events
    for name, contender in able.items():
        figures[name] = figure = Figure(points=True)
        with excused(figure):
            target = session.built(contender, events=events)
            dataset = session.dataset if events == session.events else session.dataset_of(events)
            reads = []
            for space in dataset.uniform(0, session.questions).counted:
                count, read_bytes, rows = contender.cold_history(target, space)
                if rows != dataset.history(space):
                    raise WrongAnswerError(space)
                reads.append(count)
                figure.samples.append(read_bytes / KIB)
            figure.detail = {
                "events": events,
                "reads, median": float(np.median(reads)),
                "reads, p99": float(np.percentile(reads, 99)),
                "reads, most": max(reads),
                "KiB, most": round(max(figure.samples), 1),
            }
    return figures


def scan_memory(session: Session) -> dict[str, Figure]:
    """The peak of the private memory that a scan over batches adds, for a small and a large file."""
    able, figures = session.willing("memory", MEMORY_CONTENDERS)
    small, large = session.growth_events
    for name, contender in able.items():
        figures[name] = figure = Figure()
        with excused(figure):
            probes = {
                events: [_probe(contender, session.built(contender, events=events)) for _ in range(MEMORY_REPEATS)]
                for events in (small, large)
            }
            peaks = {
                events: {key: float(np.median([probe[key] for probe in found])) for key in found[0]}
                for events, found in probes.items()
            }
            figure.samples = [probe["private_mib"] for probe in probes[large]]
            figure.detail = {
                "events": large,
                "small file, events": small,
                "small file, MiB": round(peaks[small]["private_mib"], 1),
                "resident, file pages included, MiB": round(peaks[large]["resident_mib"], 1),
                "small file, resident, MiB": round(peaks[small]["resident_mib"], 1),
            }
    return figures


def _probe(contender: Contender, target: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.growth", contender.name, str(target)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    return json.loads(done.stdout)


# --- the fresh process ------------------------------------------------------------------------------------------------


class PeakMemory:
    """Tracks the growth of this process's memory since the start, from a background thread. Linux only."""

    def __init__(self) -> None:
        self._before = self._peak = self._now()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    @staticmethod
    def _now() -> tuple[int, int]:
        """Private KiB, and all resident KiB."""
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        private, resident = (int(lines[key].split()[0]) for key in ("RssAnon", "VmRSS"))
        return private, resident

    def _follow(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            private, resident = self._now()
            self._peak = max(self._peak[0], private), max(self._peak[1], resident)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def added_mib(self) -> tuple[float, float]:
        """Private and resident memory at the peak, minus the memory at the start."""
        private, resident = ((peak - before) / KIB for peak, before in zip(self._peak, self._before, strict=True))
        return private, resident


def main() -> None:
    """Scan one built file and print the peaks. `_probe` runs this."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("contender")
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    ((_, contender),) = installed([args.contender])
    if isinstance(contender, ImportError):
        raise contender
    with PeakMemory() as memory:
        reader = contender.open(args.target, MAIN)
        totals = touch(reader.batches())
    private, resident = memory.added_mib
    print(json.dumps({"events": totals.rows, "private_mib": private, "resident_mib": resident}))


if __name__ == "__main__":
    main()
