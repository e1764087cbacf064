"""A process that reads a catalog repeatedly while it is written to, until its standard input ends.

Run as `python reading_child.py ROOT PAUSE_S`; prints the number of complete scans, or the error.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import aggregator
from esformat.parts import hide_pandas


def read_until(stopped: Callable[[], bool], topic: aggregator.Topic, pause_s: float) -> int:
    """Scan by record index, by time and by space until stopped; return the number of scans. Raises AssertionError."""
    scans = 0
    while not stopped():
        for partition in topic.partitions:
            check_whole(slowly(topic.read(partition, columns=["record_index", "partition"]), pause_s))
            scans += 1
        check_whole(slowly(topic.scan(columns=["record_index", "partition"]), pause_s))
        history = slowly(topic.scan(space="s1", reverse=True, columns=["timestamp"]), pause_s)
        times = history["timestamp"].cast(pa.int64()).to_numpy()
        assert (np.diff(times) <= 0).all()
        scans += 2
        time.sleep(pause_s)
    return scans


def check_whole(table: pa.Table) -> None:
    """Check that each partition has every event between its first and last one exactly once."""
    for partition in table["partition"].unique():
        indexes = np.sort(table.filter(pc.equal(table["partition"], partition))["record_index"].to_numpy())
        assert (np.diff(indexes) == 1).all(), f"{len(indexes)} events between {indexes[0]} and {indexes[-1]}"


def slowly(scan: aggregator.Scan, pause_s: float) -> pa.Table:
    """The result of a scan, with a pause after its first batch, so that what it reads is replaced meanwhile."""
    reader = scan.to_reader()
    batches = []
    for batch in reader:
        batches.append(batch)
        time.sleep(pause_s if len(batches) == 1 else 0)
    return pa.Table.from_batches(batches, reader.schema)


def main() -> None:
    hide_pandas()
    root, pause_s = sys.argv[1], float(sys.argv[2])
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    with aggregator.open(root, read_only=True) as catalog:
        print("ready", flush=True)
        print(read_until(over.is_set, catalog.topic("t"), pause_s))


if __name__ == "__main__":
    main()
