"""Streams, LQL, positions, pipes and truncations compared with plain lists, over kills and restarts.

    python -m tests.soak.streams --minutes 10

Each life is a process that works on the catalog until it is killed with SIGKILL at any time. Then the catalog is opened
here and compared with the notes, and the next life begins.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aggregator
from tests.soak.stream_model import Model
from tests.soak.stream_workload import LIMITS, notes_of

ROOT = Path(__file__).parents[2]


def live(root: Path, notes: Path, seed: int, seconds: float) -> str:
    """Run one life. Returns its error output if it ended before it was killed."""
    command = [sys.executable, "-m", "tests.soak.stream_workload", str(root), str(notes), str(seed)]
    opened = sum(note[0] == "open" for note in notes_of(notes)) if notes.exists() else 0
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as child:
        end = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < end:  # it is running
            if notes.exists() and sum(note[0] == "open" for note in notes_of(notes)) > opened:
                break
            time.sleep(0.02)
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        assert child.stderr is not None
        said = child.stderr.read()
    return said if child.returncode != -signal.SIGKILL else ""


def run(folder: Path, seed: int, *, lives: int, longest_s: float, until: float = float("inf")) -> Model:
    """Run this many lives over one catalog. Returns the model with the results."""
    chance = random.Random(seed)
    root, notes = folder / "data", folder / "notes"
    model, played = Model(), 0
    for life in range(lives):
        said = live(root, notes, chance.randrange(1 << 30), chance.uniform(0.05, longest_s))
        if said:
            model.wrong.append(f"the process ended by itself: {said[-2000:]}")
        for note in list(notes_of(notes))[played:]:
            model.play(note)
            played += 1
        with aggregator.open(root, limits=LIMITS) as catalog:
            model.compare(catalog)
            if life == lives - 1 or time.monotonic() > until or model.wrong:
                model.finish(catalog)
                break
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    seed, total, wrong = options.seed, {}, 0
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory() as folder:
            model = run(Path(folder), seed, lives=40, longest_s=4.0, until=until)
        total = {name: total.get(name, 0) + count for name, count in model.counts.items()}
        wrong += bool(model.wrong)
        for line in model.wrong[:5]:
            print(f"seed {seed}: {line}", flush=True)
        seed += 1
    print(f"catalogs: {seed - options.seed}; {total}; wrong: {wrong}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
