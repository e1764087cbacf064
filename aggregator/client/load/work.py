"""The requests of the load generator: appends of synthetic events in several formats, and reads of them."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
import pyarrow as pa

SHAPES = 16  # requests prepared in advance, sent in turn
HISTORY_EVENTS = 100


@dataclass(frozen=True, slots=True)
class Request:
    """One request. events: number that it stores; 0 for a read."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    events: int = 0


def events_batch(seed: int, count: int, payload: int, spaces: int) -> pa.RecordBatch:
    """Return events, each in one of `spaces` spaces. Their payload is printable text, half of it random."""
    rng = np.random.default_rng(seed)
    keys = pa.array(np.char.add("space-", rng.integers(0, spaces, count).astype(str))).cast(pa.string())
    now = time.time_ns() // 1000
    letters = np.frombuffer(os.urandom(count * payload), dtype=np.uint8) % 64 + ord("0")
    letters[letters == ord("\\")] = ord("p")  # no characters that JSON escapes
    letters.reshape(count, payload)[:, : payload // 2] = ord("-")
    offsets = np.arange(0, (count + 1) * payload, payload or 1, dtype=np.int32)[: count + 1]
    if not payload:
        offsets = np.zeros(count + 1, dtype=np.int32)
    data = pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(letters.tobytes())]
    )
    return pa.record_batch({"space": keys, "timestamp": pa.array(now + np.arange(count)), "data": data})


def appends(
    interface: str,
    topic: str,
    partitions: Sequence[str],
    body: str,
    count: int,
    payload: int,
    spaces: int,
    compression: str = "none",
) -> list[Request]:
    """Return appends of `count` events each, cycling through the partitions.

    interface: "native" or "plateau". body: "arrow" or "jsonl" (native only). compression: "none", "gzip" or "zstd"
    (native only).
    """
    batches = [events_batch(seed, count, payload, spaces) for seed in range(SHAPES)]
    if interface == "plateau":
        path = f"/topic/{quote(topic, safe='')}/partition/"
        made = [_arrow(_with_time(batch), pa.ipc.new_file) for batch in batches]
        media = "application/vnd.apache.arrow.file"
    else:
        path = f"/v1/topics/{quote(topic, safe='')}/events?partition="
        made = [_arrow(batch, pa.ipc.new_stream) if body == "arrow" else _lines(batch) for batch in batches]
        media = "application/vnd.apache.arrow.stream" if body == "arrow" else "application/x-ndjson"
    headers: tuple[tuple[str, str], ...] = (("Content-Type", media),)
    if compression != "none":
        headers += (("Content-Encoding", compression),)
        made = [_compressed(each, compression) for each in made]
    places = [path + quote(partition, safe="") for partition in partitions]
    return [Request("POST", place, headers, each, count) for each in made for place in places]


def reads(interface: str, topic: str, partition: str, spaces: int) -> list[Request]:
    """Return reads: the newest 100 events of a space, or with plateau's routes pages of a partition."""
    accept = (("Accept", "application/vnd.apache.arrow.stream"),)
    if interface == "plateau":
        path = f"/topic/{quote(topic, safe='')}/partition/{quote(partition, safe='')}/records?page_size=1000&start="
        return [
            Request("GET", f"{path}{start}", (("Accept", "application/vnd.apache.arrow.file"),))
            for start in range(0, SHAPES * 1000, 1000)
        ]
    chosen = np.random.default_rng(7).integers(0, spaces, 2048).tolist()
    path = f"/v1/topics/{quote(topic, safe='')}/events?reverse=true&limit={HISTORY_EVENTS}&space=space-"
    return [Request("GET", f"{path}{number}", accept) for number in chosen]


def _compressed(body: bytes, compression: str) -> bytes:
    packed: bytes = gzip.compress(body, 6) if compression == "gzip" else pa.compress(body, "zstd", asbytes=True)
    return packed


def _with_time(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events with plateau's first column: `time` in ms."""
    times = np.asarray(batch.column("timestamp")) // 1000
    return pa.record_batch({"time": pa.array(times), "space": batch.column("space"), "data": batch.column("data")})


def _arrow(batch: pa.RecordBatch, opener: object) -> bytes:
    sink = pa.BufferOutputStream()
    with opener(sink, batch.schema) as writer:  # type: ignore[operator]  # one of pyarrow's two
        writer.write(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _lines(batch: pa.RecordBatch) -> bytes:
    rows = [{**row, "data": row["data"].decode()} for row in batch.to_pylist()]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
