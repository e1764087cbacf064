"""Instruction counts of small operations: `python -m benchmarks.instructions`.

They do not depend on other load on the machine, so a test compares them with those in `instructions.json`, which
`--keep` rewrites. Valgrind's callgrind counts them on the processor that it simulates.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import esformat
from examples.demo.clickstream import generate

KEPT = Path(__file__).with_suffix(".json")
EVENTS = 20_000
HISTORIES = 300
SCANS = 5
_INDEXES = ("type", "country")


def counted(module: str = "benchmarks.instructions", folder: Path | None = None) -> dict[str, int]:
    """Instructions per operation of each work, by its name. Runs `module` with `--measured FOLDER` under valgrind; the
    module calls `measure` with its works. Raises OSError (no valgrind), CalledProcessError.
    """
    with tempfile.TemporaryDirectory() as directory:
        parts = Path(directory) / "parts"
        command = [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={parts}", "--dump-before=getpgrp",
            sys.executable, "-m", module, "--measured", str(folder or directory),
        ]  # fmt: skip
        settings = {"PYTHONHASHSEED": "0", "ARROW_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # idle threads spin
        done = subprocess.run(
            command, env=os.environ | settings, cwd=KEPT.parents[1], check=True, capture_output=True, text=True
        )
        pieces: dict[str, int] = json.loads(done.stdout)
        # part 1 is from before the first work, the last one from after all works
        totals = [_total(parts.with_name(f"parts.{number}")) for number in range(2, 2 + len(pieces))]
    return {name: total // count for (name, count), total in zip(pieces.items(), totals, strict=True)}


def _total(part: Path) -> int:
    found = re.search(r"^(?:totals|summary): (\d+)", part.read_text(), re.MULTILINE)
    assert found is not None, part
    return int(found[1])


def machine() -> dict[str, str]:
    """The facts that the counts depend on, apart from the code."""
    return {"python": platform.python_version().rpartition(".")[0], "machine": platform.machine()}


def _works(directory: Path) -> dict[str, tuple[Callable[[], object], int]]:
    """The works to count, each with the number of operations it consists of."""
    table, path = generate(EVENTS, 7), directory / "events.esdb"
    with esformat.create(path, indexes=_INDEXES, threads=1) as writer:
        writer.add_table(table)
    spaces = table.column("space").unique().to_pylist()
    asked = [spaces[n * 7919 % len(spaces)] for n in range(HISTORIES)]
    warm, cold = esformat.open(path), esformat.open(path, cache_bytes=0)

    def write() -> None:
        with esformat.create(directory / "again.esdb", indexes=_INDEXES, threads=1) as writer:
            writer.add_table(table)

    def open_and_ask() -> None:
        for space in asked:
            with esformat.open(path) as segment:
                list(segment.find(space).scan())

    return {
        "file opened, history of a space: one": (open_and_ask, HISTORIES),
        "history of a space: one": (lambda: [list(warm.find(space).scan()) for space in asked], HISTORIES),
        "newest 10 of a space: one": (
            lambda: [list(warm.find(space).scan(reverse=True, limit=10)) for space in asked],
            HISTORIES,
        ),
        "blocks decoded, every column: a row": (
            lambda: [list(cold.scan().batches()) for _ in range(SCANS)],
            SCANS * EVENTS,
        ),
        "every row as an Event: one": (lambda: [sum(1 for _ in warm.scan()) for _ in range(SCANS)], SCANS * EVENTS),
        f"{EVENTS:,} events sorted and written: all": (write, 1),
    }


def measure(works: Mapping[str, tuple[Callable[[], object], int]]) -> None:
    """Run each work between two calls of `getpgrp`, where callgrind dumps counts; print the numbers of operations."""
    os.getpgrp()
    for work, _ in works.values():
        work()
        os.getpgrp()
    print(json.dumps({name: count for name, (_, count) in works.items()}))


def main() -> None:
    """Print the counts next to the saved ones; with `--keep`, save them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.name}, for the test")
    parser.add_argument("--measured", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measured:
        works = _works(args.measured)
        for work, _ in list(works.values())[:-1]:  # warm up
            work()
        return measure(works)
    if shutil.which("valgrind") is None:
        parser.error("this counts with valgrind, which is not installed")
    found = counted()
    kept = json.loads(KEPT.read_text())["instructions"] if KEPT.exists() else {}
    for name, count in found.items():
        print(f"{name:40} {count:12,} {kept.get(name, 0):12,}")
    if args.keep:
        KEPT.write_text(json.dumps(machine() | {"instructions": found}, indent=2) + "\n")
    return None


if __name__ == "__main__":
    main()
