"""A process that ingests until it is killed, and prints what was acknowledged.

Every batch is named after its thread and number and sent twice, the second time as a retry.

Run as `python ingest_child.py ROOT DURABILITY ROLL_ROWS THREADS`; lines are `partition producer sequence first last`.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import pyarrow as pa

import aggregator
from esformat.parts import hide_pandas

PARTITIONS = 3


def batch(producer: str, sequence: int) -> pa.Table:
    """The events of a batch: up to 50, each with a distinct payload."""
    count = 1 + sequence * 7 % 50
    data = [b"%s/%d/%d" % (producer.encode(), sequence, number) for number in range(count)]
    spaces = [f"space-{(sequence + number) % 11}" for number in range(count)]
    return pa.table({"space": spaces, "timestamp": range(sequence, sequence + count), "data": data})


def work(topic: aggregator.Topic, thread: int, start: int) -> None:
    """Append batch after batch, each twice."""
    producer, partition = f"p{thread}", str(thread % PARTITIONS)
    for sequence in range(start, 1 << 60):
        for _ in range(2):
            try:
                receipt = topic.append(batch(producer, sequence), partition, producer=producer, sequence=sequence)
            except aggregator.OverloadedError as error:
                time.sleep(error.retry_after_s)
                continue
            line = f"{partition} {producer} {sequence} {receipt.first} {receipt.last}\n"
            os.write(1, line.encode())


def main() -> None:
    hide_pandas()
    root, durability, rows, threads = sys.argv[1:5]
    catalog = aggregator.open(root, durability=durability)
    topic = catalog.topic("t") if "t" in catalog.topics() else catalog.create_topic("t", roll={"rows": int(rows)})
    start = time.time_ns() // 1000
    workers = [threading.Thread(target=work, args=(topic, thread, start)) for thread in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
