"""The work about writing more than fits in memory: a large file within bounded memory, compared with writing in memory.

Each write is a separate process that reads the events from an Arrow file, batch by batch. So its peak resident memory
is that of the writer and the libraries, without a table of the events.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import esformat
from benchmarks import scratch
from benchmarks.contenders.protocol import INDEXES
from benchmarks.dataset import fingerprint
from benchmarks.measure import Figure, WrongAnswerError, excused
from benchmarks.session import Session

SUBJECT = "esformat"
MEMORY = "256MiB"
PLENTY = "1TiB"
BATCH_ROWS = 50_000
MILLION = 1e6


def write(session: Session) -> dict[str, Figure]:
    """Write the large file's events within MEMORY and without a bound, in turns; both must write the same bytes."""
    able, figures = session.willing("W2", (SUBJECT,))
    _, events = session.growth_events
    for name in able:
        figures[name] = figure = Figure()
        with excused(figure):
            source = _stored(session, events)
            folder = session.scratch / "bounded"
            scratch.empty(folder)
            probes: dict[str, list[dict[str, Any]]] = {MEMORY: [], PLENTY: []}
            for _ in range(session.repeats):
                for memory, found in probes.items():
                    os.sync()
                    found.append(_probe(source, folder / f"{memory}.esdb", memory))
            if (folder / f"{MEMORY}.esdb").read_bytes() != (folder / f"{PLENTY}.esdb").read_bytes():
                raise WrongAnswerError("the files differ")
            scratch.empty(folder)
            figure.samples = [events / probe["seconds"] / MILLION for probe in probes[MEMORY]]
            figure.detail = {
                "events": events,
                "memory option": MEMORY,
                "resident, MiB": round(max(probe["resident_mib"] for probe in probes[MEMORY]), 1),
                "in memory, M events/s": round(
                    float(np.median([events / probe["seconds"] / MILLION for probe in probes[PLENTY]])), 3
                ),
                "in memory, resident, MiB": round(max(probe["resident_mib"] for probe in probes[PLENTY]), 1),
            }
    return figures


def _stored(session: Session, events: int) -> Path:
    """An Arrow file of the events in small batches, written now unless an earlier run left it."""
    path = session.scratch / "data" / f"batches-{events}-{fingerprint()}.arrow"
    if not path.exists():
        table = session.dataset_of(events).table
        partial = path.with_suffix(".partial")
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=BATCH_ROWS)
        partial.rename(path)
    return path


def _probe(source: Path, target: Path, memory: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.bounded", str(source), str(target), memory]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    return json.loads(done.stdout)


# --- the fresh process ------------------------------------------------------------------------------------------------


def _batches(source: Path) -> Iterator[pa.Table]:
    with pa.OSFile(str(source), "rb") as file, pa.ipc.open_file(file) as reader:
        for number in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(number)])


def main() -> None:
    """Write one file; print the seconds, without reading, and the peak of resident memory. `_probe` runs this."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("memory")
    args = parser.parse_args()
    seconds = 0.0
    writer = esformat.create(args.target, indexes=list(INDEXES), memory=args.memory, overwrite=True)
    for table in _batches(args.source):
        start = time.perf_counter()
        writer.add_table(table)
        seconds += time.perf_counter() - start
    start = time.perf_counter()
    writer.finish()
    seconds += time.perf_counter() - start
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps({"seconds": seconds, "resident_mib": int(status["VmHWM"].split()[0]) / 1024}))


if __name__ == "__main__":
    main()
