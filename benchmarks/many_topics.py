"""A catalog with many topics, streams and segments, for `benchmarks.ingest`: open it, query it, close it."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.environment import resident_mib
from benchmarks.measure import undisturbed

REPEATS = 5
Row = dict[str, Any]


def measure_opening(work: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Measure the seconds to open such a catalog, to query a topic and the streams once each, and to close it."""
    import aggregator

    root = folder / "aggregator"
    make(root, work["topics"], work["streams"], work["segments"])
    before_mib = resident_mib("VmHWM")
    opening, closing, first_answer, first_streams = [], [], [], []
    for _ in range(REPEATS):
        with undisturbed():
            begin = time.perf_counter()
            catalog = aggregator.open(root)
            opening.append(time.perf_counter() - begin)
            assert len(list(catalog.topic("events-000077").scan())) == work["segments"] // work["topics"]
            first_answer.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            assert len(catalog.streams("pid = 77")) == 1
            first_streams.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            catalog.close()
            closing.append(time.perf_counter() - begin)
            del catalog  # or it would still be alive when the next repeat begins
    return {
        "seconds": statistics.median(opening), "first_answer_s": statistics.median(first_answer),
        "first_streams_s": statistics.median(first_streams), "close_s": statistics.median(closing),
        "resident_mib": resident_mib("VmHWM"), "before_mib": before_mib,
    }  # fmt: skip


def make(root: Path, topics: int, streams: int, segments: int) -> None:
    """Create a topic, a stream and a segment with the aggregator, and copy their rows and files."""
    import aggregator

    with aggregator.open(root) as catalog:
        catalog.create_topic("events-000000", indexes=["type"]).append([{"space": "a", "timestamp": 1, "type": "k"}])
        catalog.write({"app": "shop", "host": "h", "pid": "0"}, [{"msg": "opened"}])
        catalog.seal()
        catalog.streams()
    db = sqlite3.connect(root / "manifest.sqlite")
    with db:
        made = topics - 1

        def named(row: Row, number: int) -> None:
            row["name"] = f"events-{number + 1:06d}"

        topic = _copy(db, "topics", made, named)
        schema = _copy(db, "schemas", made, lambda row, n: row.update(topic=topic + n, family=row["number"]))
        each = segments // topics
        partition = _copy(db, "partitions", made, lambda row, n: row.update(topic=topic + n, sealed_index=each))

        def placed(row: Row, number: int) -> None:
            place, index = number % made, number // made
            row.update(partition=partition + place, schema=schema + place, first_index=index, last_index=index)
            row["level"] = index  # so that none of them are merged

        segment = _copy(db, "segments", made * each, placed)
        db.executemany("INSERT INTO stream_marks VALUES (?, ?)", [(partition + n, each) for n in range(made)])
        stream = _copy(db, "streams", streams, lambda row, n: row.update(name=f"{{app=shop,host=h{n % 1000},pid={n}}}"))
        tags = ((stream + n, tag) for n in range(streams) for tag in _tags(n))
        db.executemany("INSERT INTO stream_tags VALUES (?, ?, ?)", ((number, *tag) for number, tag in tags))
    db.close()
    stored = next(root.glob("segments/*/*.esdb")).read_bytes()
    for number in range(segment, segment + made * each):
        path = root / f"segments/{number // 1000:06d}/{number:012d}.esdb"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(stored)


def _tags(number: int) -> tuple[tuple[str, str], ...]:
    return ("app", "shop"), ("host", f"h{number % 1000}"), ("pid", str(number))


def _copy(db: sqlite3.Connection, table: str, count: int, change: Callable[[Row, int], None]) -> int:
    """Copy the first row of a table `count` times, numbering and changing each copy; return the first number."""
    cursor = db.execute(f"SELECT * FROM {table} ORDER BY number LIMIT 1")
    names = [column[0] for column in cursor.description]
    first = cursor.fetchone()
    (last,) = db.execute(f"SELECT max(number) FROM {table}").fetchone()
    rows = []
    for number in range(count):
        row = dict(zip(names, first, strict=True)) | {"number": last + 1 + number}
        change(row, number)
        rows.append(tuple(row.values()))
    db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)
    return int(last) + 1
